"""The operations of an engine in a round, with as little Python as possible.

The clock is the thread's processor time, since a read from memory waits for nothing else and other processes must not
count. The loop is included (about 10 ns a call).
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
    """One open store. `get` is the engine's own bound function, so that no Python frame is in the figure."""

    name: ClassVar[str]
    settings: ClassVar[str]  # The setup with its reason, printed beside the figures.
    batched: ClassVar[bool] = True  # The engine has a call for many keys.
    ordered: ClassVar[bool] = True  # The engine scans in key order.

    get: Callable[[bytes], bytes | None]

    @classmethod
    def missing(cls) -> str | None:
        """Return the package that this engine needs here, or None."""
        return None

    @classmethod
    @abstractmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        """Write all records, given unsorted, as an expert of this engine would; all are synced on return."""

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        """Open the output of `build` at `path`; the records are for an engine that lives in memory."""
        del records
        return cls(path)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values in the order asked, or only the found ones if the engine's API is so."""
        raise NotImplementedError(keys)

    def scan(self) -> Iterator[Record]:
        raise NotImplementedError

    def first(self, start: bytes, count: int) -> list[Record]:
        raise NotImplementedError(start, count)

    @abstractmethod
    def close(self) -> None:
        """Free files and memory."""

    def time_gets(self, keys: list[bytes]) -> tuple[int, bytes | None]:
        """Return the nanoseconds of successive gets, and the last value."""
        get = self.get
        value = None
        begin = thread_time_ns()
        for key in keys:
            value = get(key)
        return thread_time_ns() - begin, value

    def time_batches(self, batches: list[list[bytes]]) -> tuple[int, list[bytes | None]]:
        """Return the nanoseconds of batched gets, and the last values."""
        get_many = self.get_many
        values: list[bytes | None] = []
        begin = thread_time_ns()
        for batch in batches:
            values = get_many(batch)
        return thread_time_ns() - begin, values

    def time_ranges(self, starts: list[bytes], count: int) -> tuple[int, list[Record]]:
        """Return the nanoseconds of lists of the first records from a key on, and the last list."""
        first = self.first
        records: list[Record] = []
        begin = thread_time_ns()
        for start in starts:
            records = first(start, count)
        return thread_time_ns() - begin, records

    def time_scan(self) -> tuple[int, bytes]:
        """Return the nanoseconds of reading all records as pairs, and the last key."""
        key = b""
        begin = thread_time_ns()
        for key, _value in self.scan():  # noqa: B007  # The last key is returned.
            pass
        return thread_time_ns() - begin, key
