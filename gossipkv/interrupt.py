"""Ctrl-C while a command loads.

The package imports this first, and this imports only what Python itself has loaded: `signal` would take as long as
Python's own start, since it makes enumerations of what stands in `_signal`.

Modules take a few tenths of a second.  What Python raises meanwhile comes out of whichever line is being imported, or
is lost in a callback of the import system.  Nothing has begun that would have to be ended, so the process just exits.
"""

import _signal as signal  # type: ignore[import-not-found]  # Typeshed has what `signal` takes from it, there.
import os
import sys

INTERRUPTED = 130


def _exit(*_: object) -> None:
    os._exit(INTERRUPTED)


def is_program() -> bool:
    """True while Python loads the command, or a module of the package that it runs as a program."""
    program = sys.argv[0] if sys.argv else ""
    return program == "-m" or program.rpartition("/")[2] == "gossipkv"


def exit_at_once() -> None:
    """Have Ctrl-C end the process without a word, unless it is ignored, as in a job that a shell runs behind."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105  # What that needs takes 10 ms to load.
            signal.signal(signal.SIGINT, _exit)
        except ValueError:  # A thread loads the package.
            pass


def raise_again() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, after `exit_at_once`."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)
