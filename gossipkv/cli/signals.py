"""Signals that end a command as Ctrl-C does, so that it cleans up and says how to go on."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """End by SIGTERM and SIGHUP as by Ctrl-C, which also works if a shell made background jobs ignore it."""
    # `nohup` makes a process ignore SIGHUP.
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    heard = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} - ignored
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
