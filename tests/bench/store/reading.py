"""The rows about reading: gets, misses, scans and short ranges of a view, beside LMDB.

Both hold the same million records and are asked the same keys, as new objects, in turn within a round and in another
order each round; one process, one core, both checked in full before, which is also what makes either of them touch
every page once.  The clock is the thread's own processor time, as for sorted files.

Ours is read through a `View`, LMDB through one long read transaction: each is what its store looks like at one
moment, and is taken once.  The shapes: one run with every record; and a memtable and eight young runs, which have a
ninth of the records each, so that most gets find nothing in most of them.  They are made of the store's own parts:
no store would keep eight young runs for long.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from time import thread_time_ns
from typing import TYPE_CHECKING

from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.engine._memtable import Memtable
from gossipkv.storage.engine._view import View
from gossipkv.storage.sorted_file import SortedFile
from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.peers.lmdb import Lmdb
from tests.bench.store import ours
from tests.bench.verification import WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

    Time = Callable[[list[bytes]], float]  # Nanoseconds a key, or a range, or a record.

PAGE = 1_000
RANGE = 10
YOUNG = 8
SPACE = 1
MEMTABLE_BYTES = 96 << 20
RUN = "run.gkv"
_PREFIX = SPACE.to_bytes(4, "big")  # Of every key in a run.
_VALUE = b"\1"  # The flag before every value there.


@dataclass(frozen=True)
class Load:
    """How many records, how many of them are asked for in a round, and how often."""

    keys: int = 1_000_000
    queries: int = 20_000
    scans: int = 5  # Of everything; the other rows have rounds as many as `rounds`.
    rounds: int = 15


@dataclass(frozen=True)
class Row:
    """What each side does with the keys of a round."""

    name: str
    keys: Callable[[random.Random], list[bytes]]
    ours: Time
    theirs: Callable[[Lmdb], Time]
    rounds: int


def gets(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """A key at a time, in both shapes."""
    records = data.make(load.keys, data.SMALL_VALUE_BYTES)
    notes.append(f"Gets: {load.keys:,} records, {load.rounds} rounds of {load.queries:,} gets of a view")
    with machine.pinned(None), machine.uncollected():
        with _one_run(directory / "one", records.records) as view:
            yield from _beside_lmdb(directory / "lmdb", records, view, _rows_of_one_run(view, records, load), notes)
        with _young_runs(directory / "young", records.records) as view:
            yield from _beside_lmdb(directory / "lmdb", records, view, _rows_of_young_runs(view, records, load), [])


def scans(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """In order, of one run."""
    records = data.make(load.keys, data.SMALL_VALUE_BYTES)
    notes.append(f"Scans: {load.keys:,} records, {load.scans} rounds of all of them in pages of {PAGE:,}")
    with machine.pinned(None), machine.uncollected(), _one_run(directory / "one", records.records) as view:
        rows = [
            Row(goals.STORE_SCAN, _everything(records), _scan_time(view), _lmdb_scan_time, load.scans),
            Row(goals.STORE_RANGE, _starts(records, load), _range_time(view), _lmdb_range_time, load.rounds),
        ]
        yield from _beside_lmdb(directory / "lmdb", records, view, rows, notes)


@contextmanager
def _one_run(directory: Path, records: list[Record]) -> Iterator[View]:
    """Every record in one run, and an empty memtable."""
    with _opened([Memtable(MEMTABLE_BYTES)], [_run(directory, records)]) as view:
        yield view


@contextmanager
def _young_runs(directory: Path, records: list[Record]) -> Iterator[View]:
    """A ninth of the records in each of eight runs and a memtable."""
    memtable, parts = Memtable(MEMTABLE_BYTES), YOUNG + 1
    memtable.apply(ours.batch_of(SPACE, records[::parts]).payload)
    runs = [_run(directory / str(number), records[number::parts]) for number in range(1, parts)]
    with _opened([memtable], runs) as view:
        yield view


def _run(directory: Path, records: list[Record]) -> SortedFile:
    directory.mkdir(parents=True)
    with SortedFileBuilder(directory, [RUN]) as builder:
        for key, value in records:
            builder.add(_PREFIX + key, _VALUE + value)
        builder.finish()
    return SortedFile(directory / RUN)


@contextmanager
def _opened(memtables: list[Memtable], files: list[SortedFile]) -> Iterator[View]:
    view = View(memtables, [[(_PREFIX, file)] for file in files])
    try:
        yield view
    finally:
        view.close()
        for file in files:
            file.close()


def _rows_of_one_run(view: View, records: data.Data, load: Load) -> list[Row]:
    present = _any_of([key for key, _ in records.records], load)
    return [Row(goals.STORE_GET, present, _get_time(view), _lmdb_get_time, load.rounds)]


def _rows_of_young_runs(view: View, records: data.Data, load: Load) -> list[Row]:
    present, absent = _any_of([key for key, _ in records.records], load), _any_of(records.absent, load)
    return [
        Row(goals.STORE_GET_YOUNG, present, _get_time(view), _lmdb_get_time, load.rounds),
        Row(goals.STORE_MISS_YOUNG, absent, _get_time(view), _lmdb_get_time, load.rounds),
    ]


def _beside_lmdb(
    path: Path, records: data.Data, view: View, rows: list[Row], notes: list[str]
) -> Iterator[Measurement]:
    """Every answer of both compared, then the rows."""
    _check(lambda key: view.get(SPACE, key), _pages(view), records, ours.NAME)
    lmdb = None
    missing = Lmdb.missing()
    if missing is None:
        if not path.exists():
            Lmdb.build(path, records.records)
        lmdb = Lmdb.open(path, records.records)
        _check(lmdb.get, lmdb.scan(), records, Lmdb.name)
        notes.append(f"LMDB: {Lmdb.settings}")
    else:
        notes.append(f"LMDB takes no part; it needs: {missing}")
    try:
        for row in rows:
            machine.say(f"  {row.name}")
            sides = {ours.NAME: row.ours} | ({Lmdb.name: row.theirs(lmdb)} if lmdb is not None else {})
            yield _measure(row, sides)
    finally:
        if lmdb is not None:
            lmdb.close()


def _measure(row: Row, sides: dict[str, Time]) -> Measurement:
    chance = random.Random(f"{data.SEED} {row.name}")
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(row.rounds + 1):
        keys = row.keys(chance)
        for name in chance.sample([*sides], len(sides)):
            figure = sides[name](data.fresh(keys))
            if number > 0:
                samples[name].append(figure)
    return Measurement(row.name, "ns", ours.NAME, samples)


def _check(get: Callable[[bytes], bytes | None], scan: Iterable[Record], records: data.Data, name: str) -> None:
    """Every key, every absent key, the whole order."""
    for key, value in records.records:
        if get(key) != value:
            raise WrongAnswerError(f"{name}: get({key!r})")
    for key in records.absent:
        if get(key) is not None:
            raise WrongAnswerError(f"{name}: get({key!r}) of a key that is not there")
    for found, expected in zip(scan, records.in_order, strict=True):
        if tuple(found) != expected:
            raise WrongAnswerError(f"{name}: scan has {found!r} for {expected!r}")


def _pages(view: View) -> Iterator[Record]:
    start: bytes | None = b""
    while start is not None:
        page, start = view.scan(SPACE, start, None, limit=PAGE)
        yield from page


# What a round asks for


def _any_of(keys: list[bytes], load: Load) -> Callable[[random.Random], list[bytes]]:
    return lambda chance: chance.choices(keys, k=load.queries)


def _everything(records: data.Data) -> Callable[[random.Random], list[bytes]]:
    keys = [key for key, _ in records.in_order]
    return lambda _: keys


def _starts(records: data.Data, load: Load) -> Callable[[random.Random], list[bytes]]:
    keys = [key for key, _ in records.in_order[:-RANGE]]
    return lambda chance: chance.choices(keys, k=-(-load.queries // RANGE))


# What a side does with it


def _get_time(view: View) -> Time:
    def time(keys: list[bytes]) -> float:
        get = view.get
        begin = thread_time_ns()
        for key in keys:
            get(SPACE, key)
        return (thread_time_ns() - begin) / len(keys)

    return time


def _lmdb_get_time(lmdb: Lmdb) -> Time:
    def time(keys: list[bytes]) -> float:
        get = lmdb.get
        begin = thread_time_ns()
        for key in keys:
            get(key)
        return (thread_time_ns() - begin) / len(keys)

    return time


def _scan_time(view: View) -> Time:
    def time(keys: list[bytes]) -> float:
        scan, start, seen = view.scan, b"", b""
        begin = thread_time_ns()
        while start is not None:
            page, start = scan(SPACE, start, None, limit=PAGE)
            for key, _value in page:
                seen = key
        took = thread_time_ns() - begin
        assert seen == keys[-1]
        return took / len(keys)

    return time


def _lmdb_scan_time(lmdb: Lmdb) -> Time:
    def time(keys: list[bytes]) -> float:
        seen = b""
        begin = thread_time_ns()
        for key, _value in lmdb.scan():
            seen = key
        took = thread_time_ns() - begin
        assert seen == keys[-1]
        return took / len(keys)

    return time


def _range_time(view: View) -> Time:
    def time(keys: list[bytes]) -> float:
        scan = view.scan
        found: list[Record] = []
        begin = thread_time_ns()
        for key in keys:
            found, _ = scan(SPACE, key, None, limit=RANGE)
        took = thread_time_ns() - begin
        assert found[0][0] == keys[-1]
        assert len(found) == RANGE
        return took / len(keys)

    return time


def _lmdb_range_time(lmdb: Lmdb) -> Time:
    def time(keys: list[bytes]) -> float:
        cursor = lmdb.cursor
        found: list[Record] = []
        begin = thread_time_ns()
        for key in keys:
            cursor.set_range(key)
            found = list(islice(cursor, RANGE))
        took = thread_time_ns() - begin
        assert found[0][0] == keys[-1]
        assert len(found) == RANGE
        return took / len(keys)

    return time
