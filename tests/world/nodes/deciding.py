"""Whole nodes that decide on tables: they found a catalogue, create and drop tables, and some are lost meanwhile."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.errors import BadRequest, GossipKVError, ServiceError, Unavailable
from tests.world.nodes import views
from tests.world.nodes.phases import BACK_S, EVEN, HEALED_S, begin, mend, settle, shown, start_later, strike_one
from tests.world.nodes.table_clients import RESOLVED_S, TableClients, acceptors, config_of, names_of
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

GROWN_S: Final = 20.0  # The promise for a new cluster is half of that.
STORM_S: Final = 60.0
TABLES: Final = 3
SIZES: Final = (1, 3, 5)


async def tables(cluster: SimulatedCluster) -> None:
    """Nodes without any table create tables at the same time; the catalogue grows, and every node shows all tables."""
    async with _clients(cluster) as clients:
        async with trio.open_nursery() as nursery:
            for name in names_of(2 * TABLES):
                nursery.start_soon(clients.create, name)
        await _grown(cluster)
        await clients.agree()
        for name in names_of(TABLES):
            await clients.drop(name)
        await clients.agree()


async def table_storm(cluster: SimulatedCluster) -> None:
    """During faults of every kind tables come and go; then every outcome is known, and all nodes agree."""
    chance = cluster.chance
    async with _clients(cluster) as clients:
        async with _resolved() as nursery:
            for name in names_of(TABLES):
                nursery.start_soon(clients.run, name)
            until_s = trio.current_time() + STORM_S
            while trio.current_time() < until_s:
                await trio.sleep(chance.expovariate(0.2))
                await strike_one(cluster)
            await mend(cluster)
            clients.finish()
        await clients.agree()


async def table_restarts(cluster: SimulatedCluster) -> None:
    """All nodes crash or lose power while tables are created, and agree when they are back."""
    chance = cluster.chance
    async with _clients(cluster) as clients:
        async with _resolved() as nursery:
            for name in names_of(TABLES):
                nursery.start_soon(clients.run, name)
            for _ in range(2):
                await trio.sleep(chance.uniform(0, 15))
                with_power = chance.choice(EVEN)
                for machine in cluster.machines:
                    cluster.struck["power" if with_power else "kill"] += 1
                    if with_power:
                        machine.lose_power()
                    else:
                        machine.kill()
                async with trio.open_nursery() as coming:
                    for machine in cluster.machines:
                        coming.start_soon(start_later, machine, chance.uniform(0, 5))
                await settle(cluster, HEALED_S)
            clients.finish()
        await clients.agree()


async def transactions(cluster: SimulatedCluster) -> None:
    """Every node shows a commit within a second, also in a stream of commits; within five after a cut heals."""
    chance = cluster.chance
    async with _clients(cluster) as clients:
        await clients.create("t", replication=3)
        await _grown(cluster)
        await clients.agree()
        names = await acceptors(cluster, cluster.machines[0], "t")
        server = chance.choice([machine for machine in cluster.machines if machine.name in names])
        config = await config_of(cluster, server, "t")
        for count in (1, 1, 30):
            config = await clients.transact(server, "t", config, count)
            await _shows(cluster, "t", config, within_s=1.0)
            await trio.sleep(chance.uniform(0, 3))
        other = chance.choice([machine for machine in cluster.machines if machine is not server])
        rest = [machine.host for machine in cluster.machines if machine is not other]
        cluster.network.partition([other.host], rest)
        await trio.sleep(chance.uniform(0, 30))
        config = await clients.transact(server, "t", config, 3)
        cluster.network.heal()
        await _shows(cluster, "t", config, within_s=5.0)


async def two_lone(cluster: SimulatedCluster) -> None:
    """Two lone nodes without tables become one cluster; then both are asked for a table, and one of them founds."""
    one, other = cluster.machines[:2]
    await one.start()
    await other.start()
    await trio.sleep(cluster.chance.uniform(0, 30))
    other.config = replace(other.config, join=(one.address,))
    await other.stop()
    await other.start()
    await settle(cluster, BACK_S)
    clients = TableClients(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.create, "a")
        nursery.start_soon(clients.create, "b")
    await clients.agree()


async def two_clusters(cluster: SimulatedCluster) -> None:
    """Two nodes that each created a table before they met stay two clusters, and each keeps its table."""
    one, other = cluster.machines[:2]
    made = []
    for machine in (one, other):
        await machine.start()
        made.append(await TableClients(cluster).create("a", at=machine))
    other.config = replace(other.config, join=(one.address,))
    await other.stop()
    await other.start()
    await trio.sleep(30)
    for machine, table in zip((one, other), made, strict=True):
        told = await cluster.ask(machine, "partition_map", "a")
        assert isinstance(told, dict)
        if told["table"] != table:
            raise Violation(f"{machine.name} made the table {table}, and shows {told['table']!r}")
        seen = await views.members(cluster, machine)
        if [name for name, each in seen.items() if each.state == "alive"] != [machine.name]:
            raise Violation(f"{machine.name} has made friends with another cluster: {seen}")


async def cut_while_founding(cluster: SimulatedCluster) -> None:
    """The network falls apart as both sides create the first tables: exactly one catalogue is founded."""
    chance, machines = cluster.chance, list(cluster.machines)
    async with _clients(cluster) as clients:
        async with _resolved() as nursery:
            for name in names_of(2 * TABLES):
                nursery.start_soon(clients.create, name)
            await trio.sleep(chance.choice((0.0, chance.uniform(0, 0.3), chance.uniform(0, 3))))
            chance.shuffle(machines)
            here = chance.randrange(1, len(machines))
            cluster.network.partition(
                [machine.host for machine in machines[:here]],
                [machine.host for machine in machines[here:]],
                one_way=chance.choice(EVEN),
            )
            await trio.sleep(chance.uniform(1, 60))
            cluster.network.heal()
            await settle(cluster, HEALED_S)
        await clients.agree()


async def founder_lost(cluster: SimulatedCluster) -> None:
    """The founder is lost before it founds: no other node founds, until an operator forces a new catalogue."""
    async with _clients(cluster) as clients:
        founder = await _founder(cluster)
        founder.kill()
        founder.lose_disk()
        await shown(cluster, founder, "dead", 45.0)
        others = [machine for machine in cluster.machines if machine is not founder]
        for machine in others:
            try:
                options: Value = {"kind": "hash", "replication": 1, "timeout_ms": 9000}
                await cluster.ask(machine, "create_table", "a", options)
            except Unavailable as error:
                if "metadata force" not in error.message:
                    raise Violation(f"{machine.name} does not say what to do: {error.message}") from error
            else:
                raise Violation(f"{machine.name} has founded a catalogue, which was not its to found")
        asked, survivor = cluster.chance.choice(others), cluster.chance.choice(others)
        await cluster.ask(asked, "metadata_force", None, [survivor.name], timeout_s=30)
        await clients.create("a")
        if cluster.chance.choice(EVEN):
            other = next(machine for machine in others)
            founder.config = replace(founder.config, join=(other.address,))
            await founder.start()
            await settle(cluster, HEALED_S)
        await clients.agree()


async def acceptor_lost(cluster: SimulatedCluster) -> None:
    """The founder is lost once the catalogue has grown: tables come and go, and it is removed from the acceptors.

    Every survivor shows the other acceptors, and a node that was none takes the founder's place if there is one.
    """
    async with _clients(cluster) as clients:
        founder = await _founder(cluster)
        await clients.create("a", at=founder)
        await _grown(cluster)
        await clients.agree()
        founder.kill()
        founder.lose_disk()
        await clients.create("b")
        await clients.drop("a")
        await shown(cluster, founder, "dead", 45.0)
        others = [machine for machine in cluster.machines if machine is not founder]
        deciding = set(await acceptors(cluster, others[0])) - {founder.name}
        await _until_done(cluster, others[0], "metadata_leave", None, founder.name)
        if founder.name in await acceptors(cluster, others[0]):
            raise Violation(f"{founder.name} has left, and decides")
        if spare := sorted({machine.name for machine in others} - deciding):
            await _until_done(cluster, others[0], "metadata_join", None, spare[0])
            deciding.add(spare[0])

        async def decide() -> bool:
            """Every survivor shows exactly the acceptors that should be there."""
            return all([set(await acceptors(cluster, machine)) == deciding for machine in others])

        await cluster.until(decide, within_s=GROWN_S)
        await clients.create("c")
        await clients.agree()


# # -- parts of the scenarios
# -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _clients(cluster: SimulatedCluster) -> AsyncIterator[TableClients]:
    """Start all nodes; a task compares their views of the tables until the block ends."""
    await begin(cluster)
    clients = TableClients(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.observe)
        yield clients
        nursery.cancel_scope.cancel()
    if not clients.looks:
        raise Violation("nobody has looked")


@contextlib.asynccontextmanager
async def _resolved() -> AsyncIterator[trio.Nursery]:
    """Run clients in the block; soon after it, every request's outcome must be known."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.deadline = trio.current_time() + RESOLVED_S
    if nursery.cancel_scope.cancelled_caught:
        raise Violation(f"after {RESOLVED_S} s it is not known what became of a request")


