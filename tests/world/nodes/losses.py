"""Whole nodes that share a database, when some are lost: for good, for a while, or only apparently."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import trio

from tests.world.nodes import views
from tests.world.nodes.phases import DETECTED_S, EVEN
from tests.world.nodes.sharing import (
    ACTIVE_S,
    PARTITIONS,
    REASSIGN_AFTER_S,
    RETIRE_MAX_S,
    RETIRED_S,
    SharedDatabase,
    formed,
)

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

REPLACED_S: Final = 2 * ACTIVE_S + REASSIGN_AFTER_S  # By then others have built a lost node's share.


async def death_before_the_gate(cluster: SimulatedCluster) -> None:
    """A node dies for good while all build a version: others build its share, and no read fails meanwhile."""
    async with formed(cluster, replication=2, min_replication=2) as database:
        for machine in database.machines:
            machine.file_s = cluster.chance.uniform(0, 1)
        database.offer("102")
        await trio.sleep(cluster.chance.uniform(0, 5))
        end(cluster, cluster.chance.choice(database.machines))
        await database.until_active("102", within_s=REPLACED_S)
        database.must_not_fail()


async def death_at_the_gate(cluster: SimulatedCluster) -> None:
    """A node dies just after another one has switched: every partition of it has another owner."""
    async with formed(cluster, replication=2, min_replication=2) as database:
        database.offer("102")
        victim, *others = cluster.chance.sample(database.machines, len(database.machines))

        async def one_has_switched() -> bool:
            return "102" in [await database.active(machine) for machine in others]

        await database.until("one has switched to 102", one_has_switched, within_s=ACTIVE_S, every_s=0.01)
        end(cluster, victim)
        await database.until_active("102", within_s=REPLACED_S)
        database.must_not_fail()


async def death_after_the_gate(cluster: SimulatedCluster) -> None:
    """A node dies when all have switched: others answer for it, and partitions without an owner are built anew."""
    async with formed(cluster) as database:
        database.offer("102")
        await database.until_active("102")
        end(cluster, cluster.chance.choice(database.machines))
        if database.replication == 1:
            await trio.sleep(REPLACED_S)
            database.forgive()
        await trio.sleep(5)
        database.must_not_fail()


def end(cluster: SimulatedCluster, machine: NodeMachine) -> None:
    """Kill a node, or cut its power."""
    if cluster.chance.choice(EVEN):
        cluster.struck["power"] += 1
        machine.lose_power()
    else:
        cluster.struck["kill"] += 1
        machine.kill()


async def all_cut_off(cluster: SimulatedCluster) -> None:
    """All nodes are isolated: none switches or drops a version that others may need; all go on once healed."""
    async with formed(cluster) as database:
        cut_all(cluster)
        await trio.sleep(10)
        database.offer("102")
        await trio.sleep(40)
        for machine in database.machines:
            active = await database.active(machine)
            database.must(active == "101", f"{machine.name} has switched to {active} while it heard nobody")
        cluster.network.heal()
        await database.until_active("102", within_s=3 * ACTIVE_S)
        await database.until_answered()
        database.readers.names_versions = False
        await database.until_gone("101")
        database.must_not_fail()
        database.readers.names_versions = True
        database.offer("103")
        await database.until_active("103")
        kept = await database.copies("102")
        cut_all(cluster)
        await trio.sleep(RETIRED_S)
        database.must(await database.copies("102") == kept, "a version was let go while nobody was heard")
        cluster.network.heal()
        await database.until_answered()


def cut_all(cluster: SimulatedCluster) -> None:
    cluster.network.partition(*([machine.host] for machine in cluster.machines))


async def wrong_dead(cluster: SimulatedCluster) -> None:
    """Gossip takes living nodes for dead: owners are asked nevertheless, even the last ones, and no read fails."""
    async with formed(cluster, replication=1) as database:
        hosts = [machine.host for machine in cluster.machines]
        cluster.network.partition(*([host] for host in hosts), datagrams_only=True)
        for host, other in itertools.permutations(hosts, 2):
            cluster.network.link(host, other).connects_cut = True  # Otherwise gossip would ping over a new connection.
        await trio.sleep(DETECTED_S)
        first, *others = database.machines
        seen = await views.members(cluster, first)
        states = {seen[other.name].state for other in others}
        database.must(states == {"dead"}, f"nobody is to be heard, and {first.name} shows others as {states}")
        await trio.sleep(10)
        cluster.network.heal()
        await trio.sleep(20)
        database.must_not_fail()


async def stalled(cluster: SimulatedCluster) -> None:
    """A connection between two nodes stalls within an answer while gossip goes on: others are asked; no read fails."""
    async with formed(cluster, replication=2) as database:
        await trio.sleep(10)
        one, other = cluster.chance.sample(database.machines, 2)
        cluster.network.link(one.host, other.host).stalls = True
        await trio.sleep(cluster.chance.choice((3, 30)))
        cluster.network.heal()
        await trio.sleep(10)
        database.must(cluster.struck["stalled"], "no connection stalled")
        database.must_not_fail()


async def laggard(cluster: SimulatedCluster) -> None:
    """Others keep an isolated node's version as long as it may come back; then they go on alone."""
    async with formed(cluster, replication=1) as database:
        database.readers.names_versions = False
        *others, lagging = cluster.chance.sample(database.machines, len(database.machines))
        cluster.network.partition([lagging.host], [machine.host for machine in others])
        cut_s = trio.current_time()
        database.offer("102")
        await database.until_active("102", *others, within_s=REPLACED_S)
        await trio.sleep(max(0.0, cut_s + RETIRE_MAX_S - 10 - trio.current_time()))
        for machine in others:
            database.must(await database.held(machine, "101"), f"{machine.name} let 101 go, which a member needs")
        if cluster.chance.choice(EVEN):

            async def is_gone() -> bool:
                return not any([await database.held(machine, "101") for machine in others])

            await database.until("the others have let 101 go", is_gone, within_s=DETECTED_S + RETIRED_S)
        database.must(await database.active(lagging) == "101", f"{lagging.name} has switched alone")
        cluster.network.heal()
        await database.until_active("102", within_s=3 * ACTIVE_S)
        await database.until_answered()


