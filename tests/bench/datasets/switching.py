"""The row about switching: a node serves ten databases under closed-loop load, and each gets a new version in turn.

One loop asks all databases without pause, over a connection to each, and compares every value. A version appears at the
source by one rename, is built by the node with its defaults beside the load, and becomes active; then the next database
follows. The percentile over all that time is compared with the one over the seconds before it.
"""

from __future__ import annotations

from functools import partial
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, sources
from tests.bench.cluster import nodes
from tests.bench.network import rows
from tests.bench.processes import PATIENCE_S, call, serve, serving
from tests.load import Load, RpcDialect, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.bench.measurement import Bench
    from tests.bench.sources import Versions

DATABASES = 10


def measure(
    bench: Bench, *, keys: int = 100_000, warming_s: float = 3.0, before_s: float = 10.0, rounds: int = 5
) -> None:
    """Measure the percentile before the switches and during them."""
    records = data.make(keys).records
    versions = sources.Versions(bench.directory, [f"database-{number}" for number in range(DATABASES)], records)
    first = versions.show_first()
    with serving(serve(bench.directory / "data", source=versions.source)) as node:
        nodes.wait_for_version([node.address], versions.names, first)
        dialects = [RpcDialect(name, records) for name in versions.names]
        load = Load(connections=DATABASES, duration_s=None, requests=1, timeout_s=rows.TIMEOUT_S, seed=data.SEED)
        with Traffic(node.address, dialects, load) as traffic:
            for _ in range(rounds):
                version = versions.write()
                _p99_us(traffic, lambda: sleep(warming_s))  # The writing has disturbed the percentile.
                before_us = _p99_us(traffic, lambda: sleep(before_s))
                bench.add(goals.SWITCH, _p99_us(traffic, partial(_switch, versions, node.address, version)))
                bench.add(goals.SWITCH, before_us, goals.BEFORE)
    bench.notes.append(
        f"{goals.SWITCH}: one loop with a connection to each database, one get in flight on each; {keys:,} records a "
        "database, every value checked"
    )


def _switch(versions: Versions, address: Address, version: str) -> None:
    for name in versions.names:
        versions.show(name, version)
        call(address, "refresh", name)
        nodes.wait_for_version([address], [name], version)


def _p99_us(traffic: Traffic, work: Callable[[], None]) -> float:
    """Return the 99th percentile of the time of gets while `work` runs."""
    ended = Event()
    found: list[float] = []

    def ask() -> None:
        outcome = rows.checked(traffic.run(duration_s=PATIENCE_S, until=ended.is_set), "the node")
        found.append(outcome.latency.quantile(0.99) / rows.MICROSECOND_NS)

    thread = Thread(target=ask)
    thread.start()
    try:
        work()
    finally:
        ended.set()
        thread.join()
    return found[0]
