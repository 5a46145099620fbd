"""The rows about writing: puts and batches that are on the disk when they return.

All sides are open at once in one process and write the same records to directories of one file system, in turn and in
another order each round; the first round does not count.  The clock is the wall's.  Many writers are tasks on our side
and threads on RocksDB's, each with one put in flight.  At the end every record is asked for on every side, and must be
the last that was written.
"""

from __future__ import annotations

import random
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

import trio

from gossipkv.storage.engine.options import Options
from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.store import ours, rocksdb
from tests.bench.verification import WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

    Work = Callable[[list[Record]], Awaitable[None]]
    Sides = dict[str, Work]

BATCH = 100


@dataclass(frozen=True)
class Load:
    """How much is written in a round, and how often."""

    keys: int = 1_000_000
    puts: int = 2_000
    batches: int = 300
    writers: int = 64
    writer_puts: int = 50
    rounds: int = 9


@dataclass(frozen=True)
class Row:
    """What the sides do in a round, and with how many records."""

    name: str
    records: int
    sides: Sides


def durable(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What is synced before it is acknowledged."""
    yield from trio.run(_durable, directory, load, notes)


async def _durable(directory: Path, load: Load, notes: list[str]) -> list[Measurement]:
    writers = load.writers
    each: Sides = {}
    batches: Sides = {}
    many: Sides = {}
    readers = {}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(ours.shell(directory / "ours", Options()))
        each[ours.NAME] = store.write_each
        batches[ours.NAME] = _in_batches_of_ours(store)
        many[ours.NAME] = lambda records: _in_tasks(store, records, writers)
        readers[ours.NAME] = store.get
        if _takes_part(rocksdb.NAME, rocksdb.missing(), notes):
            rocks = rocksdb.RocksStore(directory / "rocksdb", sync=True)
            stack.callback(rocks.close)
            each[rocksdb.NAME] = _blocking(rocks.write_each)
            batches[rocksdb.NAME] = _blocking(lambda records: _in_batches(rocks.write_batch, records))
            many[rocksdb.NAME] = _blocking(lambda records: _in_threads(rocks.write_each, records, writers))
            readers[rocksdb.NAME] = rocks.get
            notes.append(rocksdb.SETTINGS)
        if _takes_part(rocksdb.THREADS, rocksdb.RocksThreads.missing(), notes):
            threads = rocksdb.RocksThreads(directory / "threads")
            stack.callback(threads.close)
            many[rocksdb.THREADS] = _blocking(lambda records: _in_threads(threads.write_each, records, writers))
            readers[rocksdb.THREADS] = threads.get
            notes.append(f"{rocksdb.THREADS}: {rocksdb.THREADS_SETTINGS}")
        rows = [
            Row(goals.STORE_PUT, load.puts, each),
            Row(goals.STORE_PUT_BATCH, load.batches * BATCH, batches),
            Row(goals.STORE_PUT_WRITERS, writers * load.writer_puts, many),
        ]
        notes.append(
            f"Durable writes: a round is {load.puts:,} puts, {load.batches} batches of {BATCH}, {writers} writers with "
            f"{load.writer_puts} puts each; {load.rounds} rounds; {ours.SETTINGS}"
        )
        return await _measured(rows, readers, load)


def _takes_part(name: str, missing: str | None, notes: list[str]) -> bool:
    if missing is not None:
        notes.append(f"{name} takes no part; it needs: {missing}")
    return missing is None


def _blocking(work: Callable[[list[Record]], None]) -> Work:
    async def run(records: list[Record]) -> None:
        work(records)

    return run


def _in_batches(write: Callable[[list[Record]], None], records: list[Record]) -> None:
    for first in range(0, len(records), BATCH):
        write(records[first : first + BATCH])


def _in_batches_of_ours(store: ours.Shell) -> Work:
    async def run(records: list[Record]) -> None:
        for first in range(0, len(records), BATCH):
            await store.write_batch(records[first : first + BATCH])

    return run


async def _in_tasks(store: ours.Shell, records: list[Record], writers: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(writers):
            nursery.start_soon(store.write_each, records[number::writers])


def _in_threads(write_each: Callable[[list[Record]], None], records: list[Record], writers: int) -> None:
    threads = [threading.Thread(target=write_each, args=(records[number::writers],)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _measured(
    rows: list[Row], readers: dict[str, Callable[[bytes], bytes | None]], load: Load
) -> list[Measurement]:
    """Each row's rounds, then whether every side holds what was written last."""
    keys = [key for key, _ in data.make(load.keys, data.SMALL_VALUE_BYTES).records]
    chance = random.Random(data.SEED)
    expected: dict[str, dict[bytes, bytes]] = {name: {} for name in readers}
    found = []
    with machine.uncollected():
        for row in rows:
            machine.say(f"  {row.name}")
            samples: dict[str, list[float]] = {name: [] for name in row.sides}
            for number in range(load.rounds + 1):
                records = _fresh(keys, row.records, chance)
                for name in chance.sample([*row.sides], len(row.sides)):
                    begin = perf_counter_ns()
                    await row.sides[name](records)
                    took = (perf_counter_ns() - begin) / 1e3 / len(records)
                    expected[name].update(records)
                    if number > 0:
                        samples[name].append(took)
            found.append(Measurement(row.name, "us", ours.NAME, samples))
    for name, get in readers.items():
        for key, value in expected[name].items():
            if get(key) != value:
                raise WrongAnswerError(f"{name}: get({key!r}) is not what was written last")
    return found


def _fresh(keys: list[bytes], count: int, chance: random.Random) -> list[Record]:
    """Different keys at random, with values that no other round has."""
    stamp = b"%016x" % chance.getrandbits(64)
    rest = data.SMALL_VALUE_BYTES - len(stamp)
    return [(key, stamp + (key * (rest // len(key) + 1))[:rest]) for key in chance.sample(keys, min(count, len(keys)))]