async def left_alone(cluster: SimulatedCluster) -> None:
    """The last node serves nothing new as long as the others may come back; then it goes on alone."""
    async with formed(cluster) as database:
        database.readers.names_versions = False
        one, *others = cluster.chance.sample(database.machines, len(database.machines))
        for machine in others:
            machine.kill()
        await trio.sleep(20)
        database.offer("102")
        await trio.sleep(30)
        database.must(await database.active(one) == "101", f"{one.name} goes on before it may")
        await database.until_active("102", within_s=RETIRE_MAX_S + REPLACED_S)
        await database.until_answered()
        await database.until_gone("101")
        database.must_not_fail()


async def back_alone(cluster: SimulatedCluster) -> None:
    """All but one node restart without gossip: a node asks the earlier owners for the partitions that it lacks."""
    async with formed(cluster, replication=2) as database:
        await trio.sleep(8)
        cluster.network.partition(*([machine.host] for machine in cluster.machines), datagrams_only=True)
        for machine in database.machines:
            end(cluster, machine)
        gone = cluster.chance.choice(database.machines)
        for machine in database.machines:
            if machine is not gone:
                await machine.start()
        await database.until_active("101", within_s=20)
        await database.until_answered()
        await trio.sleep(5)
        database.must_not_fail()
        cluster.network.heal()
        await gone.start()
        database.offer("102")
        await database.until_active("102", within_s=3 * ACTIVE_S)
        await database.until_answered()


async def views_that_differ(cluster: SimulatedCluster) -> None:
    """Rings {1, 2}, {1, 3} and {1, 2, 3} leave some partitions unowned: the next node of the ring builds them."""
    first, second, third, *_ = cluster.machines
    database = SharedDatabase(cluster, replication=1)
    for machine in (first, third):
        database.sources.give(machine, None)
    database.offer("101")
    await database.start(first, second)
    await database.until_held("101", second)
    cluster.network.partition([second.host], [first.host, third.host])
    await third.start()
    await trio.sleep(10)
    database.sources.share(first)
    await database.until_held("101", first)
    cluster.network.heal()
    await trio.sleep(10)
    database.sources.share(third)
    await database.until_active("101", within_s=3 * ACTIVE_S)
    async with database.read():
        await database.until_answered()
        await trio.sleep(10)
        found = await database.copies("101")
        database.must(PARTITIONS < found <= 2 * PARTITIONS, f"{found} copies of {PARTITIONS} partitions")
        database.must_not_fail()
