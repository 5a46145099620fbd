"""Whole nodes on a bad network: it falls apart and heals, everything goes wrong at once, while they publish as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from tests.world.nodes import views
from tests.world.nodes.phases import EVEN, HEALED_S, SHOWN_S, begin, mend, settle, strike_one, watched
from tests.world.nodes.publishing import Publishing
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

SHORT_S: Final = 5.0
LONG_S: Final = 240.0  # By then one who is alone, and looks the slower for it, has found all others dead.

_SELDOM: Final = (True,) + 9 * (False,)
_WAYS: Final = ((False, False), (False, False), (True, False), (False, True))  # Of a cut: one way; of datagrams only.


async def partition(cluster: SimulatedCluster) -> None:
    """The network falls apart for a while; both sides go on alone, and are one again soon after it heals."""
    chance, machines = cluster.chance, list(cluster.machines)
    async with watched(cluster):
        chance.shuffle(machines)
        here = machines[: chance.randrange(1, len(machines))]
        there = [machine for machine in machines if machine not in here]
        one_way, datagrams_only = chance.choice(_WAYS)
        cluster.network.partition(
            [machine.host for machine in here],
            [machine.host for machine in there],
            one_way=one_way,
            datagrams_only=datagrams_only,
        )
        lasts_s = chance.choice((SHORT_S, LONG_S, LONG_S))
        await trio.sleep(lasts_s)
        if lasts_s == LONG_S and not one_way and not datagrams_only:
            await _sides_go_on(cluster, here, there)
        cluster.network.heal()
        await settle(cluster, HEALED_S)


async def _sides_go_on(cluster: SimulatedCluster, *sides: list[NodeMachine]) -> None:
    """Each side shows itself alive and the other dead; whoever is alone says so."""
    for side in sides:
        names = {machine.name for machine in side}
        for machine in side:
            alive = {name for name, seen in (await views.members(cluster, machine)).items() if seen.state == "alive"}
            if alive != names:
                raise Violation(f"{machine.name} shows {sorted(alive)} alive, on the side {sorted(names)}")
            if await views.is_isolated(cluster, machine) != (len(side) == 1):
                raise Violation(f"{machine.name} is wrong about being isolated, with {len(side)} on its side")


async def storm(cluster: SimulatedCluster) -> None:
    """Faults of every kind at random moments for two minutes; then all is well again within the bound."""
    chance, network = cluster.chance, cluster.network
    async with watched(cluster):
        for name in ("loss", "duplicate", "reorder", "corrupt", "heavy_delay"):
            if chance.choice(EVEN):
                setattr(network.usual, name, chance.uniform(0, 0.2))
        until_s = trio.current_time() + 120
        while trio.current_time() < until_s:
            await trio.sleep(chance.expovariate(0.2))
            await strike_one(cluster)
        await mend(cluster)


async def tree(cluster: SimulatedCluster) -> None:
    """Nodes publish and withdraw: everybody shows it soon; through loss, crashes and cuts nothing withdrawn returns."""
    chance, publishing = cluster.chance, Publishing(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publishing.run)
        await begin(cluster)
        for _ in range(10):
            for _ in range(chance.randrange(1, 5)):
                publishing.step(chance.choice(cluster.machines))
            await cluster.until(publishing.is_shown, within_s=SHOWN_S, every_s=0.1)
        cluster.network.usual.loss = chance.choice((0.0, 0.1, 0.3))
        until_s = trio.current_time() + 60
        while trio.current_time() < until_s:
            await trio.sleep(chance.expovariate(1))
            publishing.step(chance.choice(cluster.machines))
            if chance.choice(_SELDOM):
                await strike_one(cluster)
        await mend(cluster)
        await cluster.until(publishing.is_shown, within_s=HEALED_S)
        nursery.cancel_scope.cancel()
