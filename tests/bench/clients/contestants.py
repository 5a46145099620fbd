"""The compared clients, each set up as its experts would, with the same work for all.

redis-py: one `Redis` (a pool, of which each thread uses one connection) with hiredis as its parser. redis.asyncio: one
`Redis` with a `BlockingConnectionPool` of as many connections as there are tasks, so that no task waits for another's
and none is opened beyond them; hiredis; uvloop. coredis: one `Redis`, whose tasks share its connections; uvloop. etcd3:
one client. Every value is compared with the expected one, on every side.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, NamedTuple

import redis
import redis.asyncio
import trio
import uvloop

import gossipkv
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import DATABASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.bench.data import Record

PACKAGES = ("redis", "hiredis", "uvloop")
OTHERS = ("coredis", "etcd3")  # Peers that take part if they are installed.
BATCH = 100
MICROSECOND_NS = 1e3


class Figure(NamedTuple):
    """The microseconds per operation of one run."""

    wall_us: float
    cpu_us: float


class Clock:
    """The time and processor time of this process since the clock was made."""

    def __init__(self) -> None:
        self._wall_ns, self._cpu_ns = perf_counter_ns(), process_time_ns()

    def stop(self, operations: int) -> Figure:
        """Return the time per operation since then."""
        cpu_ns, wall_ns = process_time_ns() - self._cpu_ns, perf_counter_ns() - self._wall_ns
        return Figure(wall_ns / operations / MICROSECOND_NS, cpu_ns / operations / MICROSECOND_NS)


def check(found: object, expected: object) -> None:
    if found != expected:
        raise WrongAnswerError(f"expected {expected!r}, got {found!r}")


def versions() -> str:
    found = [*PACKAGES, *filter(find_spec, OTHERS)]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in found)


def one_by_one(get: Callable[[bytes], object], records: list[Record]) -> Figure:
    clock = Clock()
    for key, value in records:
        check(get(key), value)
    return clock.stop(len(records))


def batches(get_many: Callable[[list[bytes]], object], records: list[Record]) -> Figure:
    parts = [records[begin : begin + BATCH] for begin in range(0, len(records), BATCH)]
    questions = [([key for key, _ in part], [value for _, value in part]) for part in parts]
    clock = Clock()
    for keys, values in questions:
        check(get_many(keys), values)
    return clock.stop(len(questions))


def in_threads(get: Callable[[bytes], object], records: list[Record], threads: int) -> Figure:
    """Read with threads that share a client: each reads its share, one value at a time."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda share: one_by_one(get, share), [records[:100]] * threads))  # Connections are open.
        clock = Clock()
        list(pool.map(lambda number: one_by_one(get, records[number::threads]), range(threads)))
        return clock.stop(len(records))


def blocking(node: Address, records: list[Record], *, batched: bool = False, threads: int = 1) -> Figure:
    """Read with GossipKV's blocking client, one value or a hundred at a time."""
    with gossipkv.blocking.connect(node) as client:
        dataset = client.dataset(DATABASE)
        dataset.get(records[0][0])
        if threads > 1:
            return in_threads(dataset.get, records, threads)
        return batches(dataset.get_many, records) if batched else one_by_one(dataset.get, records)


def redis_py(server: Address, records: list[Record], *, batched: bool = False, threads: int = 1) -> Figure:
    with redis.Redis(host=server.host, port=server.port) as client:
        client.get(records[0][0])
        if threads > 1:
            return in_threads(client.get, records, threads)
        return batches(client.mget, records) if batched else one_by_one(client.get, records)


def etcd(server: Address, records: list[Record]) -> Figure:
    import etcd3  # noqa: PLC0415  # It need not be installed.

    with etcd3.client(server.host, server.port) as client:
        client.get(records[0][0])
        return one_by_one(lambda key: client.get(key)[0], records)


def trio_tasks(node: Address, records: list[Record], tasks: int) -> Figure:
    """Read with GossipKV's Trio client: each task reads its share, one value at a time."""

    async def run() -> Figure:
        async with gossipkv.connect(node) as client:
            dataset = client.dataset(DATABASE)

            async def read(share: list[Record]) -> None:
                for key, value in share:
                    check(await dataset.get(key), value)

            await read(records[:tasks])
            clock = Clock()
            async with trio.open_nursery() as nursery:
                for number in range(tasks):
                    nursery.start_soon(read, records[number::tasks])
            return clock.stop(len(records))

    return trio.run(run)


def aio_tasks(node: Address, records: list[Record], tasks: int) -> Figure:
    """Read with GossipKV's asyncio client in the same way."""

    async def run() -> Figure:
        async with gossipkv.aio.connect(node) as client:
            dataset = client.dataset(DATABASE)

            async def read(share: list[Record]) -> None:
                for key, value in share:
                    check(await dataset.get(key), value)

            await read(records[:tasks])
            clock = Clock()
            await asyncio.gather(*(read(records[number::tasks]) for number in range(tasks)))
            return clock.stop(len(records))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def redis_tasks(server: Address, records: list[Record], tasks: int) -> Figure:
    """Read with redis.asyncio in the same way; every connection of the pool is open before the clock starts."""

    async def run() -> Figure:
        pool = redis.asyncio.BlockingConnectionPool(host=server.host, port=server.port, max_connections=tasks)
        async with redis.asyncio.Redis(connection_pool=pool) as client:

            async def read(share: list[Record]) -> None:
                for key, value in share:
                    check(await client.get(key), value)

            await asyncio.gather(*(read(records[number : number + 1]) for number in range(tasks)))
            clock = Clock()
            await asyncio.gather(*(read(records[number::tasks]) for number in range(tasks)))
            figure = clock.stop(len(records))
        await pool.disconnect()
        return figure

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def coredis_tasks(server: Address, records: list[Record], tasks: int) -> Figure:
    """Read with coredis in the same way."""
    import coredis  # noqa: PLC0415  # It need not be installed.

    async def run() -> Figure:
        async with coredis.Redis(host=server.host, port=server.port) as client:

            async def read(share: list[Record]) -> None:
                for key, value in share:
                    check(await client.get(key), value)

            await asyncio.gather(*(read(records[number : number + 1]) for number in range(tasks)))
            clock = Clock()
            await asyncio.gather(*(read(records[number::tasks]) for number in range(tasks)))
            return clock.stop(len(records))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
