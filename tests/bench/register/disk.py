"""The yardstick of what waits for the disk: `pwrite` and `fdatasync` of a record, one after the other, and no more."""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 4 << 20
RECORD = bytes(range(1, 256))  # About what an acceptor writes for a change, with what the store writes around it.


@final
class Disk:
    """A file that is there in full, as a segment of the store's log is."""

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
