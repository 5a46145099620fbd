"""Clients that create and drop tables at whole nodes, and checks of the reported outcomes.

Each client has a table name of its own, so it knows the true state.  A done operation stays done, a refused one never
happens, and after an unknown outcome the client asks again, under the same id, until it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import (
    Conflict,
    GossipKVError,
    NotReady,
    Overloaded,
    TimedOut,
    Unavailable,
    Unknown,
    UnknownDatabase,
)
from gossipkv.register.metadata.operations import Operation, OperationOutcome
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

UNDECIDED: Final = (Unavailable, Unknown, TimedOut, NotReady, Overloaded)
OPERATION_BYTES: Final = 20
ANSWER_S: Final = 30.0
PATIENCE_S: Final = 5.0
LOOK_EVERY_S: Final = 1.0
RESOLVED_S: Final = 40.0
AGREED_S: Final = 60.0  # The registers are polled twice in that time.


@final
class TableClients:
    """The clients of one run, and a task that compares the nodes' views."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.made: dict[str, str] = {}  # The ids of existing tables, by name.
        self.done = 0
        self.looks = 0
        self._ids: set[str] = set()
        self._is_over = False
        # The latest config id of the catalogue that each machine showed, per disk.
        self._last: dict[tuple[str, int], int] = {}
        self._digests: dict[int, Value] = {}  # The catalogue's digest by config id: every node must show the same.
        # A table's map by table and config id: every node must show the same.
        self._maps: dict[tuple[str, int], list[Value]] = {}

    # # -- clients -----------------------------------------------------------------------------------------------------

    async def run(self, name: str, pause_s: float = 1.0) -> None:
        """Create and drop the table of that name until `finish`; the operation under way is completed."""
        chance = self._cluster.chance
        while not self._is_over:
            if name in self.made:
                await self.drop(name)
            else:
                await self.create(name)
            await trio.sleep(chance.expovariate(1 / pause_s))

    def finish(self) -> None:
        self._is_over = True

    async def create(
        self, name: str, *, at: NodeMachine | None = None, replication: int = 1, ttl_ms: int | None = None
    ) -> str:
        """Create a table through any node, or through `at`; return its id."""
        chance = self._cluster.chance
        operation = chance.randbytes(OPERATION_BYTES)
        partitions = chance.choice((1, 4, 16))
        options: Value = {
            "kind": "hash", "partitions": partitions, "replication": replication, "operation": operation,
            **({} if ttl_ms is None else {"ttl_ms": ttl_ms}),
        }  # fmt: skip
        while True:
            try:
                told = await self._ask(at, "create_table", name, options)
            except UNDECIDED:
                await self._pause()
            except Conflict as error:
                raise Violation(f"{name} was not there, and cannot be made: {error.message}") from error
            else:
                break
        made = _text(told, "table")
        if made in self._ids:
            raise Violation(f"{name} got the id {made}, which another table had")
        self._ids.add(made)
        self.made[name] = made
        self.done += 1
        return made

    async def drop(self, name: str) -> None:
        is_first = True
        while True:
            try:
                told = await self._ask(None, "drop_table", name)
            except UNDECIDED:
                is_first = False
                await self._pause()
            except UnknownDatabase as error:
                if is_first:
                    raise Violation(f"{name} was made, and is not there: {error.message}") from error
                break
            else:
                if _text(told, "table") != self.made[name]:
                    raise Violation(f"{name} was {self.made[name]}, and {told!r} was dropped")
                if is_first and _field(told, "before"):
                    raise Violation(f"nobody else drops {name}, and somebody is said to have: {told!r}")
                break
        del self.made[name]
        self.done += 1

    async def transact(self, at: NodeMachine, name: str, config: int, count: int) -> int:
        """Run `count` transactions without effect, one after another, through an acceptor of the table.

        `config` is the config id before them; no other client may make any.  Return the config id after them.
        """
        first, *_ = _rows(await self._ask(at, "partition_map", name))
        assert isinstance(first, list)
        for base in range(config, config + count):
            id_ = self._cluster.chance.randbytes(OPERATION_BYTES)
            sent: Value = [Operation(id_, base, "unassign", 1, (first[1], first[0], 0)).encode()]
            told = await self._ask(at, "metadata_transact", bytes.fromhex(self.made[name]), sent, 5_000)
            if told != [[id_, OperationOutcome.DONE, "", ""]]:
                raise Violation(f"a transaction on {name} ends as {told!r}")
        return config + count

    async def _ask(self, at: NodeMachine | None, method: str, *params: Value) -> Value:
        machine = at or self._cluster.chance.choice(self._cluster.machines)
        return await self._cluster.ask(machine, method, *params, timeout_s=ANSWER_S)

    async def _pause(self) -> None:
        await trio.sleep(self._cluster.chance.uniform(0, 1))

    # # -- views -------------------------------------------------------------------------------------------------------

    async def observe(self) -> None:
        """Look at all nodes again and again, until cancelled: for one config id all must show the same."""
        while True:
            for machine in self._cluster.machines:
                if machine.runs:
                    await self.look(machine)
            await trio.sleep(LOOK_EVERY_S)

    async def look(self, machine: NodeMachine) -> set[str]:
        """Look at one node; return the names of the tables that it shows."""
        life, place = machine.lives, (machine.name, machine.disks)
        # Another look may run at the same time, and its question may overtake this one.
        before = self._last.get(place, 0)
        try:
            told = await self._cluster.ask(machine, "databases", timeout_s=PATIENCE_S)
            registers = await self._cluster.ask(machine, "metadata_status", None, timeout_s=PATIENCE_S)
        except UNDECIDED:
            return set()
        assert isinstance(told, list)
        assert isinstance(registers, list)
        self.looks += 1
        for register in registers:
            if _field(register, "table") is None and life == machine.lives:
                self._compare(machine, register, before)
        names = {str(_field(one, "name")) for one in told if _field(one, "kind") != "dataset"}
        for name in sorted(names):
            try:
                shown = await self._cluster.ask(machine, "partition_map", name, timeout_s=PATIENCE_S)
            except (*UNDECIDED, UnknownDatabase):
                continue
            table, config = _text(shown, "table"), _whole(shown, "config")
            rows = _rows(shown)
            if self._maps.setdefault((table, config), rows) != rows:
                raise Violation(f"{machine.name} shows another map {config} of {table}")
        return names

    def _compare(self, machine: NodeMachine, register: Value, before: int) -> None:
        config = _whole(register, "generation") << 48 | _whole(register, "sequence")
        digest = _field(register, "digest")
        if self._digests.setdefault(config, digest) != digest:
            raise Violation(f"{machine.name} shows another catalogue {config}: it has forked")
        if config < before:
            raise Violation(f"{machine.name} shows the catalogue {config} after {before}")
        place = machine.name, machine.disks
        self._last[place] = max(config, self._last.get(place, 0))

    async def agree(self, within_s: float = AGREED_S) -> None:
        """Return when all running nodes show the existing tables, with the same maps."""

        async def holds() -> bool:
            """All running nodes show the existing tables, each with its map."""
            for machine in self._cluster.machines:
                if machine.runs and not await self._is_right(machine):
                    return False
            return True

        await self._cluster.until(holds, within_s=within_s, every_s=1.0)

    async def _is_right(self, machine: NodeMachine) -> bool:
        if await self.look(machine) != self.made.keys():
            return False
        for name, table in self.made.items():
            try:
                shown = await self._cluster.ask(machine, "partition_map", name, timeout_s=PATIENCE_S)
            except GossipKVError:
                return False
            if _text(shown, "table") != table:
                return False
        return True


