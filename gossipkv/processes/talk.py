"""Lines over pipes: how a child process and whoever started it speak."""

from __future__ import annotations

import os
from typing import final


@final
class Lines:
    """Bytes as they come, cut into whole lines."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = b""

    def feed(self, part: bytes) -> list[bytes]:
        """Return the lines that `part` makes whole, without their ends."""
        *lines, self._waiting = (self._waiting + part).split(b"\n")
        assert b"\n" not in self._waiting, self._waiting
        return lines


def say(line: bytes) -> None:
    """Write one line to standard output, at once and whole."""
    assert b"\n" not in line, line
    data = line + b"\n"
    while data:
        data = data[os.write(1, data) :]
