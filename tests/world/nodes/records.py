"""Whole nodes that keep records of tables: all nodes return every acknowledged write, and nothing else."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, cast, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, UnknownDatabase
from tests.world.nodes.phases import EVEN, begin, settle
from tests.world.nodes.table_clients import TableClients
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

KEYS: Final = 12
PACE_S: Final = 0.05
EQUAL_S: Final = 15.0
PATIENCE_S: Final = 2.0  # Twice a write's time-out: a node that has lost power never answers.
REFUSED: Final = (NotReady, Overloaded, UnknownDatabase)


@final
class Writer:
    """A client that never writes a value twice, and knows the values that each key may have.

    The writes to a key are a session: otherwise a node that comes back with a slower clock may give one an earlier
    time than the last one has.
    """

    def __init__(self, cluster: SimulatedCluster, table: str) -> None:
        self._cluster = cluster
        self._table = table
        self._count = 0
        self._tokens: dict[bytes, Value] = {}
        # By key: the last acknowledged value, and those with an unknown outcome.
        self.may_be: dict[bytes, set[bytes | None]] = {}
        self._unknown: dict[bytes, set[bytes | None]] = {}
        self.acknowledged = 0

    async def run(self) -> None:
        """Write at all running nodes, one key after the other, until cancelled."""
        while True:
            machine = self._cluster.chance.choice([one for one in self._cluster.machines if one.runs])
            with contextlib.suppress(GossipKVError):
                await self.write(machine)
            await trio.sleep(PACE_S)

    async def write(self, machine: NodeMachine) -> None:
        self._count += 1
        key = b"key %d" % (self._count % KEYS)
        value = None if self._cluster.chance.random() < 0.2 else b"value %d" % self._count
        unknown, may_be = self._unknown.get(key, set()), self.may_be.get(key, {None})
        self._unknown[key], self.may_be[key] = unknown | {value}, may_be | {value}
        try:
            method, values = ("delete", []) if value is None else ("put", [value])
            options: Value = {"token": self._tokens.get(key)}
            self._tokens[key] = await self._cluster.ask(
                machine, method, self._table, key, *values, options, timeout_s=PATIENCE_S
            )
        except REFUSED:
            self._unknown[key], self.may_be[key] = unknown, may_be
            raise
        self.acknowledged += 1
        self._unknown[key], self.may_be[key] = unknown, {value, *unknown}

    async def check(self, machine: NodeMachine) -> str:
        """Return the difference between a node's records and the acknowledged ones; empty: there is none."""
        try:
            rows: list[tuple[bytes, bytes]] = []
            cursor = None
            while True:
                page = await self._cluster.ask(machine, "scan", self._table, {"limit": 5, "cursor": cursor})
                assert isinstance(page, list)
                rows += cast("list[tuple[bytes, bytes]]", page[0])
                cursor = page[1]
                if cursor is None:
                    break
            for key, may_be in self.may_be.items():
                got = await self._cluster.ask(machine, "get", self._table, key)
                assert isinstance(got, list)
                if got[0] not in may_be or dict(rows).get(key) not in may_be:
                    return f"{machine.name} has {got[0]!r} under {key!r}, which is one of {may_be}"
        except GossipKVError as error:
            return f"{machine.name}: {error.message}"
        if [key for key, _ in rows] != sorted(self.may_be.keys() & {key for key, _ in rows}):
            raise Violation(f"{machine.name} scans {rows}")
        return ""

    async def read_by_all(self) -> None:
        """Return when all nodes have the acknowledged records."""
        said: list[str] = []

        async def holds() -> bool:
            said[:] = [await self.check(machine) for machine in self._cluster.machines]
            return not any(said)

        try:
            await self._cluster.until(holds, within_s=EQUAL_S)
        except AssertionError:
            raise Violation("; ".join(filter(None, said))) from None


async def records(cluster: SimulatedCluster) -> None:
    """Any node writes and reads once a table exists; others go on while one is down, and it catches up."""
    await begin(cluster)
    clients, chance = TableClients(cluster), cluster.chance
    await clients.create("t", replication=3)
    writer = Writer(cluster, "t")
    for machine in cluster.machines:
        await writer.write(machine)
    await writer.read_by_all()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.sleep(chance.uniform(0, 2))
        machine = chance.choice(cluster.machines)
        if chance.choice(EVEN):
            machine.lose_power()
        else:
            machine.kill()
        before = writer.acknowledged
        await trio.sleep(5)
        if writer.acknowledged < before + 10:
            raise Violation(f"with {machine.name} down nobody writes: {writer.acknowledged - before}")
        await machine.start()
        await settle(cluster, 35.0)
        nursery.cancel_scope.cancel()
    await writer.read_by_all()


async def remade(cluster: SimulatedCluster) -> None:
    """A table that is dropped and created again during writes has no records of the former one."""
    await begin(cluster)
    clients = TableClients(cluster)
    for _ in range(2):
        await clients.create("t", replication=3)
        writer = Writer(cluster, "t")
        for machine in cluster.machines:
            await writer.write(machine)
        await writer.read_by_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await trio.sleep(cluster.chance.uniform(0, 2))
            await clients.drop("t")
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
