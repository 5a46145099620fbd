"""The rows about sorted files: GossipKV and the peers that this machine has."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.bench import building, data, goals, machine, reading, verification
from tests.bench.measurement import OURS
from tests.bench.peers.lmdb import Lmdb
from tests.bench.peers.ours import GossipKV, GossipKVCompressed
from tests.bench.peers.python_dict import PythonDict
from tests.bench.peers.rocksdb import RocksDB, RocksDBCompressed
from tests.bench.peers.tinycdb import TinyCDB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Data
    from tests.bench.measurement import Bench
    from tests.bench.peers.base import Engine

# GossipKV comes first everywhere.
READ_SMALL = (GossipKV, Lmdb, TinyCDB, PythonDict, RocksDB)
READ_LARGE = (GossipKV, Lmdb, TinyCDB, RocksDB)
READ_COMPRESSED = (GossipKVCompressed, Lmdb, RocksDBCompressed)
BUILD = (GossipKV, RocksDB, Lmdb, TinyCDB)
LARGE_BUILD_ROUNDS = 3  # Each engine writes a gigabyte a round.


def present(bench: Bench, kinds: tuple[type[Engine], ...]) -> list[type[Engine]]:
    """Return the requested engines that can run here; note each setup or missing package."""
    wanted = [kind for kind in kinds if bench.peers is None or kind.name in bench.peers or kind.name.startswith(OURS)]
    found = [kind for kind in wanted if bench.takes_part(kind.name, kind.missing())]
    bench.notes += [f"{kind.name}: {kind.settings}" for kind in found]
    return found


@contextmanager
def opened(bench: Bench, kinds: tuple[type[Engine], ...], records: Data) -> Iterator[list[Engine]]:
    """Fill, open and verify every engine, all at once in this process."""
    place = bench.directory / "opened"
    place.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place)
        ready = []
        for number, kind in enumerate(present(bench, kinds)):
            machine.say(f"  filling and checking {kind.name}")
            path = place / f"{number}.gkv"
            kind.build(path, records.records)
            ready.append(kind.open(path, records.records))
            stack.callback(ready[-1].close)
        for engine in ready:
            verification.check(engine, records)
        yield ready


def _method(keys: int, rounds: int, queries: int) -> str:
    return (
        f"{keys:,} keys of 16 bytes in random order (seed {data.SEED}), one pinned core; {rounds} rounds of "
        f"{queries:,} queries, all engines of a group open and interleaved in random order, the first round discarded; "
        "medians of each round's ratio; every engine read and checked in full before"
    )


def small(
    bench: Bench,
    *,
    keys: int = 1_000_000,
    rounds: int = 15,
    queries: int = reading.QUERIES,
    build_rounds: int = building.ROUNDS,
) -> None:
    bench.notes.append(_method(keys, rounds, queries))
    records = data.make(keys)
    with machine.pinned(bench.core), machine.uncollected():
        for kinds, readings in ((READ_SMALL, reading.SMALL), (READ_COMPRESSED, reading.COMPRESSED)):
            with opened(bench, kinds, records) as ready:
                reading.compare(bench, readings, ready, records, rounds=rounds, queries=queries)
        builders = present(bench, BUILD)
        building.compare_time(bench, goals.BUILD_SMALL, builders, records, build_rounds)
        building.compare_size(bench, builders, records)


def large(
    bench: Bench,
    *,
    keys: int = 1_000_000,
    rounds: int = 15,
    queries: int = reading.QUERIES,
    build_rounds: int = LARGE_BUILD_ROUNDS,
) -> None:
    records = data.make(keys, data.LARGE_VALUE_BYTES)
    with machine.pinned(bench.core), machine.uncollected():
        with opened(bench, READ_LARGE, records) as ready:
            reading.compare(bench, reading.LARGE, ready, records, rounds=rounds, queries=queries)
        building.compare_time(bench, goals.BUILD_LARGE, present(bench, BUILD), records, build_rounds)
