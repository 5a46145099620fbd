"""The rows about clients: a node and redis-server hold the same records, and each side's client reads them.

The servers are on one core, this process with the client on the other; the sides run in turn, and the first round does
not count.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import OURS
from tests.bench.network import servers
from tests.bench.processes import Cores, node
from tests.bench.register import etcd

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

NEEDED = ("redis", "hiredis", "uvloop")
TASKS = 64
THREADS = 16
AIO_TASKS = 100
BATCHED = {"batched": True}


def missing() -> str | None:
    """Return the packages that must be installed for a comparison, or None."""
    return servers.redis_missing() or (None if all(map(find_spec, NEEDED)) else f"pip install {' '.join(NEEDED)}")


def measure(
    bench: Bench,
    *,
    keys: int = 100_000,
    gets: int = 20_000,
    batches: int = 3_000,
    concurrent_gets: int = 60_000,
    rounds: int = 9,
) -> None:
    from tests.bench.clients import contestants  # noqa: PLC0415  # The peers need not be installed.

    records = data.make(keys).records
    cores = Cores.of_this_machine()
    with (
        node(bench.directory / "node", records, cores) as ours,
        servers.redis(records, cores.server) as theirs,
        machine.pinned(cores.load),
        machine.uncollected(),
        ExitStack() as stack,
    ):
        rng = random.Random(data.SEED)
        blocking = {goals.REDIS_PY: (contestants.redis_py, theirs)}
        under_asyncio = {goals.REDIS_ASYNCIO: (contestants.redis_tasks, theirs)}
        by_coredis, by_etcd = {}, {}
        if bench.takes_part(goals.COREDIS, None if find_spec("coredis") else "pip install coredis"):
            by_coredis[goals.COREDIS] = contestants.coredis_tasks, theirs
        if bench.takes_part(goals.ETCD_CLIENT, etcd.missing() or (None if find_spec("etcd3") else "pip install etcd3")):
            cluster = stack.enter_context(etcd.running(bench.directory / "etcd", 1))
            cluster.fill(records)
            by_etcd[goals.ETCD_CLIENT] = contestants.etcd, cluster
        for row, count, figure, own, peers, how in (
            (goals.CLIENT_GET, gets, "wall_us", contestants.blocking, blocking | by_etcd, {}),
            (goals.CLIENT_GET_MANY, batches * contestants.BATCH, "wall_us", contestants.blocking, blocking, BATCHED),
            (goals.CLIENT_THREADS, concurrent_gets, "wall_us", contestants.blocking, blocking, {"threads": THREADS}),
            (goals.CLIENT_TASKS, concurrent_gets, "cpu_us", contestants.trio_tasks, under_asyncio, {"tasks": TASKS}),
            (goals.CLIENT_TASK, gets, "wall_us", contestants.trio_tasks, under_asyncio, {"tasks": 1}),
            (
                goals.CLIENT_AIO_TASKS, concurrent_gets, "cpu_us", contestants.aio_tasks, under_asyncio | by_coredis,
                {"tasks": AIO_TASKS},
            ),
            (goals.CLIENT_AIO_TASK, gets, "cpu_us", contestants.aio_tasks, under_asyncio | by_coredis, {"tasks": 1}),
        ):  # fmt: skip
            asked = rng.choices(records, k=count)
            works = {name: partial(peer, server.address, **how) for name, (peer, server) in peers.items()}
            works[OURS] = partial(own, ours.address, **how)
            sides = {
                name: lambda work=work, asked=asked, figure=figure: getattr(work(asked), figure)
                for name, work in works.items()
            }
            bench.compare(row, sides, rounds)
    bench.notes.append(
        "clients: keys of 16 bytes, values of 100, asked at random, every value compared; the client's process on one "
        "core and the servers on the other; redis-py with hiredis, one connection for each thread; asyncio on uvloop; "
        f"redis.asyncio with hiredis, one client with a pool of as many connections as tasks; {contestants.versions()}"
    )
