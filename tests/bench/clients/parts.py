"""The rows about clients: a node and redis-server hold the same records, and each side's client reads them.

Servers on one core, this process with the client on the other; the sides in turn, the first round not counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.network import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.clients.contestants import Figure
    from tests.bench.data import Record

NEEDED = ("redis", "hiredis", "uvloop")
TASKS = 64


@dataclass(frozen=True)
class Load:
    """How much is asked in a round, and how often."""

    keys: int = 100_000
    gets: int = 20_000
    batches: int = 3_000
    concurrent_gets: int = 60_000
    rounds: int = 9


@dataclass(frozen=True)
class Row:
    """What ours and the peer's client do, which of their figures counts, and how many keys they ask for."""

    name: str
    ours: Callable[[list[Record]], Figure]
    peer: str
    theirs: Callable[[list[Record]], Figure]
    figure: Callable[[Figure], float]
    keys: int


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Each row."""
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        machine.say(f"  no rows about clients: {', '.join(missing)} not installed")
        return
    records = data.make(load.keys, data.SMALL_VALUE_BYTES).records
    cores = servers.Cores.of_this_machine()
    with (
        servers.node(directory / "node", records, cores) as node,
        servers.redis(records, cores) as redis,
        machine.pinned(cores.load),
        machine.uncollected(),
    ):
        if redis is None:
            return
        rng = random.Random(data.SEED)
        for row in _rows(node, redis, load):
            yield _measure(row, rng.choices(records, k=row.keys), load.rounds)
    notes.append(_setup())


def _rows(node: servers.Server, redis: servers.Server, load: Load) -> Iterator[Row]:
    from tests.bench.clients import contestants  # noqa: PLC0415  # The peers need not be installed.

    def wall(figure: Figure) -> float:
        return figure.wall_us

    def cpu(figure: Figure) -> float:
        return figure.cpu_us

    ours, theirs = node.address, redis.address
    yield Row(
        goals.CLIENT_GET,
        partial(contestants.blocking_get, ours),
        goals.REDIS_PY,
        partial(contestants.redis_get, theirs),
        wall,
        load.gets,
    )
    yield Row(
        goals.CLIENT_GET_MANY,
        partial(contestants.blocking_get_many, ours),
        goals.REDIS_PY,
        partial(contestants.redis_get_many, theirs),
        wall,
        load.batches * contestants.BATCH,
    )
    yield Row(
        goals.CLIENT_TASKS,
        partial(contestants.trio_tasks, ours, tasks=TASKS),
        goals.REDIS_ASYNCIO,
        partial(contestants.redis_tasks, theirs, tasks=TASKS),
        cpu,
        load.concurrent_gets,
    )
    yield Row(
        goals.CLIENT_TASK,
        partial(contestants.trio_tasks, ours, tasks=1),
        goals.REDIS_ASYNCIO,
        partial(contestants.redis_tasks, theirs, tasks=1),
        wall,
        load.gets,
    )


def _measure(row: Row, records: list[Record], rounds: int) -> Measurement:
    machine.say(f"  {row.name}")
    sides = {servers.NODE: row.ours, row.peer: row.theirs}
    figures: dict[str, list[Figure]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items() if number % 2 else reversed(sides.items()):
            figure = run(records)
            if number > 0:
                figures[name].append(figure)
    for name, found in figures.items():
        wall_us, cpu_us = median(each.wall_us for each in found), median(each.cpu_us for each in found)
        machine.say(f"    {name:22} {wall_us:8.2f} us, {cpu_us:8.2f} us of CPU")
    samples = {name: [row.figure(each) for each in found] for name, found in figures.items()}
    return Measurement(row.name, "us", servers.NODE, samples)


def _setup() -> str:
    from tests.bench.clients import contestants  # noqa: PLC0415  # As above.

    return (
        "clients: keys of 16 bytes, values of 100, asked at random, every value compared; the client's process on one "
        "core and the servers on the other; redis-py with hiredis, one connection; redis.asyncio on uvloop with "
        f"hiredis, one client with a pool of as many connections as tasks; {contestants.versions()}"
    )
