"""Whole nodes that share a database under outside errors: other contents, a wrong address, no disk space."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import trio

from gossipkv.address import DEFAULT_PORT, Address
from tests.world.datasets.sharing_cluster import content_of
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.losses import REPLACED_S
from tests.world.nodes.phases import start_later
from tests.world.nodes.sharing import ACTIVE_S, REASSIGN_AFTER_S, SharedDatabase, formed

if TYPE_CHECKING:
    from tests.world.datasets.contents import Content
    from tests.world.nodes.whole_cluster import SimulatedCluster


async def two_contents(cluster: SimulatedCluster) -> None:
    """One node's source has other files under the same name: `status` names both, and clients get only one of them."""
    await _differ(cluster, content_of("102", batch=10))


async def another_count(cluster: SimulatedCluster) -> None:
    """One node's source has another number of files under the same name."""
    await _differ(cluster, content_of("102", 8))


async def _differ(cluster: SimulatedCluster, other: Content) -> None:
    """Give one node other contents; with one copy per partition no node has all of one before it hears of both."""
    chance = cluster.chance
    async with formed(cluster, replication=1) as database:
        odd = chance.choice(database.machines)
        for machine in database.machines:
            database.sources.give(machine, {"102": other if machine is odd else content_of("102")})

        async def all_name_both() -> bool:
            told = [(await database.versions(machine, local=False)).get("102", {}) for machine in database.machines]
            return all(isinstance(found := each.get("conflicts"), list) and len(found) > 1 for each in told)

        await database.until("status names both contents of 102", all_name_both, within_s=ACTIVE_S)
        await database.until_active("102", within_s=REPLACED_S)
        await trio.sleep(10)
        database.must_not_fail()


async def another_disk(cluster: SimulatedCluster) -> None:
    """A node returns with an empty disk and other contents under the active name: no client gets these contents."""
    async with formed(cluster, replication=1) as database:
        victim = cluster.chance.choice(database.machines)
        victim.kill()
        victim.lose_disk()
        database.sources.give(victim, {"101": content_of("101", batch=10)})
        await trio.sleep(cluster.chance.uniform(0, 8))
        await victim.start()
        await trio.sleep(REPLACED_S)
        await database.until_answered()
        await trio.sleep(5)
        database.must_not_fail()


async def join_into_nothing(cluster: SimulatedCluster) -> None:
    """A node whose join address is dead builds and serves nothing, and says so, until others come."""
    first, *others = cluster.machines
    database = SharedDatabase(cluster)
    database.join(first, Address("10.9.9.9", DEFAULT_PORT))
    for machine in others:
        database.join(machine, first.address)
    database.offer("101")
    await first.start()
    await trio.sleep(cluster.chance.uniform(20, 60))
    database.must(not await database.held(first, "101"), f"{first.name} has built something alone")
    database.must(await database.active(first) is None, f"{first.name} serves something alone")
    waits_until = (await database.versions(first, local=False))["101"].get("waits_until")
    database.must(
        str(waits_until).startswith("this node has heard from another"), f"{first.name} waits until {waits_until!r}"
    )
    async with trio.open_nursery() as nursery:
        for machine in others:
            nursery.start_soon(start_later, machine, cluster.chance.uniform(0, 3))
    async with database.read():
        await database.until_active("101", within_s=2 * ACTIVE_S)
        await database.until_answered()
        database.must_not_fail()


async def disk_full(cluster: SimulatedCluster) -> None:
    """A node with a full disk answers from its old version while others go on, and follows once it can write."""
    async with formed(cluster, replication=2) as database:
        database.readers.names_versions = False
        full, *others = cluster.chance.sample(database.machines, len(database.machines))
        full.strike(Fault(0, Action.FAIL, kinds=CHANGING, error=errno.ENOSPC, lasting=True))
        database.offer("102")
        await database.until_active("102", *others, within_s=REPLACED_S)
        await trio.sleep(15)
        database.must(await database.active(full) == "101", f"{full.name} has switched without a trace on its disk")
        for machine in others:
            database.must(await database.held(machine, "101"), f"{machine.name} let 101 go, which a member needs")
        database.must_not_fail()
        full.strike()
        await database.until_active("102", within_s=2 * ACTIVE_S + REASSIGN_AFTER_S)
        await database.until_held("102", full)
        await database.until_gone("101")
        database.must_not_fail()
