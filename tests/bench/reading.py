"""The rows about reading: every engine open in one process, interleaved.

In each round the engines come in a new random order and each is asked the same keys, as new objects.  With a handful
of engines evicting each other from the processor's caches, a round of `QUERIES` is the cold case: what a request in a
busy process costs, not what a loop over a hot file costs.  (Ten times as many of few engines are the steady case.)

The clock is the thread's own processor time, since a read from memory waits for nothing else and other processes must
not count.  The loop is included (about 10 ns a call).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.chase import Chase
from tests.bench.data import SEED, fresh
from tests.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.data import Data
    from tests.bench.peers.base import Engine

QUERIES = 20_000
BATCH = 100
RANGE = 10


def time_hits(engine: Engine, keys: list[bytes]) -> float:
    """One get at a time, each of which finds something."""
    get = engine.get
    value = None
    begin = thread_time_ns()
    for key in keys:
        value = get(key)
    elapsed = thread_time_ns() - begin
    assert value is not None
    return elapsed / len(keys)


def time_misses(engine: Engine, keys: list[bytes]) -> float:
    """One get at a time, none of which finds anything."""
    get = engine.get
    value = None
    begin = thread_time_ns()
    for key in keys:
        value = get(key)
    elapsed = thread_time_ns() - begin
    assert value is None
    return elapsed / len(keys)


def time_batches(engine: Engine, keys: list[bytes]) -> float:
    """A hundred keys a call; the figure is per key."""
    get_many = engine.get_many
    batches = [keys[begin : begin + BATCH] for begin in range(0, len(keys), BATCH)]
    values: list[bytes | None] = []
    begin = thread_time_ns()
    for batch in batches:
        values = get_many(batch)
    elapsed = thread_time_ns() - begin
    assert len(values) == len(batches[-1])
    return elapsed / len(keys)


def time_ranges(engine: Engine, keys: list[bytes]) -> float:
    """A list of the first ten records from a key on; the figure is per list."""
    first = engine.first
    records = []
    begin = thread_time_ns()
    for key in keys:
        records = first(key, RANGE)
    elapsed = thread_time_ns() - begin
    assert records[0][0] == keys[-1]
    return elapsed / len(keys)


def time_scan(engine: Engine, keys: list[bytes]) -> float:
    """All records as pairs; the keys only say how many there are and which is the last."""
    key = None
    begin = thread_time_ns()
    for key, _value in engine.scan():  # noqa: B007  # The last key is checked below.
        pass
    elapsed = thread_time_ns() - begin
    assert key == keys[-1]
    return elapsed / len(keys)


def any_present(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """Random keys of the records."""
    return [data.records[rng.randrange(data.count)][0] for _ in range(queries)]


def any_absent(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """Random keys of no record."""
    return [data.absent[rng.randrange(data.count)] for _ in range(queries)]


def some_present(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """As many ranges as give `queries` records, none so near the end that it would be shorter."""
    last = data.count - RANGE
    return [data.in_order[rng.randrange(last)][0] for _ in range(-(-queries // RANGE))]


def neighbours(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """A run of keys with nothing between them."""
    begin = rng.randrange(max(1, data.count - queries))
    return [key for key, _ in data.in_order[begin : begin + queries]]


def spread(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """Random keys, asked in order."""
    return sorted(any_present(data, rng, queries))


def every(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """All keys, in order."""
    del rng, queries
    return [key for key, _ in data.in_order]


@dataclass(frozen=True)
class Reading:
    """One row: what is timed, over which keys, and what an engine needs to take part."""

    row: str
    time: Callable[[Engine, list[bytes]], float]
    keys: Callable[[Data, random.Random, int], list[bytes]]
    batched: bool = False
    ordered: bool = False
    beside_misses: bool = False  # What two misses of the processor's caches take is measured in the same rounds.

    def takes(self, engine: Engine) -> bool:
        """Whether this engine can do it at all."""
        return (engine.batched or not self.batched) and (engine.ordered or not self.ordered)


SMALL = (
    Reading(goals.GET_HIT_SMALL, time_hits, any_present, beside_misses=True),
    Reading(goals.GET_MISS_SMALL, time_misses, any_absent),
    Reading(goals.GET_MANY_SMALL, time_batches, any_present, batched=True),
    Reading(goals.SCAN, time_scan, every, ordered=True),
    Reading(goals.RANGE, time_ranges, some_present, ordered=True),
    Reading(goals.GET_NEIGHBOURS, time_hits, neighbours),
    Reading(goals.GET_SORTED, time_hits, spread),
)
LARGE = (
    Reading(goals.GET_HIT_LARGE, time_hits, any_present),
    Reading(goals.GET_MISS_LARGE, time_misses, any_absent),
    Reading(goals.GET_MANY_LARGE, time_batches, any_present, batched=True),
)
COMPRESSED = (Reading(goals.GET_COMPRESSED, time_hits, any_present),)


def measure(reading: Reading, engines: list[Engine], data: Data, *, rounds: int, queries: int) -> Measurement:
    """`rounds` interleaved rounds after one that does not count; the first engine is ours."""
    rng = random.Random(f"{SEED} {reading.row}")
    taking_part = [engine for engine in engines if reading.takes(engine)]
    samples: dict[str, list[float]] = {engine.name: [] for engine in taking_part}
    chase = Chase(data.raw_bytes, SEED) if reading.beside_misses else None
    for number in range(rounds + 1):
        keys = reading.keys(data, rng, queries)
        for engine in rng.sample(taking_part, len(taking_part)):
            figure = reading.time(engine, fresh(keys))
            if number > 0:
                samples[engine.name].append(figure)
        if chase is not None and number > 0:
            samples.setdefault(goals.TWO_MISSES, []).append(chase.time(len(keys)))
    return Measurement(reading.row, "ns", engines[0].name, samples)
