"""The nodes' views of each other, as clients get them, and a task that checks these views all the time.

All questions go over the wire to whole nodes; no check looks into a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import ServiceError
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

LOOK_EVERY_S: Final = 2.0
PATIENCE_S: Final = 2.0


class Seen(NamedTuple):
    """One node's view of a member."""

    state: str
    epoch: int
    incarnation: int


async def members(cluster: SimulatedCluster, machine: NodeMachine) -> dict[str, Seen]:
    """Return the members by name, as one node shows them.  Raises the errors of `SimulatedCluster.ask`."""
    told = await cluster.ask(machine, "members", timeout_s=PATIENCE_S)
    assert isinstance(told, list)
    return {str(_field(entry, "node")): _seen(entry) for entry in told}


async def children(cluster: SimulatedCluster, machine: NodeMachine, path: str) -> list[str]:
    """Return the names below a path, as one node shows them.  Raises the errors of `SimulatedCluster.ask`."""
    told = await cluster.ask(machine, "children", path, timeout_s=PATIENCE_S)
    assert isinstance(told, list)
    return [str(name) for name in told]


async def everything(cluster: SimulatedCluster, machine: NodeMachine, path: str) -> set[str]:
    """Return all names below a path, also those of suspects and the dead.  Raises the errors of `ask`."""
    told = await cluster.ask(machine, "entries", path, {"all": True}, timeout_s=PATIENCE_S)
    assert isinstance(told, list)
    return {str(_field(entry, "name")) for entry in told}


async def epoch(cluster: SimulatedCluster, machine: NodeMachine) -> int:
    return _whole(await cluster.ask(machine, "info", timeout_s=PATIENCE_S), "epoch")


async def is_isolated(cluster: SimulatedCluster, machine: NodeMachine) -> bool:
    """Return True if a node says that its view may be stale.  Raises the errors of `SimulatedCluster.ask`."""
    return bool(_field(await cluster.ask(machine, "info", timeout_s=PATIENCE_S), "isolated"))


async def agree(cluster: SimulatedCluster) -> bool:
    """Return True if each running node shows exactly the running nodes alive, in their present lives."""
    running = [machine for machine in cluster.machines if machine.runs]
    try:
        truth = {machine.name: await epoch(cluster, machine) for machine in running}
        for machine in running:
            shown = await members(cluster, machine)
            if truth != {name: seen.epoch for name, seen in shown.items() if seen.state == "alive"}:
                return False
            if any(seen.state == "suspect" for seen in shown.values()):
                return False
        places = [await children(cluster, machine, "nodes") for machine in running]
    except ServiceError:
        return False
    return all(found == places[0] for found in places) and len(places[0]) == len(running)


@final
class Observer:
    """A task that asks all nodes again and again, and compares their answers with earlier ones."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.calm = False  # Without faults no running node may be called dead.
        self._before: dict[tuple[str, int, str], Seen] = {}  # By observer, its life, and the member.
        self.looks = 0

    async def run(self) -> None:
        while True:
            for machine in self._cluster.machines:
                if machine.runs:
                    await self._look(machine)
            await trio.sleep(LOOK_EVERY_S)

    async def _look(self, machine: NodeMachine) -> None:
        life = machine.lives
        try:
            shown = await members(self._cluster, machine)
        except ServiceError:
            return  # The node has ended meanwhile, or is drowned in faults.
        self.looks += 1
        running = {other.name for other in self._cluster.machines if other.runs}
        for name, seen in shown.items():
            before = self._before.get((machine.name, life, name))
            if before is not None and seen[1:] < before[1:]:
                raise Violation(f"{machine.name} says of {name} {seen} after {before}")
            if self.calm and name in running and seen.state == "dead":
                raise Violation(f"{machine.name} says that {name} is dead, which runs")
            self._before[machine.name, life, name] = seen


def _field(value: Value, name: str) -> Value:
    assert isinstance(value, dict)
    return value[name]


def _whole(value: Value, name: str) -> int:
    found = _field(value, name)
    assert isinstance(found, int)
    return found


def _seen(entry: Value) -> Seen:
    return Seen(str(_field(entry, "state")), _whole(entry, "epoch"), _whole(entry, "incarnation"))
