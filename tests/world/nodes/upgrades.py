"""Whole nodes that share a database, and its versions: a first one, newer ones, late ones, and restarts meanwhile."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import trio

from tests.world.datasets.sharing_cluster import content_of
from tests.world.faulty_files import CHANGING, Fault
from tests.world.nodes.phases import CRASHES, EVEN
from tests.world.nodes.sharing import ACTIVE_S, PARTITIONS, REASSIGN_AFTER_S, SharedDatabase, formed
from tests.world.nodes.sources import upload

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster

TOLD_S: Final = 0.2  # From a switch until others know it: a few round trips, and two looks of each hearer.
MAX_OPERATIONS: Final = 60  # Disk operations of a node during an upgrade.


async def one_empty_node(cluster: SimulatedCluster) -> None:
    """A lone node waits for no other, serves new versions, and drops old ones; all other machines are off."""
    database = SharedDatabase(cluster)
    machine = database.machines[0]
    database.join(machine)
    await machine.start()
    await trio.sleep(cluster.chance.uniform(0, 10))
    database.offer("101")
    await database.until_active("101", machine, within_s=ACTIVE_S / 2)
    async with database.read():
        database.offer("102")
        await database.until_active("102", machine, within_s=ACTIVE_S / 2)
        database.readers.names_versions = False
        await database.until_gone("101")
        database.must_not_fail()


async def empty_cluster(cluster: SimulatedCluster) -> None:
    """Nodes that start together each build their share of a later version, and no more."""
    database = SharedDatabase(cluster)
    partitions = 2 * len(database.machines)
    await database.start(within_s=cluster.chance.choice((0.001, 1.0, 3.0)))
    await trio.sleep(cluster.chance.uniform(8, 15))
    database.offer("101", partitions=partitions)
    await _come_to_share(database, partitions)


async def one_version(cluster: SimulatedCluster) -> None:
    """Nodes that start together share a version that was at the source before."""
    database = SharedDatabase(cluster)
    database.offer("101")
    await database.start(within_s=cluster.chance.choice((0.001, 1.0)))
    await _come_to_share(database, PARTITIONS)


async def automatic_ids(cluster: SimulatedCluster) -> None:
    """Places are claimed at the same time: in the end they differ, and each partition has its full number of copies."""
    database = SharedDatabase(cluster)
    partitions = 2 * len(database.machines)
    database.offer("101", partitions=partitions)
    await database.start(within_s=0.001)
    await _come_to_share(database, partitions, within_s=2 * ACTIVE_S)


async def _come_to_share(database: SharedDatabase, partitions: int, *, within_s: float = ACTIVE_S) -> None:
    """Read until all answer from 101 and every partition has exactly its number of copies; no read may fail."""
    copies = partitions * min(database.replication, len(database.machines))

    async def holds() -> bool:
        return await database.copies("101") >= copies

    async with database.read():
        await database.until_active("101", within_s=within_s)
        await database.until(f"{copies} copies of {partitions} partitions", holds, within_s=ACTIVE_S)
        await trio.sleep(3)
        found = await database.copies("101")
        database.must(found == copies, f"{found} copies of {partitions} partitions, instead of {copies}")
        database.must_not_fail()


async def upgrade(cluster: SimulatedCluster) -> None:
    """New versions come under load: no read fails, no client goes back, and old versions are dropped."""
    async with formed(cluster) as database:
        for version in ("102", "103"):
            database.readers.names_versions = True
            database.offer(version)
            await database.until_active(version)
            database.readers.names_versions = False
            await database.until_gone(str(int(version) - 1))
        database.must_not_fail()


async def told_at_once(cluster: SimulatedCluster) -> None:
    """Without datagrams, a version is available at all nodes (`min_version`) as soon as one has switched."""
    async with formed(cluster, replication=2) as database:
        cluster.network.partition(*([machine.host] for machine in cluster.machines), datagrams_only=True)
        database.offer("102")

        async def one_has_switched() -> bool:
            return "102" in [await database.active(machine) for machine in database.machines]

        async def all_answer() -> bool:
            return all([await database.has(machine, "102") for machine in database.machines])

        await database.until("one has switched to 102", one_has_switched, within_s=ACTIVE_S, every_s=0.01)
        await database.until("all answer from 102", all_answer, within_s=TOLD_S, every_s=0.01)
        cluster.network.heal()
        await database.until_active("102")
        database.must_not_fail()


async def slow_source(cluster: SimulatedCluster) -> None:
    """Some nodes read their source slowly: all have the new version once its last partition is built."""
    chance = cluster.chance
    async with formed(cluster) as database:
        for machine in chance.sample(database.machines, chance.randint(1, len(database.machines))):
            machine.file_s = chance.uniform(1, 5)
        for version in ("102", "103"):
            database.offer(version)
            await trio.sleep(chance.uniform(0, 20))  # The next version may come while this one is built.
        await database.until_active("103", within_s=2 * ACTIVE_S + REASSIGN_AFTER_S)
        database.must_not_fail()


async def late_source(cluster: SimulatedCluster) -> None:
    """A node whose source shows a version late answers from it nevertheless, and then builds its share."""
    chance = cluster.chance
    async with formed(cluster) as database:
        late = chance.choice(database.machines)
        database.sources.give(late, database.sources.contents.seen(late))
        database.offer("102")
        # After a while other nodes build the partitions that fall to that node alone.
        await database.until_active("102", within_s=2 * ACTIVE_S + REASSIGN_AFTER_S)
        await trio.sleep(chance.uniform(0, 10))
        database.sources.share(late)
        await database.until_held("102", late)
        database.must_not_fail()


async def source_gone(cluster: SimulatedCluster) -> None:
    """Nodes without their source serve their built versions, even after a restart, and go on when it returns."""
    chance = cluster.chance
    async with formed(cluster) as database:
        gone = chance.sample(database.machines, chance.randint(1, len(database.machines)))
        for machine in gone:
            database.sources.give(machine, None)
        await trio.sleep(5)
        victim = chance.choice(gone)
        database.must_not_fail()
        await victim.stop()
        await victim.start()
        await database.until_active("101", within_s=5)
        database.forgive()  # Excuse reads of partitions that only this node had.
        await trio.sleep(5)
        database.must_not_fail()
        database.offer("102")
        for machine in gone:
            database.sources.share(machine)
        await database.until_active("102")
        database.must_not_fail()


async def upgrade_restarts(cluster: SimulatedCluster) -> None:
    """A process that ends around a disk step of an upgrade, some with a power loss, comes back."""
    chance = cluster.chance
    async with formed(cluster) as database:
        for version in ("102", "103", "104"):
            victim = chance.choice(database.machines)
            at = chance.randrange(MAX_OPERATIONS)
            victim.strike(Fault(at, chance.choice(CRASHES), kinds=CHANGING), power=chance.choice(EVEN))
            database.offer(version)
            await trio.sleep(chance.uniform(0, 12))
            if victim.runs and chance.choice(EVEN):
                victim.tell(signal.SIGHUP)
                await trio.sleep(chance.random())
            if victim.runs and chance.choice(EVEN):
                cluster.struck["kill"] += 1
                victim.kill()
            victim.strike()
            if not victim.runs:
                await victim.start()
            await database.until_active(version, within_s=ACTIVE_S + 10)
        await database.until_answered()
        await trio.sleep(3)
        database.must_not_fail()


async def rolling_restart(cluster: SimulatedCluster) -> None:
    """Nodes restart one after the other: each partition keeps an owner, and no read fails."""
    async with formed(cluster, replication=2) as database:
        for machine in database.machines:
            await machine.stop()
            await trio.sleep(cluster.chance.uniform(0.5, 5))
            await machine.start()
            await database.until_active("101", within_s=5)
            await trio.sleep(6)
        database.must_not_fail()


async def owner_stopped(cluster: SimulatedCluster) -> None:
    """A node that is the only owner of partitions stops: others build these first, and no read fails."""
    async with formed(cluster, replication=1) as database:
        machine = cluster.chance.choice(database.machines)
        await machine.stop()
        await trio.sleep(10)
        database.must_not_fail()
        await machine.start()
        await database.until_active("101", within_s=5)
        database.must_not_fail()


async def stopped_amid_upgrades(cluster: SimulatedCluster) -> None:
    """Nodes stop at some moment of upgrades, without waiting for copies: no read fails."""
    chance = cluster.chance
    async with formed(cluster, replication=2) as database:
        # During an upgrade the active version has a second owner, but a retiring one may not.
        database.readers.names_versions = False
        for version in ("102", "103", "104"):
            for machine in database.machines:
                machine.file_s = chance.uniform(0, 0.5)
            database.offer(version)
            await trio.sleep(chance.uniform(0, 8))
            machine = chance.choice(database.machines)
            await machine.stop()
            await trio.sleep(chance.uniform(0.5, 5))
            await machine.start()
            await database.until_active(version, within_s=2 * ACTIVE_S)
        database.must_not_fail()


async def all_stopped(cluster: SimulatedCluster) -> None:
    """All nodes stop, each the only owner of some partitions: none waits for another that leaves as well."""
    async with formed(cluster, replication=1) as database:
        for machine in database.machines:
            machine.tell(signal.SIGTERM)
        with trio.move_on_after(2) as limit:
            for machine in database.machines:
                await machine.ended()
        database.must(not limit.cancelled_caught, "they wait for each other")
        await database.start()
        await database.until_active("101")
        await database.until_answered()


async def late_joiner(cluster: SimulatedCluster) -> None:
    """A new node answers before it has built anything; shares stay, and it gets its share of the next version."""
    *founders, joiner = cluster.machines
    database = SharedDatabase(cluster)
    database.offer("101")
    database.sources.give(joiner, None)
    await database.start(*founders)
    await database.until_active("101", *founders)
    before = {machine.name: await database.held(machine, "101") for machine in founders}
    async with database.read():
        await joiner.start()
        await database.until_active("101", joiner, within_s=8)
        await trio.sleep(10)
        database.sources.share(joiner)
        await trio.sleep(10)
        after = {machine.name: await database.held(machine, "101") for machine in founders}
        database.must(before == after, f"shares have changed: {before}, {after}")
        database.offer("102", partitions=12)
        await database.until_active("102")
        await database.until_held("102", joiner)
        database.must_not_fail()


async def half_uploaded(cluster: SimulatedCluster) -> None:
    """A job writes file after file and a success file last: no node builds or serves the version before."""
    chance = cluster.chance
    async with formed(cluster, require_success_file=True) as database:
        content = content_of("102")
        for files in range(content.partitions + 1):
            for machine in database.machines:
                upload(machine.disk, content, range(files), part=0.5 if files == content.partitions else 0.99)
            await trio.sleep(chance.uniform(0, 5))
            for machine in database.machines:
                held = await database.held(machine, "102")
                database.must(not held, f"{machine.name} has built {held} of what is half there")
        await database.until_active("101", within_s=1)
        database.sources.add(content)
        await database.until_active("102")
        database.must_not_fail()
