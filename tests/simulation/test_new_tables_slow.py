"""A new table lies on all nodes of a large cluster, though they answer late."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from tests.simulation.test_new_tables import CREATED_S, WANTED, hosts, named
from tests.world.nodes.phases import start_later
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


@simulated(20)
async def test_twenty_busy_nodes(cluster: SimulatedCluster) -> None:
    """Each packet takes up to 0.3 s, and the request comes while the nodes start."""
    cluster.network.usual = replace(cluster.network.usual, least_delay_us=20_000, delay_spread_us=280_000)
    first, *others = cluster.machines
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.start)
        for number, machine in enumerate(others):
            machine.config = replace(machine.config, join=(first.address,))
            nursery.start_soon(start_later, machine, 0.1 * number)
    made = await cluster.ask(others[5], "create_table", "t", WANTED, timeout_s=CREATED_S)
    assert (made["replication"], made["replicas"]) == (3, 3)
    assert await hosts(cluster, first) == {3}

    async def are_named() -> bool:
        return len(await named(cluster, first)) == len(cluster.machines)

    assert made["left_out"] == [] or await cluster.until(are_named, within_s=CREATED_S)
