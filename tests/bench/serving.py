"""The rows about a node: what a reader notices while the node builds another database, and what a get costs at rest.

One client asks one get at a time over one connection, as fast as it is answered (a closed loop).  Nothing is pinned:
where node, build and client run is up to the node and the system, as it is for a user.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from time import monotonic
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.asking import Client, Reader, node_get, percentile, redis_get, redis_value
from tests.bench.network import servers
from tests.bench.processes import PATIENCE_S, connect, is_served, serve, serving, wait_for_records
from tests.bench.sources import write_database

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.client.blocking import Client as Control
    from tests.bench.measurement import Bench

SERVED = "served"
SMALL_BYTES = 64 << 10  # Too small to give way before it is done.


def measure(
    bench: Bench,
    *,
    served_records: int = 100_000,
    built_bytes: int = 400 << 20,
    small_builds: int = 20,
    idle_s: float = 4.0,
    rounds: int = 5,
) -> None:
    """The rows with a goal, then the one beside redis."""
    records = data.make(served_records).records
    source = bench.directory / "source"
    write_database(source, SERVED, records)
    with ExitStack() as stack:
        node = stack.enter_context(serving(serve(bench.directory / "data", source=source)))
        control = stack.enter_context(connect(node.address))
        ours = Reader(
            stack.enter_context(closing(Client(node.address))),
            [(node_get(SERVED, key), value) for key, value in records],
        )
        theirs = None
        if bench.takes_part(goals.REDIS, servers.redis_missing()):
            client = Client(stack.enter_context(servers.redis(records, None)).address)
            stack.callback(client.close)
            theirs = Reader(client, [(redis_get(key), value) for key, value in records], redis_value)
        wait_for_records(node.address, [(SERVED, records[0])])
        stack.enter_context(machine.uncollected())
        ours.read_for(idle_s)  # Not counted: everything is touched for the first time.
        for number in range(rounds):
            idle = ours.read_for(idle_s)
            if theirs is not None:
                bench.add(goals.ROUND_TRIP, percentile(idle, 0.5))
                bench.add(goals.ROUND_TRIP, percentile(theirs.read_for(idle_s), 0.5), goals.REDIS)
            for row, names, size_bytes, value_bytes in (
                (goals.SERVING, [f"bulk-{number}"], built_bytes, data.LARGE_VALUE_BYTES),
                (
                    goals.SERVING_SMALL,
                    [f"small-{number}-{each}" for each in range(small_builds)],
                    SMALL_BYTES,
                    data.SMALL_VALUE_BYTES,
                ),
            ):
                count = size_bytes // (data.KEY_BYTES + value_bytes)
                busy = _during_builds(control, ours, source, names, count=count, value_bytes=value_bytes)
                bench.add(row, percentile(busy, 0.99))
                bench.add(row, percentile(idle, 0.99), goals.IDLE)


def _during_builds(
    control: Control, reader: Reader, source: Path, names: list[str], *, count: int, value_bytes: int
) -> list[int]:
    """Reads while new databases are built, from their appearance until all of them answer."""
    for name in names:
        write_database(source, name, data.numbered(count, value_bytes))
    os.sync()
    control.refresh()
    deadline = monotonic() + PATIENCE_S
    key = data.key_of(0)
    samples = reader.read(lambda: all(is_served(control, name, key) for name in names) or monotonic() > deadline)
    wait_for_records(control.address, [(name, (key, data.value_of(key, value_bytes))) for name in names])
    return samples
