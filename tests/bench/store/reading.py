"""The rows about reading: gets, misses, scans and short ranges of a view, beside LMDB, as for sorted files.

GossipKV is read through a `View`, LMDB through one long read transaction: each is a snapshot of its store, taken once.
The shapes: one run with every record; and a memtable and eight young runs with a ninth of the records each, so that
most gets find nothing in most of them. They are made of the store's own parts: no store would keep eight young runs for
long.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import TYPE_CHECKING

from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.engine._engine import Memtable, View
from gossipkv.storage.sorted_file import SortedFile
from tests.bench import data, engines, goals, machine, reading
from tests.bench.measurement import OURS
from tests.bench.peers.base import Engine
from tests.bench.peers.lmdb import Lmdb
from tests.bench.reading import Reading
from tests.bench.store import ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from tests.bench.data import Record
    from tests.bench.measurement import Bench

PAGE = 1_000
SPACE = 1
MEMTABLE_BYTES = 96 << 20
_PREFIX = SPACE.to_bytes(4, "big")  # The prefix of every key in a run.
_VALUE = b"\1"  # The flag before every value in a run.


class OneRun(Engine):
    """A view of one run that has every record, and of an empty memtable."""

    name = OURS
    settings = "a view of a store, one space"
    batched = False
    young = 0  # The number of runs that share the records with the memtable; with 0 a single run has all.

    def __init__(self, path: Path, records: list[Record]) -> None:
        memtable = Memtable(MEMTABLE_BYTES)
        if self.young:
            memtable.apply(ours.batch_of(SPACE, records[:: self.young + 1]).payload)
        self._files = [SortedFile(each) for each in sorted(path.iterdir())]
        self._view = View([memtable], [[(_PREFIX, file)] for file in self._files])

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        path.mkdir()
        runs = [records[number :: cls.young + 1] for number in range(1, cls.young + 1)] or [records]
        for number, run in enumerate(runs):
            with SortedFileBuilder(path, [f"{number}.gkv"]) as builder:
                for key, value in run:
                    builder.add(_PREFIX + key, _VALUE + value)
                builder.finish()

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        return cls(path, records)

    def get(self, key: bytes) -> bytes | None:
        return self._view.get(SPACE, key)

    def scan(self) -> Iterator[Record]:
        start: bytes | None = b""
        while start is not None:
            page, start = self._view.scan(SPACE, start, None, limit=PAGE)
            yield from page

    def first(self, start: bytes, count: int) -> list[Record]:
        return self._view.scan(SPACE, start, None, limit=count)[0]

    def close(self) -> None:
        self._view.close()
        for file in self._files:
            file.close()

    def time_gets(self, keys: list[bytes]) -> tuple[int, bytes | None]:
        get, value = self._view.get, None
        begin = thread_time_ns()
        for key in keys:
            value = get(SPACE, key)
        return thread_time_ns() - begin, value

    def time_ranges(self, starts: list[bytes], count: int) -> tuple[int, list[Record]]:
        scan = self._view.scan
        found: list[Record] = []
        begin = thread_time_ns()
        for start in starts:
            found, _ = scan(SPACE, start, None, limit=count)
        return thread_time_ns() - begin, found

    def time_scan(self) -> tuple[int, bytes]:
        scan, start, seen = self._view.scan, b"", b""
        begin = thread_time_ns()
        while start is not None:
            page, start = scan(SPACE, start, None, limit=PAGE)
            for key, _value in page:
                seen = key
        return thread_time_ns() - begin, seen


class YoungRuns(OneRun):
    """A ninth of the records in each of eight runs and a memtable."""

    young = 8


def gets(bench: Bench, *, keys: int = 1_000_000, queries: int = reading.QUERIES, rounds: int = 15) -> None:
    records = data.make(keys)
    bench.notes.append(f"Gets: {keys:,} records, {rounds} rounds of {queries:,} gets of a view")
    with machine.pinned(bench.core), machine.uncollected():
        for kind, readings in (
            (OneRun, [Reading(goals.STORE_GET, reading.hits, reading.any_present)]),
            (
                YoungRuns,
                [
                    Reading(goals.STORE_GET_YOUNG, reading.hits, reading.any_present),
                    Reading(goals.STORE_MISS_YOUNG, reading.misses, reading.any_absent),
                ],
            ),
        ):
            with engines.opened(bench, (kind, Lmdb), records) as ready:
                reading.compare(bench, readings, ready, records, rounds=rounds, queries=queries)


def scans(
    bench: Bench, *, keys: int = 1_000_000, queries: int = reading.QUERIES, whole: int = 5, rounds: int = 15
) -> None:
    records = data.make(keys)
    bench.notes.append(f"Scans: {keys:,} records, {whole} rounds of all of them in pages of {PAGE:,}")
    every = Reading(goals.STORE_SCAN, reading.scan, reading.every)
    some = Reading(goals.STORE_RANGE, reading.ranges, reading.some_present)
    with (
        machine.pinned(bench.core),
        machine.uncollected(),
        engines.opened(bench, (OneRun, Lmdb), records) as ready,
    ):
        reading.compare(bench, [every], ready, records, rounds=whole, queries=queries)
        reading.compare(bench, [some], ready, records, rounds=rounds, queries=queries)
