"""The row about a client that uses a table's map, beside clients that are told all owners or know one node."""

from __future__ import annotations

import random
from functools import partial
from time import process_time_ns
from typing import TYPE_CHECKING

import trio

import gossipkv
from gossipkv.client.owners import owners_of
from gossipkv.client.reads import map_of
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.processes import cpu_ns, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.client.table import Table
    from gossipkv.launcher import Cluster
    from tests.bench.data import Record
    from tests.bench.measurement import Bench

NODES = 3
TABLE = "t"
OPTIONS = {"kind": "hash", "partitions": 64, "replication": 1}  # So two thirds of the keys are elsewhere.
TASKS = 64
TIMEOUT_MS = 20_000
MICROSECOND_NS = 1e3


def measure(bench: Bench, *, keys: int = 20_000, gets: int = 20_000, rounds: int = 9) -> None:
    """Measure the use of three nodes and the client together, since they share the cores."""
    records = [*data.numbered(keys)]
    with nodes.running(bench.directory / "by-map", NODES) as cluster:
        with gossipkv.blocking.connect(cluster.addresses, timeout_ms=TIMEOUT_MS) as client:
            wait_for(lambda: client.call("create_table", TABLE, OPTIONS), "a table")
            wait_for(lambda: client.table(TABLE).put_many(records) is None, "records")
        asked = random.Random(data.SEED).choices(records, k=gets)
        bench.compare(
            goals.BY_MAP,
            {
                OURS: lambda: trio.run(partial(_by_one_client, cluster, asked, by_map=True)),
                goals.ANY_NODE: lambda: trio.run(partial(_by_one_client, cluster, asked, by_map=False)),
                goals.TOLD_OWNERS: lambda: trio.run(_by_owners, cluster, asked),
            },
            rounds,
        )
    bench.notes.append(
        f"{goals.BY_MAP}: {keys:,} records of {data.RECORD_BYTES} B on {NODES} nodes, one copy of each; {TASKS} tasks, "
        "every value checked; processor time of the client and of all nodes together"
    )


async def _by_one_client(cluster: Cluster, asked: Sequence[Record], *, by_map: bool) -> float:
    async with gossipkv.connect(cluster.addresses[0], timeout_ms=TIMEOUT_MS) as client:
        table = client.table(TABLE, by_map=by_map)
        return await _figure(cluster, asked, lambda _: table)


async def _by_owners(cluster: Cluster, asked: Sequence[Record]) -> float:
    one, two, three = cluster.addresses
    async with gossipkv.connect(one) as first, gossipkv.connect(two) as second, gossipkv.connect(three) as third:
        owners = owners_of([map_of("partition_map", await first.call("partition_map", TABLE))])
        tables = {str(one): client.table(TABLE) for one, client in ((one, first), (two, second), (three, third))}
        whose = {key: tables[str(owners.of(key)[0])] for key, _ in asked}
        return await _figure(cluster, asked, whose.__getitem__)


async def _figure(cluster: Cluster, asked: Sequence[Record], table_of: Callable[[bytes], Table]) -> float:
    """Return the microseconds of processor time per get, of this process and of the nodes, over open connections."""

    async def read(records: Sequence[Record]) -> None:
        for key, value in records:
            if await table_of(key).get(key, timeout_ms=TIMEOUT_MS) != value:
                raise WrongAnswerError(f"{key!r} has another value")

    await read(asked[:TASKS])
    with machine.uncollected():
        before = process_time_ns() + sum(map(cpu_ns, nodes.processes(cluster)))
        async with trio.open_nursery() as nursery:
            for task in range(TASKS):
                nursery.start_soon(read, asked[task::TASKS])
        used_ns = process_time_ns() + sum(map(cpu_ns, nodes.processes(cluster))) - before
    return used_ns / len(asked) / MICROSECOND_NS
