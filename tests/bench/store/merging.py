"""The rows about reading and writing while a merge runs beside, in a child, against the same at rest.

The store is open under Trio, as in a node.  Records are overwritten at random until a merge of everything begins, by
the store's own rules; from then until it is done, one task writes a durable put, asks for twenty records, one after
the other, and begins again.  Each call is timed, and each value compared after its clock has stopped.  The same was
done before, with nothing to be merged.  Nothing is pinned: where the child runs is up to the system.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, final

import trio

from gossipkv.errors import Overloaded
from gossipkv.storage.engine.options import Options
from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.serving import percentile
from tests.bench.store import ours
from tests.bench.store.overwriting import key_of
from tests.bench.verification import WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.data import Record

MIB = 1 << 20
VALUE_BYTES = 1008
RECORD_BYTES = 16 + VALUE_BYTES
GETS = 20  # After each put.
BATCH = 100
POLL_S = 0.01
TURNS = 50  # Between two looks at whether it is over.


@dataclass(frozen=True)
class Load:
    """How much is merged, how long it is looked at before, and how often."""

    merged_bytes: int = 1024 * MIB
    segment_bytes: int = 64 * MIB
    rest_s: float = 5.0
    rounds: int = 3


class Samples(NamedTuple):
    """Nanoseconds of each call."""

    gets: list[int]
    puts: list[int]


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Both percentiles."""
    yield from trio.run(_measure, directory, load, notes)


async def _measure(directory: Path, load: Load, notes: list[str]) -> list[Measurement]:
    gets: dict[str, list[float]] = {ours.NAME: [], goals.AT_REST: []}
    puts: dict[str, list[float]] = {ours.NAME: [], goals.AT_REST: []}
    told = []
    async with ours.shell(directory / "store", Options(segment_bytes=load.segment_bytes)) as store:
        machine.say("    filling")
        asking = Asking(store, load.merged_bytes * 2 // 3 // RECORD_BYTES)  # Half of it again is merged into it.
        await asking.fill()
        with machine.uncollected():
            for _ in range(load.rounds):
                await store.idle()
                machine.say("    at rest")
                rest = await asking.ask(_for(load.rest_s))
                merged_bytes = await asking.overwrite_until_merged(load.merged_bytes * 9 // 10)
                machine.say("    merging")
                began = perf_counter()
                merging = await asking.ask(lambda: store.merged_bytes() > 0)
                told.append(f"{merged_bytes / MIB:,.0f} MiB in {perf_counter() - began:.1f} s")
                for name, samples in ((ours.NAME, merging), (goals.AT_REST, rest)):
                    gets[name].append(percentile(samples.gets, 0.99))
                    puts[name].append(percentile(samples.puts, 0.99))
    notes.append(f"Merges: {', '.join(told)}, with one writer and one reader beside")
    return [
        Measurement(goals.STORE_MERGING_GET, "us", ours.NAME, gets),
        Measurement(goals.STORE_MERGING_PUT, "us", ours.NAME, puts),
    ]


def _for(seconds: float) -> Callable[[], bool]:
    end = perf_counter() + seconds
    return lambda: perf_counter() < end


@final
class Asking:
    """Writes and reads of so many records, of which it is known which put was the last of each."""

    def __init__(self, store: ours.Shell, keys: int) -> None:
        self._store = store
        self._last = [0] * keys
        self._puts = 0
        self._chance = random.Random(data.SEED)
        self._noise = random.Random(0).randbytes(MIB)

    def _value(self, put: int) -> bytes:
        at = put * 7919 % (MIB - VALUE_BYTES)
        return put.to_bytes(8, "little") + self._noise[at : at + VALUE_BYTES - 8]

    def _next(self, number: int) -> Record:
        self._puts += 1
        self._last[number] = self._puts
        return key_of(number), self._value(self._puts)

    async def _write(self, numbers: list[int]) -> None:
        """A batch, as soon as there is room for it."""
        records = [self._next(number) for number in numbers]
        while True:
            try:
                return await self._store.write_batch(records)
            except Overloaded:
                await trio.sleep(POLL_S)

    async def fill(self) -> None:
        """Every record once."""
        keys = len(self._last)
        for first in range(0, keys, BATCH):
            await self._write([*range(first, min(keys, first + BATCH))])

    async def overwrite_until_merged(self, least_bytes: int) -> int:
        """Write until a merge of so much at least has begun; how much it has to read."""
        while self._store.merged_bytes() < least_bytes:
            await self._write(self._chance.sample(range(len(self._last)), BATCH))
        return self._store.merged_bytes()

    async def ask(self, goes_on: Callable[[], bool]) -> Samples:
        """Put, get, and so on."""
        samples = Samples([], [])
        store, chance, last = self._store, self._chance, self._last
        while goes_on():
            for _ in range(TURNS):
                records = [self._next(chance.randrange(len(last)))]
                begin = perf_counter_ns()
                await store.write_batch(records)
                samples.puts.append(perf_counter_ns() - begin)
                for _ in range(GETS):
                    number = chance.randrange(len(last))
                    key = key_of(number)
                    begin = perf_counter_ns()
                    value = store.get(key)
                    samples.gets.append(perf_counter_ns() - begin)
                    if value != self._value(last[number]):
                        raise WrongAnswerError(f"get({key!r}) is not what was put last")
        return samples
