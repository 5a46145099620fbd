"""What a round asks of an engine, ours or a peer's: the same few operations, with as little Python as can be.

The clock is the thread's own processor time, since a read from memory waits for nothing else and other processes must
not count.  The loop is included (about 10 ns a call).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import thread_time_ns
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

    from tests.bench.data import Record


class Engine(ABC):
    """One open store.  `get` is the engine's own bound function, so that no frame of ours is in the figure."""

    name: ClassVar[str]
    settings: ClassVar[str]  # Printed beside the figures, with the reason.
    batched: ClassVar[bool] = True  # Has a call for many keys.
    ordered: ClassVar[bool] = True  # Has scans in key order.

    get: Callable[[bytes], bytes | None]

    @classmethod
    def missing(cls) -> str | None:
        """What must be installed before this engine can run here."""
        return None

    @classmethod
    @abstractmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        """Write all records, given unsorted, the way an expert of this engine would; on the disk when it returns."""

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        """Open what `build` wrote at `path`; the records are for an engine that lives in memory."""
        del records
        return cls(path)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values in the order asked, or only those found where the engine's API is so."""
        raise NotImplementedError(keys)

    def scan(self) -> Iterator[Record]:
        raise NotImplementedError

    def first(self, start: bytes, count: int) -> list[Record]:
        raise NotImplementedError(start, count)

    @abstractmethod
    def close(self) -> None:
        """Let go of files and memory."""

    def time_gets(self, keys: list[bytes]) -> tuple[int, bytes | None]:
        """Nanoseconds of one get after the other, and the last value."""
        get = self.get
        value = None
        begin = thread_time_ns()
        for key in keys:
            value = get(key)
        return thread_time_ns() - begin, value

    def time_batches(self, batches: list[list[bytes]]) -> tuple[int, list[bytes | None]]:
        """Nanoseconds of gets of many, and the last values."""
        get_many = self.get_many
        values: list[bytes | None] = []
        begin = thread_time_ns()
        for batch in batches:
            values = get_many(batch)
        return thread_time_ns() - begin, values

    def time_ranges(self, starts: list[bytes], count: int) -> tuple[int, list[Record]]:
        """Nanoseconds of lists of the first records from a key on, and the last one."""
        first = self.first
        records: list[Record] = []
        begin = thread_time_ns()
        for start in starts:
            records = first(start, count)
        return thread_time_ns() - begin, records

    def time_scan(self) -> tuple[int, bytes]:
        """Nanoseconds of reading all records as pairs, and the last key."""
        key = b""
        begin = thread_time_ns()
        for key, _value in self.scan():  # noqa: B007  # The last key is returned.
            pass
        return thread_time_ns() - begin, key
