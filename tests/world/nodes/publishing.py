"""Nodes that publish and withdraw keys, and a task that reads them everywhere and looks for what must not be.

No key is published twice, so one that is over (withdrawn, or its owner's life has ended) and that a node does not have
any more must never be had there again.  What a node has is asked with `all`: the keys of a suspect are only hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import ServiceError
from tests.world.nodes import views
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

PATH: Final = "things"
READ_EVERY_S: Final = 0.5


class MachineLife(NamedTuple):
    """One life of one machine."""

    machine: NodeMachine
    number: int

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return self.machine.runs and self.machine.lives == self.number


@final
class Publishing:
    """What all nodes publish below `PATH`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._owners: dict[str, MachineLife] = {}  # Of every key that ever was.
        self._withdrawn: set[str] = set()
        self._seen: dict[tuple[str, int], set[str]] = {}  # What an observer saw at its latest look,
        self._gone: dict[tuple[str, int], set[str]] = {}  # and what was over when it was gone there.
        self.reads = 0

    def step(self, machine: NodeMachine) -> None:
        """Publish something new, or withdraw something."""
        gossiping, chance = machine.gossiping, self._cluster.chance
        if not machine.runs or gossiping is None:
            return
        mine = sorted(key for key in self.published() if self._owners[key].machine is machine)
        if mine and chance.randrange(2):
            key = chance.choice(mine)
            gossiping.withdraw(f"{PATH}/{key}")
            self._withdrawn.add(key)
        else:
            key = f"{len(self._owners):04}@{machine.name}"
            gossiping.publish(f"{PATH}/{key}", key.encode())
            self._owners[key] = MachineLife(machine, machine.lives)
        self._cluster.trace.note(machine.name, "withdraw" if key in self._withdrawn else "publish", key)

    def published(self) -> set[str]:
        """What is there, in truth."""
        return {key for key, life in self._owners.items() if life.goes_on and key not in self._withdrawn}

    async def run(self) -> None:
        """Read everywhere, until cancelled."""
        while True:
            for machine in self._cluster.machines:
                if machine.runs:
                    await self._read(machine)
            await trio.sleep(READ_EVERY_S)

    async def _read(self, machine: NodeMachine) -> None:
        observer = machine.name, machine.lives
        over = self._owners.keys() - self.published()  # Before it answers.
        try:
            shown = await views.everything(self._cluster, machine, PATH)
        except ServiceError:
            return
        self.reads += 1
        gone = self._gone.setdefault(observer, set())
        if gone & shown:
            raise Violation(f"{machine.name} has {sorted(gone & shown)} again")
        if not shown <= self._owners.keys():
            raise Violation(f"{machine.name} has {sorted(shown - self._owners.keys())}, which nobody published")
        gone |= (self._seen.get(observer, set()) - shown) & over
        self._seen[observer] = shown

    async def is_shown(self) -> bool:
        """Every node shows what is published, and nothing else."""
        truth = sorted(self.published())
        try:
            for machine in self._cluster.machines:
                if machine.runs and await views.children(self._cluster, machine, PATH) != truth:
                    return False
        except ServiceError:
            return False
        return True
