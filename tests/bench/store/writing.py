"""The rows about writing: puts and batches that are synced when they return.

All sides are open at once in one process and write the same records to directories of one file system, in turn and in
another order each round; the first round does not count. Times are wall-clock times. Concurrent writers are tasks, each
with one put in flight, beside RocksDB's own benchmark. At the end every record is read on every side, and must be the
last one written.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

import trio

from gossipkv.storage.engine.options import EngineOptions
from tests.bench import data, goals, machine
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.store import ours, rocksdb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

    Work = Callable[[list[Record]], None]

BATCH = 100


def durable(
    bench: Bench,
    *,
    keys: int = 1_000_000,
    puts: int = 2_000,
    batches: int = 300,
    writers: int = 64,
    writer_puts: int = 50,
    rounds: int = 9,
) -> None:
    counts = {
        goals.STORE_PUT: puts, goals.STORE_PUT_BATCH: batches * BATCH, goals.STORE_PUT_WRITERS: writers * writer_puts
    }  # fmt: skip
    bench.notes.append(
        f"Durable writes: a round is {puts:,} puts, {batches} batches of {BATCH}, {writers} writers with "
        f"{writer_puts} puts each; {rounds} rounds; {OURS}: its defaults, through the Trio shell, one space"
    )
    trio.run(_durable, bench, keys, counts, writers, rounds)


async def _durable(bench: Bench, keys: int, counts: dict[Row, int], writers: int, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(ours.shell(bench.directory / "ours", EngineOptions()))
        sides = {OURS: _Side(store.get, _works_of_ours(store, writers))}
        if bench.takes_part(goals.ROCKSDB, rocksdb.missing()):
            rocks = rocksdb.RocksStore(bench.directory / "rocksdb", sync=True)
            stack.callback(rocks.close)
            bench.notes.append(rocksdb.SETTINGS)
            works = {
                goals.STORE_PUT: rocks.write_each,
                goals.STORE_PUT_BATCH: partial(_in_batches, rocks.write_batch),
            }
            sides[goals.ROCKSDB] = _Side(rocks.get, works)
        await trio.to_thread.run_sync(_compare, bench, keys, counts, sides, rounds)
        if bench.takes_part(goals.ROCKSDB_THREADS, rocksdb.bench_missing()):
            puts = counts[goals.STORE_PUT_WRITERS] // writers
            for number in range(rounds):
                took_us = rocksdb.many_writers_us(bench.directory / f"{number}", writers, puts)
                bench.add(goals.STORE_PUT_WRITERS, took_us, goals.ROCKSDB_THREADS)


def _compare(bench: Bench, keys: int, counts: dict[Row, int], sides: dict[str, _Side], rounds: int) -> None:
    """Run each row's rounds, then check that every side holds the last writes."""
    asked = [key for key, _ in data.make(keys).records]
    with machine.uncollected():
        for row, count in counts.items():
            works = {name: side.work(row, asked, count) for name, side in sides.items() if row in side.works}
            bench.compare(row, works, rounds)
    for name, side in sides.items():
        for key, value in side.expected.items():
            if side.get(key) != value:
                raise WrongAnswerError(f"{name}: get({key!r}) is not what was written last")


class _Side:
    """A store, its work for each row, and its expected content."""

    def __init__(self, get: Callable[[bytes], bytes | None], works: dict[Row, Work]) -> None:
        self.get, self.works = get, works
        self.expected: dict[bytes, bytes] = {}

    def work(self, row: Row, keys: list[bytes], count: int) -> Callable[[], float]:
        """Return a function for the microseconds of a put; all sides draw the same records, new in each round."""
        chance = random.Random(f"{data.SEED} {row}")

        def run() -> float:
            records = _fresh(keys, count, chance)
            begin_ns = perf_counter_ns()
            self.works[row](records)
            taken_ns = perf_counter_ns() - begin_ns
            self.expected.update(records)
            return taken_ns / 1e3 / len(records)

        return run


def _works_of_ours(store: ours.Shell, writers: int) -> dict[Row, Work]:
    async def in_batches(records: list[Record]) -> None:
        for first in range(0, len(records), BATCH):
            await store.write_batch(records[first : first + BATCH])

    return {
        goals.STORE_PUT: partial(trio.from_thread.run, store.write_each),
        goals.STORE_PUT_BATCH: partial(trio.from_thread.run, in_batches),
        goals.STORE_PUT_WRITERS: _in_tasks(store.write_each, writers),
    }


def _in_tasks(write_each: Callable[[list[Record]], Awaitable[None]], writers: int) -> Work:
    async def in_tasks(records: list[Record]) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(writers):
                nursery.start_soon(write_each, records[number::writers])

    return partial(trio.from_thread.run, in_tasks)


def _in_batches(write: Work, records: list[Record]) -> None:
    for first in range(0, len(records), BATCH):
        write(records[first : first + BATCH])


def _fresh(keys: list[bytes], count: int, chance: random.Random) -> list[Record]:
    """Return different keys at random, with values unique to the round."""
    stamp = b"%016x" % chance.getrandbits(64)
    rest = data.SMALL_VALUE_BYTES - len(stamp)
    return [(key, stamp + data.value_of(key, rest)) for key in chance.sample(keys, min(count, len(keys)))]