async def _grown(cluster: SimulatedCluster) -> None:
    """Return when the catalogue has as many acceptors as it should."""
    wanted = max(size for size in SIZES if size <= len(cluster.machines))

    async def holds() -> bool:
        """The catalogue has as many acceptors as it should."""
        with contextlib.suppress(ServiceError, ValueError):
            found = [await acceptors(cluster, machine) for machine in cluster.machines if machine.runs]
            return all(len(each) == wanted for each in found)
        return False

    await cluster.until(holds, within_s=GROWN_S)


async def _shows(cluster: SimulatedCluster, table: str, config: int, *, within_s: float) -> None:
    """Return when all nodes show a table's map of that config id, or a later one."""

    async def holds() -> bool:
        return all([await config_of(cluster, machine, table) >= config for machine in cluster.machines])

    await cluster.until(holds, within_s=within_s, every_s=0.05)


async def _founder(cluster: SimulatedCluster) -> NodeMachine:
    """Return the node that may found the catalogue."""
    found: list[NodeMachine] = []

    async def holds() -> bool:
        """Exactly one node says that it may found the catalogue."""
        entries = await cluster.ask(cluster.machines[0], "entries", "tables")
        assert isinstance(entries, list)
        owners = {str(entry["owner"]) for entry in entries if isinstance(entry, dict) and entry["value"] == b""}
        found[:] = [machine for machine in cluster.machines if machine.name in owners]
        return len(found) == 1

    await cluster.until(holds, within_s=BACK_S)
    return found[0]


async def _until_done(cluster: SimulatedCluster, machine: NodeMachine, method: str, *params: str | None) -> None:
    async def holds() -> bool:
        try:
            await cluster.ask(machine, method, *params, timeout_s=30)
        except BadRequest:
            raise
        except GossipKVError:
            return False
        return True

    await cluster.until(holds, within_s=RESOLVED_S)
