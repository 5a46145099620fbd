"""Answered requests end without the garbage collector, whose pauses would delay other requests."""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import trio

from gossipkv.table.records.request import ClientRequest
from tests.simulation.calls import SETTLED_S, TABLE, VALUE, ask_all
from tests.world.nodes.phases import begin
from tests.world.nodes.table_clients import TableClients
from tests.world.nodes.whole_cluster import simulate

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


def test_answered_requests_are_in_no_cycle() -> None:
    left: Counter[str] = Counter()

    async def scenario(cluster: SimulatedCluster) -> None:
        await begin(cluster)
        await TableClients(cluster).create(TABLE, replication=len(cluster.machines))
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(cluster.connected(cluster.machines[0])) for _ in range(8)]
            gc.collect()
            gc.disable()
            try:
                await ask_all(connections, "put", VALUE)
                await ask_all(connections, "get")
                await ask_all(connections, "delete")
                await trio.sleep(SETTLED_S)
                kept = (kept for kept in gc.get_objects() if isinstance(kept, ClientRequest))
                left.update(type(request).__name__ for request in kept)
            finally:
                gc.enable()

    simulate(scenario, 0, machines=3)
    assert not left
