"""The events of a run, folded into one number, and its last lines, which help to find a difference.

Each line has the virtual time, and may depend on the run alone: no addresses of objects, no process numbers, no real
time, no order of a set.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final, final
from zlib import crc32

import trio

KEPT_LINES: Final = 20_000


@final
class Trace:
    def __init__(self, kept_lines: int | None = KEPT_LINES) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: deque[str] = deque(maxlen=kept_lines)
        self.count = 0

    def note(self, where: str, what: str, detail: object = "", data: bytes | None = None) -> None:
        """Add one line, with the length and checksum of `data`."""
        digest = "" if data is None else f" {len(data)}:{crc32(data):08x}"
        line = f"{trio.current_time():.6f} {where} {what} {detail}{digest}"
        self._hash.update(line.encode("utf-8", "backslashreplace") + b"\n")
        self.lines.append(line)
        self.count += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def lines_with(self, what: str) -> list[str]:
        """Return those of the last lines that contain `what`: `event=` finds the nodes' log lines."""
        return [line for line in self.lines if what in line]
