"""Helpers of `test_whole_nodes_determinism.py` and `test_whole_nodes_determinism_slow.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.world.nodes.whole_cluster import SimulatedCluster, simulate

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import WholeRun

SEED = 7


async def lively(cluster: SimulatedCluster) -> None:
    """Use every possible source of difference: faults, restarts, clients, tasks that become ready together."""
    network, chance = cluster.network, cluster.chance
    network.usual.loss = 0.1
    network.usual.heavy_delay = 0.1
    async with trio.open_nursery() as nursery:
        for machine in cluster.machines:
            nursery.start_soon(machine.start)
    for _ in range(5):
        async with trio.open_nursery() as nursery:
            for machine in cluster.machines:
                nursery.start_soon(cluster.ask, machine, "info")
        await trio.sleep(chance.random())
        chance.choice(cluster.machines).kill()
        for machine in cluster.machines:
            if not machine.runs:
                await machine.start()
        chosen = chance.choice(cluster.machines)
        chosen.lose_power()
        await chosen.start()


def once(seed: int = SEED) -> WholeRun:
    return simulate(lively, seed, machines=5)
