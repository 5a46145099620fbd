"""The rows about reading: every engine is open in one process, interleaved.

In each round the engines come in a new random order and get the same keys, as new objects. With a handful of engines
evicting each other from the processor's caches, a round of `QUERIES` is the cold case: the cost of a request in a busy
process, not of a loop over a hot file. (Ten times as many of few engines are the steady case.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.data import SEED, fresh
from tests.bench.measurement import WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.data import Data
    from tests.bench.measurement import Bench, Row
    from tests.bench.peers.base import Engine

QUERIES = 20_000
BATCH = 100
RANGE = 10


def _checked(engine: Engine, taken_ns: int, count: int, right: bool) -> float:  # `right` refers to the last answer.
    if not right:
        raise WrongAnswerError(f"{engine.name}: a wrong answer amid a round")
    return taken_ns / count


def hits(engine: Engine, keys: list[bytes]) -> float:
    """Time single gets of present keys."""
    taken_ns, value = engine.time_gets(keys)
    return _checked(engine, taken_ns, len(keys), value is not None)


def misses(engine: Engine, keys: list[bytes]) -> float:
    """Time single gets of absent keys."""
    taken_ns, value = engine.time_gets(keys)
    return _checked(engine, taken_ns, len(keys), value is None)


def batches(engine: Engine, keys: list[bytes]) -> float:
    """Time batches of a hundred keys; the figure is per key."""
    asked = [keys[begin : begin + BATCH] for begin in range(0, len(keys), BATCH)]
    taken_ns, values = engine.time_batches(asked)
    return _checked(engine, taken_ns, len(keys), len(values) == len(asked[-1]))


def ranges(engine: Engine, keys: list[bytes]) -> float:
    """Time lists of the first ten records from a key on; the figure is per list."""
    taken_ns, records = engine.time_ranges(keys, RANGE)
    return _checked(engine, taken_ns, len(keys), len(records) == RANGE and records[0][0] == keys[-1])


def scan(engine: Engine, keys: list[bytes]) -> float:
    """Time a scan of all records as pairs; the keys only give the number and the last key."""
    taken_ns, key = engine.time_scan()
    return _checked(engine, taken_ns, len(keys), key == keys[-1])


def any_present(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    return [data.records[rng.randrange(data.count)][0] for _ in range(queries)]


def any_absent(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    return [data.absent[rng.randrange(data.count)] for _ in range(queries)]


def some_present(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    """Return starts of ranges that give `queries` records, none so near the end that it would be shorter."""
    last = data.count - RANGE
    return [data.in_order[rng.randrange(last)][0] for _ in range(-(-queries // RANGE))]


def neighbours(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    begin = rng.randrange(max(1, data.count - queries))
    return [key for key, _ in data.in_order[begin : begin + queries]]


def spread(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    return sorted(any_present(data, rng, queries))


def every(data: Data, rng: random.Random, queries: int) -> list[bytes]:
    del rng, queries
    return [key for key, _ in data.in_order]


@dataclass(frozen=True)
class Reading:
    """One row: the timed calls, and their keys."""

    row: Row
    time: Callable[[Engine, list[bytes]], float]
    keys: Callable[[Data, random.Random, int], list[bytes]]

    def side(self, engine: Engine, data: Data, queries: int) -> Callable[[], float]:
        """Return an engine's work of a round; all engines draw the same keys."""
        rng = random.Random(f"{SEED} {self.row}")
        return lambda: self.time(engine, fresh(self.keys(data, rng, queries)))


SMALL = (
    Reading(goals.GET_HIT_SMALL, hits, any_present),
    Reading(goals.GET_MISS_SMALL, misses, any_absent),
    Reading(goals.GET_MANY_SMALL, batches, any_present),
    Reading(goals.SCAN, scan, every),
    Reading(goals.RANGE, ranges, some_present),
    Reading(goals.GET_NEIGHBOURS, hits, neighbours),
    Reading(goals.GET_SORTED, hits, spread),
)
LARGE = (
    Reading(goals.GET_HIT_LARGE, hits, any_present),
    Reading(goals.GET_MANY_LARGE, batches, any_present),
)
COMPRESSED = (Reading(goals.GET_COMPRESSED, hits, any_present),)


def compare(
    bench: Bench, readings: Iterable[Reading], engines: list[Engine], data: Data, *, rounds: int, queries: int
) -> None:
    """Run `rounds` interleaved rounds of each row, by the engines for which it has a goal."""
    for reading in readings:
        sides = {each.name: reading.side(each, data, queries) for each in engines}
        bench.compare(reading.row, sides, rounds)
