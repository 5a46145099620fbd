"""The yardstick of disk waits: only `pwrite` and `fdatasync` of successive records."""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 4 << 20
RECORD = bytes(range(1, 256))  # About the size of an acceptor's write for a change, including the store's overhead.


@final
class Disk:
    """A preallocated file, like a segment of the store's log."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        os.pwrite(self._descriptor, bytes(FILE_BYTES), 0)
        os.fsync(self._descriptor)
        self._offset = 0

    def sync_ms(self, count: int) -> float:
        took_ns = []
        for _ in range(count):
            if self._offset + len(RECORD) > FILE_BYTES:
                self._offset = 0
            begin_ns = perf_counter_ns()
            os.pwrite(self._descriptor, RECORD, self._offset)
            os.fdatasync(self._descriptor)
            took_ns.append(perf_counter_ns() - begin_ns)
            self._offset += len(RECORD)
        return median(took_ns) / 1e6

    def close(self) -> None:
        os.close(self._descriptor)
