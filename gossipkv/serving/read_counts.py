"""Counts of reads in Python, by database; the serving loop counts the reads that it answers (`published/table.pyx`).

Only known databases are counted, so names from clients cost no memory.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(slots=True)
class DatabaseReadCounts:
    """Counts of one database."""

    requests: int = 0  # Requests that found no version; the others are counted with their version.
    forwarded: int = 0
    hits: int = 0
    misses: int = 0
    value_bytes: int = 0
    errors: int = 0


@final
@dataclass(slots=True)
class ReadSample:
    """A request while it is read."""

    has_version: bool = False  # A version was found, and the request is counted with it.


@final
class ReadCounts:
    """Counts of all databases."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._counts: defaultdict[str, DatabaseReadCounts] = defaultdict(DatabaseReadCounts)

    @contextmanager
    def reading(self, database: str) -> Iterator[ReadSample]:
        """Count the request if it ends in an error."""
        reading = ReadSample()
        try:
            yield reading
        except Exception:
            self.failed(database, has_version=reading.has_version)
            raise

    def failed(self, database: str, *, has_version: bool) -> None:
        """Count an error, and the request too if it found no version."""
        if self._is_known(database):
            self._counts[database].errors += 1
            self._counts[database].requests += not has_version

    def asked_elsewhere(self, database: str) -> None:
        """Count a request for which other nodes are asked."""
        self._counts[database].forwarded += 1

    def answered(self, database: str, *values: bytes | None) -> None:
        """Count the values of keys, or misses for None."""
        counts = self._counts[database]
        hits = [value for value in values if value is not None]
        counts.hits += len(hits)
        counts.misses += len(values) - len(hits)
        counts.value_bytes += sum(map(len, hits))

    def with_those_of(self, loop: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return the counts of Python and of the serving loop together, by database."""
        names = {**loop, **self._counts}
        return {name: _sum(asdict(self._counts.get(name, DatabaseReadCounts())), loop.get(name, {})) for name in names}


def _sum(here: Mapping[str, int], loop: Mapping[str, int]) -> dict[str, int]:
    return {name: count + loop.get(name, 0) for name, count in here.items()}
