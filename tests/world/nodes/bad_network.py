"""Whole nodes on a bad network: partitions that heal, storms of faults, and publications meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import ServiceError
from tests.world.nodes import views
from tests.world.nodes.phases import EVEN, HEALED_S, SHOWN_S, begin, mend, settle, strike_one, watched
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster


PATH: Final = "things"
READ_EVERY_S: Final = 0.5


class MachineLife(NamedTuple):
    machine: NodeMachine
    number: int

    @property
    def goes_on(self) -> bool:
        return self.machine.runs and self.machine.lives == self.number


@final
class Publishing:
    """The entries that all nodes publish below `PATH`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._owners: dict[str, MachineLife] = {}  # The owner of every key that ever existed.
        self._withdrawn: set[str] = set()
        self._seen: dict[tuple[str, int], set[str]] = {}  # By observer: the keys of its latest look,
        self._gone: dict[tuple[str, int], set[str]] = {}  # and the keys that it no longer showed after their end.
        self.reads = 0

    def step(self, machine: NodeMachine) -> None:
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
        return {key for key, life in self._owners.items() if life.goes_on and key not in self._withdrawn}

    async def run(self) -> None:
        while True:
            for machine in self._cluster.machines:
                if machine.runs:
                    await self._read(machine)
            await trio.sleep(READ_EVERY_S)

    async def _read(self, machine: NodeMachine) -> None:
        observer = machine.name, machine.lives
        over = self._owners.keys() - self.published()  # Read before the answer.
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
        """Return True if every node shows exactly the published keys."""
        truth = sorted(self.published())
        try:
            for machine in self._cluster.machines:
                if machine.runs and await views.children(self._cluster, machine, PATH) != truth:
                    return False
        except ServiceError:
            return False
        return True


SHORT_S: Final = 5.0
LONG_S: Final = 240.0  # By then an isolated node, which probes more slowly, has found all others dead.

_SELDOM: Final = (True,) + 9 * (False,)
_WAYS: Final = ((False, False), (False, False), (True, False), (False, True))  # A cut is one way, or of datagrams only.


async def partition(cluster: SimulatedCluster) -> None:
    """Both sides of a partition go on alone, and reunite soon after it heals."""
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
    """Each side shows itself alive and the other dead; a node alone on its side shows isolation."""
    for side in sides:
        names = {machine.name for machine in side}
        for machine in side:
            alive = {name for name, seen in (await views.members(cluster, machine)).items() if seen.state == "alive"}
            if alive != names:
                raise Violation(f"{machine.name} shows {sorted(alive)} alive, on the side {sorted(names)}")
            if await views.is_isolated(cluster, machine) != (len(side) == 1):
                raise Violation(f"{machine.name} is wrong about being isolated, with {len(side)} on its side")


async def storm(cluster: SimulatedCluster) -> None:
    """After two minutes of faults of every kind, all is well again within the bound."""
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
    """Publications and withdrawals show everywhere soon; through loss, crashes and cuts no withdrawn entry returns."""
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
