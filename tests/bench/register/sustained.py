"""The rows about a stream: thousands of transactions one after another on one table, and etcd asked for as many.

What a burst hides is here: what a node learns of its own commits, what it lets go of, and what it tells the others.
Each transaction must be done; after the last of a round it is measured when every node shows it.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.processes import cpu_ns
from tests.bench.register import etcd
from tests.bench.register.transactions import SERVERS, Map

if TYPE_CHECKING:
    from tests.bench.measurement import Bench, Row

PARTITIONS = 64


def measure(bench: Bench, *, transactions: int = 2_000, rounds: int = 5) -> None:
    """All rows: so many transactions a round."""
    with ExitStack() as stack:
        servers = stack.enter_context(nodes.deciding(bench.directory / "nodes", SERVERS, SERVERS))
        table = Map(servers, PARTITIONS, random.Random(data.SEED))
        sides = {OURS: partial(_ours, servers, table, transactions)}
        if bench.takes_part(goals.ETCD, etcd.missing()):
            peer = stack.enter_context(etcd.running(bench.directory / "etcd"))
            sides[goals.ETCD] = partial(_theirs, peer, transactions)
            bench.notes.append(etcd.settings())
        stack.enter_context(machine.uncollected())
        bench.compare(goals.SUSTAINED_P50, sides, rounds)
        table.check()
    bench.notes.append(
        f"a stream: three servers of a table of {PARTITIONS} partitions, one asked; {transactions:,} transactions one "
        f"after another a round, {rounds} rounds and one before them; all {table.count:,} were done. The processor "
        "time is that of all three servers, with all that they do beside it"
    )


def _ours(servers: nodes.Nodes, table: Map, count: int) -> dict[Row, float]:
    processes = nodes.processes(servers.cluster)
    used_ns = sum(map(cpu_ns, processes))
    took_ms, _ = table.one_by_one(count)
    used_ns = sum(map(cpu_ns, processes)) - used_ns
    return {
        goals.SUSTAINED_P50: took_ms,
        goals.SUSTAINED_CPU: used_ns / 1e3 / count,
        goals.SUSTAINED_SHOWN: table.shown_s(servers.numbers),
    }


def _theirs(peer: etcd.Etcd, count: int) -> dict[Row, float]:
    used_ns, took_s = sum(map(cpu_ns, peer.processes)), []
    for _ in range(count):
        begin_s = perf_counter()
        peer.swap(b"one", bytes(etcd.VALUE_BYTES))
        took_s.append(perf_counter() - begin_s)
    used_ns = sum(map(cpu_ns, peer.processes)) - used_ns
    return {goals.SUSTAINED_P50: 1000 * median(took_s), goals.SUSTAINED_CPU: used_ns / 1e3 / count}
