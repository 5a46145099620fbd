"""Ctrl-C while a command loads.

The package imports this module first, and it imports only modules that Python itself has loaded. `signal` would take as
long as Python's own start, since it makes enumerations of `_signal`'s constants.

Loading takes a few tenths of a second. A KeyboardInterrupt then would come from any line being imported, or be lost in
a callback of the import system. Nothing was begun that must be ended, so the process just exits.
"""

import _signal as signal  # type: ignore[import-not-found]  # Typeshed describes these names in `signal`.
import os
import sys

INTERRUPTED = 130
RETRY_S = 0.01


def _exit(*_: object) -> None:
    os._exit(INTERRUPTED)


def is_program() -> bool:
    """True while Python loads the command, or a module of the package that it runs as a program."""
    program = sys.argv[0] if sys.argv else ""
    return program == "-m" or program.rpartition("/")[2] == "gossipkv"


def exit_at_once() -> None:
    """Make Ctrl-C end the process silently, unless it is ignored, as in a shell's background job."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105  # The module for that takes 10 ms to load.
            signal.signal(signal.SIGINT, _exit)
        except ValueError:  # The package is loaded by a thread.
            pass


def raise_again() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again, after `exit_at_once`."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def repeat_dropped() -> None:
    """Repeat each Ctrl-C that Python drops, since it comes in a destructor or in a callback of a weak reference."""
    report = sys.unraisablehook

    def report_or_repeat(unraisable: "sys.UnraisableHookArgs", /) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        from threading import Timer, main_thread  # noqa: PLC0415  # They are seldom needed, and load slowly.

        # `_thread.interrupt_main` would not end a sleep.
        timer = Timer(RETRY_S, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = report_or_repeat
