"""Whole nodes that were set up wrongly: with a name that another has, or towards another cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from tests.world.nodes import views
from tests.world.nodes.phases import BACK_S, EVEN, LEFT_S, TWINS_S, settle, shown, watched
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


async def twins(cluster: SimulatedCluster) -> None:
    """A second node of a name, some with a copy of the first one's disk: it stops and says why; the first goes on."""
    chance = cluster.chance
    async with watched(cluster, calm=True):
        first, second = chance.sample(cluster.machines, 2)
        await trio.sleep(5)
        await second.stop()
        await shown(cluster, second, "left", LEFT_S)
        if chance.choice(EVEN):
            cluster.struck["copied"] += 1
            second.disk = first.disk.copied()
        else:
            cluster.struck["named"] += 1
            second.lose_disk()
        second.config = replace(second.config, node=first.name, join=(first.address,))
        await second.start()
        with trio.move_on_after(TWINS_S):
            await second.ended()
        if second.runs or second.error is None:
            raise Violation(f"a second node called {first.name} goes on")
        if str(first.address) not in second.error.message:
            raise Violation(f"it does not say where the other is: {second.error.message}")
        await settle(cluster, BACK_S)


async def strangers(cluster: SimulatedCluster) -> None:
    """A node of another cluster's name is told to join: nobody takes it in, it says why, and goes on alone."""
    chance = cluster.chance
    stranger = chance.choice(cluster.machines[1:])
    stranger.config = replace(stranger.config, cluster="other")
    async with watched(cluster, but=stranger):
        stranger.config = replace(stranger.config, join=(cluster.machines[0].address,))
        await stranger.start()
        await trio.sleep(30)
        for machine in cluster.machines:
            names = set(await views.members(cluster, machine))
            expected = (
                {stranger.name} if machine is stranger else {other.name for other in cluster.machines} - {stranger.name}
            )
            if names != expected:
                raise Violation(f"{machine.name} of {machine.config.cluster!r} knows {sorted(names)}")
        if not any(
            "'simulated'" in line and "'other'" in line
            for line in cluster.trace.lines_with(f" {stranger.name} warning")
        ):
            raise Violation("the stranger does not say why it is alone")
