"""The rows about a node that was away: its catch-up time, and the effect on reads at other nodes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from statistics import quantiles
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import wait_for
from tests.bench.tables import writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.cluster.nodes import Nodes
    from tests.bench.data import Record
    from tests.bench.measurement import Bench

NUMBER = 3  # The node that is away.
# The records that are missed; each is a separate batch among thousands of partitions.
RECORDS = {16: 3_000_000, 4_096: 300_000}
BATCH = 1_000
WRITERS = 4
LOOK_S = 0.2
LOG = "8GiB"  # A `table_log` that holds all missed records, so the node is fed from the log and not bulk-loaded.
SAMPLED = 2_000
MICROSECONDS = 1e6


def measure(bench: Bench, *, most: int = 3_000_000, before_s: float = 5.0) -> None:
    """Measure once for each number of partitions: filling takes longer than the measurement."""
    for partitions, row in goals.CATCH_UP.items():
        records = min(most, RECORDS[partitions])
        machine.say(f"  {row}")
        with writing.tables(bench.directory / f"of-{partitions}", partitions, table_log=LOG) as asked:
            asked.cluster.stop(NUMBER)
            asked.forget(NUMBER)
            _fill(asked, records)
            gets = _gets(asked, random.Random(data.SEED), records)
            bench.add(goals.CATCH_UP_GETS[partitions], _p99_us(gets, _sleepless(before_s)), goals.BEFORE)
            asked.cluster.start(NUMBER)
            begin_s = perf_counter()
            bench.add(goals.CATCH_UP_GETS[partitions], _p99_us(gets, _lacks(asked)))
            bench.add(row, (perf_counter() - begin_s) * MICROSECONDS / records)
            _check(asked, records)
    missed = " and ".join(f"{min(most, records):,}" for records in RECORDS.values())
    bench.notes.append(
        f"Catch-up: {missed} records of 16 + 100 B (3,000,000 take too long to put among 4,096 partitions), in "
        f"batches of {BATCH:,} while one of three nodes was stopped; from its ready line until the others know that it "
        f"lacks nothing, looked at every {LOOK_S:g} s; the log of the others has all of it (`table_log`); gets by one "
        f"blocking client at another node before and meanwhile, every value checked, and {SAMPLED:,} at the node "
        "itself in the end"
    )


def _record(number: int) -> Record:
    key = data.key_of(number)
    return key, data.value_of(key)


def _fill(asked: Nodes, records: int) -> None:
    def fill(writer: int) -> None:
        with closing(asked.cluster.connect(1 + writer % 2, timeout_ms=60_000)) as client:
            table = client.table(writing.TABLE)
            for first in range(writer * BATCH, records, WRITERS * BATCH):
                table.put_many([*map(_record, range(first, min(first + BATCH, records)))])

    with ThreadPoolExecutor(WRITERS) as threads:
        for _ in threads.map(fill, range(WRITERS)):
            pass
    wait_for(lambda: not _lag(asked, 1, "n2") + _lag(asked, 2, "n1"), "the two that stayed are level")


def _lag(asked: Nodes, number: int, node: str) -> int:
    told = asked.call(number, "info")
    assert isinstance(told, dict)
    lag = told["tables"]["lag_records"][writing.TABLE].get(node, 1)  # Unknown without a connection to that node.
    assert isinstance(lag, int)
    return lag


def _gets(asked: Nodes, chance: random.Random, records: int) -> Callable[[], float]:
    """Return a function that gets a record, and returns the microseconds of the get."""

    def get() -> float:
        key, value = _record(chance.randrange(records))
        begin_s = perf_counter()
        found = asked.call(1, "get", writing.TABLE, key)
        took_us = (perf_counter() - begin_s) * MICROSECONDS
        if not isinstance(found, list) or found[0] != value:
            raise WrongAnswerError(f"{key!r} was answered with {found!r}")
        return took_us

    return get


def _p99_us(get: Callable[[], float], goes_on: Iterator[None]) -> float:
    took = [get() for _ in goes_on]
    return quantiles(took, n=100)[98]


def _sleepless(seconds: float) -> Iterator[None]:
    end_s = perf_counter() + seconds
    while perf_counter() < end_s:
        yield


def _lacks(asked: Nodes) -> Iterator[None]:
    """Yield as long as the other nodes know of records that the node lacks."""
    while True:
        yield from _sleepless(LOOK_S)
        if not any(_lag(asked, other, f"n{NUMBER}") for other in (1, 2)):
            return


def _check(asked: Nodes, records: int) -> None:
    sleep(LOOK_S)
    for number in random.Random(data.SEED).sample(range(records), min(records, SAMPLED)):
        key, value = _record(number)
        found = asked.call(NUMBER, "get", writing.TABLE, key, {"local": True})
        if not isinstance(found, list) or found[0] != value:
            raise WrongAnswerError(f"{key!r} was answered with {found!r} by the node that was away")
