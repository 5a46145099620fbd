"""The rows about reading and writing while a merge runs beside, in a child, against the same at rest.

The store is open under Trio, as in a node.  Records are overwritten at random until a merge of everything begins, by
the store's own rules; from then until it is done, one task writes a durable put, asks for twenty records, one after
the other, and begins again.  Each call is timed, and each value compared after its clock has stopped.  The same was
done before, with nothing to be merged.  Nothing is pinned: where the child runs is up to the system.
"""

from __future__ import annotations

import random
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, final

import trio

from gossipkv.storage.engine.options import Options
from tests.bench import data, goals, machine
from tests.bench.asking import percentile
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.store import ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.measurement import Bench

MIB = 1 << 20
VALUE_BYTES = 1008
RECORD_BYTES = data.KEY_BYTES + VALUE_BYTES
GETS = 20  # After each put.
BATCH = 100
TURNS = 50  # Between two looks at whether it is over.


class Samples(NamedTuple):
    """Nanoseconds of each call."""

    gets: list[int]
    puts: list[int]


def measure(
    bench: Bench,
    *,
    merged_bytes: int = 1024 * MIB,
    segment_bytes: int = 64 * MIB,
    rest_s: float = 5.0,
    rounds: int = 3,
) -> None:
    """Both percentiles."""
    trio.run(partial(_measure, bench, merged_bytes, Options(segment_bytes=segment_bytes), rest_s, rounds))


async def _measure(bench: Bench, merged_bytes: int, options: Options, rest_s: float, rounds: int) -> None:
    async with ours.shell(bench.directory / "store", options) as store:
        asking = Asking(store, merged_bytes * 2 // 3 // RECORD_BYTES)  # Half of it again is merged into it.
        await asking.fill()
        with machine.uncollected():
            for _ in range(rounds):
                await store.idle()
                end_s = perf_counter() + rest_s
                rest = await asking.ask(lambda end_s=end_s: perf_counter() < end_s)
                await asking.overwrite_until_merged(merged_bytes * 9 // 10)
                began_s, read_bytes = perf_counter(), store.merged_bytes()
                merging = await asking.ask(lambda: store.merged_bytes() > 0)
                took_s = perf_counter() - began_s
                bench.notes.append(
                    f"A merge of {read_bytes / MIB:,.0f} MiB took {took_s:.1f} s, one writer and one reader beside"
                )
                for name, samples in ((OURS, merging), (goals.AT_REST, rest)):
                    bench.add(goals.STORE_MERGING_GET, percentile(samples.gets, 0.99), name)
                    bench.add(goals.STORE_MERGING_PUT, percentile(samples.puts, 0.99), name)


@final
class Asking:
    """Writes and reads of so many records, of which it is known which put was the last of each."""

    def __init__(self, store: ours.Shell, keys: int) -> None:
        self._store = store
        self._last = [0] * keys
        self._puts = 0
        self._chance = random.Random(data.SEED)
        self._values = data.Noise(VALUE_BYTES)

    def _next(self, number: int) -> data.Record:
        self._puts += 1
        self._last[number] = self._puts
        return data.key_of(number), self._values.of(self._puts)

    async def fill(self) -> None:
        """Every record once."""
        keys = range(len(self._last))
        for first in keys[::BATCH]:
            await self._store.write_batch([self._next(number) for number in keys[first : first + BATCH]])

    async def overwrite_until_merged(self, least_bytes: int) -> None:
        """Write until a merge of so much at least has begun."""
        while self._store.merged_bytes() < least_bytes:
            numbers = self._chance.sample(range(len(self._last)), BATCH)
            await self._store.write_batch([self._next(number) for number in numbers])

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
                    key = data.key_of(number)
                    begin = perf_counter_ns()
                    value = store.get(key)
                    samples.gets.append(perf_counter_ns() - begin)
                    if value != self._values.of(last[number]):
                        raise WrongAnswerError(f"get({key!r}) is not what was put last")
        return samples
