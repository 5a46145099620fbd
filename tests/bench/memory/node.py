"""The rows over the wire: a node with a third of the memory that its records take, asked by the load generator."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import median
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.memory import cgroup, disk
from tests.bench.memory.library import MIN_BYTES, RATIO
from tests.bench.memory.reader import MICROSECOND_NS, pages_read
from tests.bench.network import rows
from tests.bench.processes import DATABASE, MANY_CONNECTIONS, anonymous_bytes, serve, serving, wait_for_records
from tests.bench.sources import write_database
from tests.load import Load, RpcDialect, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.loadtest._loadtest import Dialect
    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server
    from tests.load import Outcome

TIMEOUT_S = 60.0  # The timeout of an answer: the machine may be busy, and a disk may be slow.
DEPTH = 16
HOT_KEYS = 64
SETTLE_S = 0.5


def _ask(
    server: Server, dialect: Dialect, seconds: float, seed: int, *, connections: int, rate: float | None = None
) -> Outcome:
    """Ask for random keys, one in flight per connection. Raises WrongAnswerError if an answer is wrong."""
    load = Load(connections=connections, rate=rate, timeout_s=TIMEOUT_S, seed=seed)
    with Traffic(server.address, dialect, load) as traffic:
        outcome = traffic.run(duration_s=seconds)
    return rows.checked(replace(outcome, unsent=0), server.name)  # An open loop may fall behind a slow disk.


@contextmanager
def _serving(directory: Path, made: list[Record]) -> Iterator[tuple[Server, int]]:
    """Run a node that has built these records in unlimited memory, and now has a third of their size."""
    write_database(directory / "source", DATABASE, made)
    command = serve(directory / "data", *MANY_CONNECTIONS, source=directory / "source")
    with serving(command) as builder:
        wait_for_records(builder.address, [(DATABASE, made[0])])
        own_bytes = anonymous_bytes(builder.pid)
    raw_bytes = sum(path.stat().st_size for path in directory.glob("data/**/*.gkv"))
    memory_bytes = max(raw_bytes // RATIO, MIN_BYTES)
    machine.forget(directory)
    with cgroup.made("node") as group:
        group.limit(memory_bytes + own_bytes)
        with serving(group.command(*command), dialect=RpcDialect(DATABASE, made)) as node:
            wait_for_records(node.address, [(DATABASE, made[0])])
            yield node, memory_bytes


def measure(
    bench: Bench,
    *,
    records: int = 3_000_000,
    connections: int = 64,
    cold_rate: int = 10_000,
    warm_s: float = 8.0,
    turn_s: float = 2.0,
    rounds: int = 5,
) -> None:
    """Measure gets of any key beside the yardstick, then gets of a hot key beside cold ones."""
    made = data.mixed(records)
    with _serving(bench.directory / "plain", made) as (server, memory_bytes):
        assert server.dialect is not None
        file = max(bench.directory.glob("plain/data/**/*.gkv"), key=lambda path: path.stat().st_size)
        machine.say(f"  {goals.LARGER_NODE}")
        _ask(server, server.dialect, warm_s, 0, connections=connections)
        for number in range(1, rounds + 1):
            before_pages = pages_read(server.pid)
            outcome = _ask(server, server.dialect, turn_s, number, connections=connections)
            bench.add(goals.LARGER_NODE, outcome.duration_s * rows.MICROSECONDS / outcome.requests)
            bench.add(goals.LARGER_NODE_PAGES, (pages_read(server.pid) - before_pages) / outcome.requests)
            bench.add(goals.LARGER_NODE, disk.read(file, DEPTH, turn_s, number).wall_us, goals.DISK_16)
        _strain(bench, server, made, others=connections - 1, rate=cold_rate, turn_s=turn_s, rounds=rounds)
    bench.notes.append(
        f"{goals.LARGER_NODE}: {records:,} records of {data.RECORD_BYTES} bytes; beyond what a node takes "
        f"at its start it has {memory_bytes >> 20:,} MiB"
    )


def _strain(
    bench: Bench, server: Server, made: list[Record], *, others: int, rate: int, turn_s: float, rounds: int
) -> None:
    """Measure a hot key beside gets that wait for the disk, and beside gets that do not."""
    hot, key = RpcDialect(DATABASE, made[:HOT_KEYS]), RpcDialect(DATABASE, made[:1])
    rates: list[float] = []
    seeds = count()

    def beside(around: Dialect) -> float:
        """Return the p99 of one connection that asks for the key, while all others ask `around`."""
        seed, found = next(seeds), []
        seconds = turn_s + 2 * SETTLE_S
        thread = Thread(target=lambda: found.append(_ask(server, around, seconds, seed, connections=others, rate=rate)))
        thread.start()
        try:
            sleep(SETTLE_S)
            p99_us = _ask(server, key, turn_s, seed, connections=1).latency.quantile(0.99) / MICROSECOND_NS
        finally:
            thread.join()
        if not found:
            raise WrongAnswerError("a request of the others failed")
        if around is server.dialect:
            rates.append(found[0].rate)
        return p99_us

    assert server.dialect is not None
    sides = {OURS: partial(beside, server.dialect), goals.HOT_BESIDE: partial(beside, hot)}
    bench.compare(goals.LARGER_HOT, sides, rounds, warm=0)
    bench.notes.append(f"{goals.LARGER_HOT}: {median(rates):,.0f} cold gets a second were answered meanwhile")
