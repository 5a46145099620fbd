"""Streams for standard output and error of a serving process: a write never waits for the reader.

An unread pipe, a terminal stopped with Ctrl-S or a hung file system block a write indefinitely. So each stream has a
bounded queue and a thread that alone writes to the descriptor. Further lines are lost if the queue is full, or if the
descriptor accepts none; lost lines are counted.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO, final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_QUEUED_BYTES: Final = 1 << 20  # Some 5,000 lines: more than a node writes on a quiet day.
LOOK_PERIOD_S: Final = 60.0
LAST_WAIT_S: Final = 1.0  # A process waits this long at its end for its last lines, even if a pipe is full.


def mend_standard() -> None:
    """Open closed standard descriptors, and let text of any language be written.

    Otherwise a file or connection that got the number of a closed one would be written into. Standard output then fails
    like in other programs, and standard error discards its text.
    """
    for name, flags in (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        stream = getattr(sys, name)
        if stream is None:  # The lowest free number is its own, since those before are open.
            descriptor = os.open(os.devnull, flags)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # It stays open.
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def flush_or_drop(stream: TextIO) -> None:
    """Write a stream's buffer; if that fails, this and all later text is dropped without an error."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class LineBatch(NamedTuple):
    """Text taken from a queue, and the number of lines lost before."""

    data: bytes
    lost: int


@final
class LineQueue:
    """A queue of text, at most MAX_QUEUED_BYTES."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._lost = 0

    def __len__(self) -> int:
        return self._size_bytes

    def put(self, text: str) -> None:
        """Queue text, or count its lines as lost if it does not fit."""
        data = text.encode("utf-8", "backslashreplace")
        if self._size_bytes + len(data) > MAX_QUEUED_BYTES:
            self.lose(data.count(b"\n"))
        else:
            self._parts.append(data)
            self._size_bytes += len(data)

    def lose(self, lines: int) -> None:
        """Count lines that were not written."""
        self._lost += lines

    def take(self) -> LineBatch:
        """Return all queued text and the number of lost lines; both are reset."""
        batch = LineBatch(b"".join(self._parts), self._lost)
        self._parts, self._size_bytes, self._lost = [], 0, 0
        return batch


@final
class OutputStream(io.TextIOBase):
    """Text for a descriptor, written by a thread of its own.

    That thread calls `on_look` at least once in LOOK_PERIOD_S, at each write and before the end. The arguments are the
    number of lines lost since the last call, and the time in seconds, inf at the end. The callback may write to the
    stream.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int, on_look: Callable[[int, float], object] = lambda _lost, _now: None) -> None:
        self._descriptor = descriptor
        self._on_look = on_look
        self._backlog = LineQueue()
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"stream-{descriptor}", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def write(self, text: str, /) -> int:
        """Queue text; never waits for the reader."""
        with self._changed:
            self._backlog.put(text)
            self._changed.notify()
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def end(self) -> None:
        """Wait until queued text is written, at most LAST_WAIT_S."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join(LAST_WAIT_S)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._backlog or self._is_over, LOOK_PERIOD_S)
                is_over = self._is_over
                data, lost = self._backlog.take()
            self._on_look(lost, inf if is_over else time.monotonic())
            with self._changed:
                more = self._backlog.take()
            if not self._written(data + more.data):
                with self._changed:
                    self._backlog.lose(lost + data.count(b"\n"))

    def _written(self, data: bytes) -> bool:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # The disk is full, or the reader has gone.
            return False
        return True
