"""A database that whole nodes share: its sources, its readers, and the promises of the nodes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, NotReady
from tests.world.datasets.checkers import AnswerCheckers
from tests.world.datasets.contents import DATABASE, KEY_NAMES
from tests.world.datasets.sharing_cluster import content_of
from tests.world.nodes.phases import start_later
from tests.world.nodes.readers import Readers
from tests.world.nodes.sources import ROOT, LaidOutSources
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

PARTITIONS: Final = 6
REASSIGN_AFTER_S: Final = 20
RETIRE_AFTER_S: Final = 10
RETIRE_MAX_S: Final = 120
LOOK_S: Final = 2  # Between two looks at the source.

ACTIVE_S: Final = 30.0  # From a version's arrival at the source until clients of all nodes get it, without faults.
ANSWERED_S: Final = 10.0  # From the end of faults: stale connections break, and new ones begin.
RETIRED_S: Final = RETIRE_AFTER_S + 30.0


@final
class SharedDatabase:
    """One database on the machines of a cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        replication: int | None = None,
        min_replication: int = 1,
        require_success_file: bool = False,
    ) -> None:
        """Set the config of all nodes; `replication` is drawn by default."""
        self.cluster = cluster
        self.machines = cluster.machines
        self.sources = LaidOutSources(cluster.machines)
        self.checkers = AnswerCheckers(self.sources.contents, now_us=lambda: int(trio.current_time() * 1e6))
        self.readers = Readers(cluster, self.checkers)
        self.replication = replication or cluster.chance.choice((1, 2, 3))
        for machine in cluster.machines:
            machine.config = replace(
                machine.config,
                source=ROOT,
                profile="local",
                time_to_converge=3_000,
                refresh_period=LOOK_S * 1000,
                retire_after=RETIRE_AFTER_S * 1000,
                retire_max=RETIRE_MAX_S * 1000,
                reassign_after=REASSIGN_AFTER_S * 1000,
                proxy_timeout=1_000,
                build_memory=8 << 20,
                replication=self.replication,
                min_replication=min_replication,
                require_success_file=require_success_file,
                join=tuple([other.address for other in cluster.machines if other is not machine][:2]),
            )
        self.sources.lay_out()

    def offer(self, version: str, partitions: int = PARTITIONS) -> None:
        """Put a version at the shared source."""
        self.sources.add(content_of(version, partitions))

    def join(self, machine: NodeMachine, *addresses: Address) -> None:
        """Tell a node to join only these addresses in its next life."""
        machine.config = replace(machine.config, join=addresses)

    async def start(self, *machines: NodeMachine, within_s: float = 1.0) -> None:
        async with trio.open_nursery() as nursery:
            for machine in machines or self.machines:
                nursery.start_soon(start_later, machine, self.cluster.chance.uniform(0, within_s))

    # Statements of nodes

    async def active(self, machine: NodeMachine) -> str | None:
        """Return the version that a node serves by default; None: it serves none, or does not answer."""
        try:
            told = await self.cluster.ask(machine, "databases", timeout_s=2.0)
        except GossipKVError:
            return None
        assert isinstance(told, list)
        return next((_text(_field(entry, "version")) for entry in told if _field(entry, "name") == DATABASE), None)

    async def has(self, machine: NodeMachine, version: str) -> bool:
        """Return True if a node answers from this version or a newer one."""
        try:
            await self.cluster.ask(machine, "get", DATABASE, KEY_NAMES[0], {"min_version": version})
        except NotReady:
            return False
        return True

    async def status(self, machine: NodeMachine, *, local: bool = True) -> dict[str, Value]:
        """Return a node's status of the database, or raise its error."""
        told = await self.cluster.ask(machine, "status", {"local": local, "database": DATABASE}, timeout_s=5.0)
        found = _field(told, DATABASE)
        assert isinstance(found, dict)
        return {str(name): value for name, value in found.items()}

    async def versions(self, machine: NodeMachine, *, local: bool = True) -> dict[str, dict[str, Value]]:
        try:
            found = (await self.status(machine, local=local))["versions"]
        except GossipKVError:
            return {}
        assert isinstance(found, dict)
        return {str(name): version for name, version in found.items() if isinstance(version, dict)}

    async def held(self, machine: NodeMachine, version: str) -> set[int]:
        """Return the local partitions of a version on a node."""
        found = (await self.versions(machine)).get(version, {}).get("partitions", [])
        assert isinstance(found, list)
        return {number for entry in found if isinstance(number := _field(entry, "partition"), int)}

    async def copies(self, version: str) -> int:
        """Return the number of partition copies on all running nodes."""
        return sum([len(await self.held(machine, version)) for machine in self.machines if machine.runs])

    # Promises

    async def until(
        self, what: str, holds: Callable[[], Awaitable[bool]], *, within_s: float, every_s: float = 0.25
    ) -> None:
        """Return when `holds` is true.  Raises `Violation` if that takes too long."""
        end_s = trio.current_time() + within_s
        while not await holds():
            if trio.current_time() >= end_s:
                active = {machine.name: await self.active(machine) for machine in self.machines if machine.runs}
                raise Violation(f"not within {within_s:.0f} s: {what}; active: {active}")
            await trio.sleep(every_s)

    async def until_active(self, version: str, *machines: NodeMachine, within_s: float = ACTIVE_S) -> None:
        """Return when clients of the machines (all running ones by default) get a version."""

        async def holds() -> bool:
            asked = machines or [machine for machine in self.machines if machine.runs]
            return all([await self.active(machine) == version for machine in asked])

        await self.until(f"clients get {version}", holds, within_s=within_s)

    async def until_held(self, version: str, machine: NodeMachine) -> None:
        """Return when a node has some partition of a version."""

        async def holds() -> bool:
            return bool(await self.held(machine, version))

        await self.until(f"{machine.name} has a share of {version}", holds, within_s=ACTIVE_S)

    async def until_gone(self, version: str, *, within_s: float = RETIRED_S) -> None:
        """Return when no running node has a copy of a version."""

        async def holds() -> bool:
            return await self.copies(version) == 0

        await self.until(f"{version} is gone", holds, within_s=within_s)

    async def until_answered(self) -> None:
        """Return when each running node answers each key; earlier failures are excused."""

        async def holds() -> bool:
            self.forgive()
            await self.read_all()
            return not self.readers.failures

        await self.until("every key is answered by all", holds, within_s=ANSWERED_S)

    def must_not_fail(self) -> None:
        """Raise `Violation` if a read has failed since the last call."""
        failures = list(self.readers.failures)
        self.readers.failures.clear()
        if failures:
            raise Violation(f"{len(failures)} reads failed: {failures[0]}")

    def forgive(self) -> None:
        """Excuse the failures of all reads that have begun so far."""
        self.readers.forgive()

    def must(self, holds: object, what: str) -> None:
        if not holds:
            raise Violation(what)

    async def read_all(self) -> None:
        for machine in self.machines:
            if machine.runs:
                await self.readers.read_all(machine)

    async def _forwarded(self, machine: NodeMachine) -> int:
        told = await self.cluster.ask(machine, "info")
        forwarded = _field(_field(told, "counters"), "forwarded")
        assert isinstance(forwarded, int)
        return forwarded

    @contextlib.asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Run clients during the block; at its end each node must answer every key."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.readers.run)
            yield
            await self.read_all()
            running = [machine for machine in self.machines if machine.runs]
            forwarded = sum([await self._forwarded(machine) for machine in running])
            self.must(forwarded or len(running) <= self.replication, "nobody has asked others for anything")
            nursery.cancel_scope.cancel()
        self.must(self.readers.answers, "nobody has read anything")


@contextlib.asynccontextmanager
async def formed(
    cluster: SimulatedCluster,
    *,
    replication: int | None = None,
    min_replication: int = 1,
    require_success_file: bool = False,
) -> AsyncIterator[SharedDatabase]:
    """Yield a database whose version 101 is active on all nodes, with clients that read."""
    database = SharedDatabase(
        cluster,
        replication=replication,
        min_replication=min_replication,
        require_success_file=require_success_file,
    )
    database.offer("101")
    await database.start()
    await database.until_active("101")
    async with database.read():
        await trio.sleep(2)
        yield database


def _field(value: Value, name: str) -> Value:
    assert isinstance(value, dict), value
    return value[name]


def _text(value: Value) -> str | None:
    return None if value is None else str(value)
