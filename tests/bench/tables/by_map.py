"""The rows about a client that uses a table's map, beside clients that are told all owners or know one node."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
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
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from gossipkv.client.table import Table
    from gossipkv.launcher import Cluster
    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

    TableOf = Callable[[bytes], Table]  # The table to ask for a key.
    Clients = Callable[[], AbstractAsyncContextManager[TableOf]]
    Do = Callable[[TableOf, Sequence[Record]], Awaitable[None]]

NODES = 3
TABLE = "t"
OPTIONS = {"kind": "hash", "partitions": 64, "replication": 1}  # So two thirds of the keys are elsewhere.
TASKS = 64
BATCH = 100
TIMEOUT_MS = 20_000
MICROSECOND_NS = 1e3


def measure(bench: Bench, *, keys: int = 20_000, gets: int = 20_000, puts: int = 5_000, rounds: int = 9) -> None:
    """Measure the use of three nodes and the client together, since they share the cores; and of the client alone."""
    records = [*data.numbered(keys)]
    with nodes.running(bench.directory / "by-map", NODES) as cluster:
        with gossipkv.blocking.connect(cluster.addresses, timeout_ms=TIMEOUT_MS) as client:
            wait_for(lambda: client.call("create_table", TABLE, OPTIONS), "a table")
            wait_for(lambda: client.table(TABLE).put_many(records) is None, "records")
        asked = random.Random(data.SEED).choices(records, k=gets)
        ours, told = partial(_one_client, cluster, by_map=True), partial(_by_owners, cluster, records)
        any_node = partial(_one_client, cluster, by_map=False)

        def client_us(clients: Clients, do: Do, count: int) -> float:
            return trio.run(_used_us, cluster, clients, do, asked[:count])[1]

        def both_us(clients: Clients) -> dict[Row, float]:
            rows = goals.BY_MAP, goals.BY_MAP_CLIENT
            return dict(zip(rows, trio.run(_used_us, cluster, clients, _get, asked), strict=True))

        sides = {OURS: lambda: both_us(ours), goals.TOLD_OWNERS: lambda: both_us(told)}
        sides[goals.ANY_NODE] = lambda: {goals.BY_MAP: both_us(any_node)[goals.BY_MAP]}
        bench.compare(goals.BY_MAP, sides, rounds)
        for row, do, count in ((goals.BY_MAP_MANY, _get_many, gets), (goals.BY_MAP_PUT, _put, puts)):
            works = {OURS: partial(client_us, ours, do, count), goals.TOLD_OWNERS: partial(client_us, told, do, count)}
            bench.compare(row, works, rounds)
    bench.notes.append(
        f"{goals.BY_MAP}: {keys:,} records of {data.RECORD_BYTES} B on {NODES} nodes, one copy of each; {TASKS} tasks, "
        "every value checked; get_many goes to the node in use, and that of a client that is told all owners to each "
        "of them, known before"
    )


@asynccontextmanager
async def _one_client(cluster: Cluster, *, by_map: bool) -> AsyncIterator[TableOf]:
    async with gossipkv.connect(cluster.addresses[0], timeout_ms=TIMEOUT_MS) as client:
        table = client.table(TABLE, by_map=by_map)
        yield lambda _: table


@asynccontextmanager
async def _by_owners(cluster: Cluster, records: Sequence[Record]) -> AsyncIterator[TableOf]:
    one, two, three = cluster.addresses
    async with gossipkv.connect(one) as first, gossipkv.connect(two) as second, gossipkv.connect(three) as third:
        owners = owners_of([map_of("partition_map", await first.call("partition_map", TABLE))])
        tables = {str(one): client.table(TABLE) for one, client in ((one, first), (two, second), (three, third))}
        yield {key: tables[str(owners.of(key)[0])] for key, _ in records}.__getitem__


async def _get(table_of: TableOf, records: Sequence[Record]) -> None:
    for key, value in records:
        if await table_of(key).get(key, timeout_ms=TIMEOUT_MS) != value:
            raise WrongAnswerError(f"{key!r} has another value")


async def _get_many(table_of: TableOf, records: Sequence[Record]) -> None:
    for begin in range(0, len(records), BATCH):
        of: dict[Table, list[Record]] = {}
        for record in records[begin : begin + BATCH]:
            of.setdefault(table_of(record[0]), []).append(record)
        for table, some in of.items():
            if await table.get_many([key for key, _ in some], timeout_ms=TIMEOUT_MS) != [value for _, value in some]:
                raise WrongAnswerError("get_many has another value")


async def _put(table_of: TableOf, records: Sequence[Record]) -> None:
    for key, value in records:
        await table_of(key).put(key, value, timeout_ms=TIMEOUT_MS)


async def _used_us(cluster: Cluster, clients: Clients, do: Do, asked: Sequence[Record]) -> tuple[float, float]:
    """Return the microseconds of processor time per record of this process and of all nodes, and of this process."""
    async with clients() as table_of:
        await _get(table_of, asked[:TASKS])  # Connections are open.
        with machine.uncollected():
            before_nodes, before = sum(map(cpu_ns, nodes.processes(cluster))), process_time_ns()
            async with trio.open_nursery() as nursery:
                for task in range(TASKS):
                    nursery.start_soon(do, table_of, asked[task::TASKS])
            client_ns = process_time_ns() - before
            whole_ns = client_ns + sum(map(cpu_ns, nodes.processes(cluster))) - before_nodes
    return whole_ns / len(asked) / MICROSECOND_NS, client_ns / len(asked) / MICROSECOND_NS