async def acceptors(cluster: SimulatedCluster, machine: NodeMachine, table: str | None = None) -> list[str]:
    """Return the acceptors of a register, as one node shows them.  Raises the errors of `SimulatedCluster.ask`."""
    told = await cluster.ask(machine, "metadata_status", table, timeout_s=PATIENCE_S)
    assert isinstance(told, list)
    (register,) = (one for one in told if _field(one, "table") == table)
    members = _field(register, "new")
    assert isinstance(members, list)
    return [_text(one, "node") for one in members]


async def config_of(cluster: SimulatedCluster, machine: NodeMachine, table: str) -> int:
    """Return the config id of a table's map, as one node shows it; 0: the node shows none."""
    try:
        return _whole(await cluster.ask(machine, "partition_map", table, timeout_s=PATIENCE_S), "config")
    except (*UNDECIDED, UnknownDatabase):
        return 0


def names_of(count: int) -> Iterable[str]:
    return [f"table-{number}" for number in range(count)]


def _rows(shown: Value) -> list[Value]:
    """Return a map without the names of nodes, not all of which a new node knows."""
    partitions = _field(shown, "partitions")
    assert isinstance(partitions, list)
    found: list[Value] = []
    for partition in partitions:
        assignments = _field(partition, "assignments")
        assert isinstance(assignments, list)
        found.append([_field(partition, "id"), _field(partition, "start"), [_field(one, "id") for one in assignments]])
    return found


def _field(value: Value, name: str) -> Value:
    assert isinstance(value, dict), value
    return value[name]


def _text(value: Value, name: str) -> str:
    found = _field(value, name)
    assert isinstance(found, str), found
    return found


def _whole(value: Value, name: str) -> int:
    found = _field(value, name)
    assert isinstance(found, int), found
    return found
