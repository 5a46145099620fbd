"""The simulated world: machines on a network in virtual time, all of it from one number.

    world = World(seed)
    a = world.add("a", rig); b = world.add("b", rig, joins=[a.address])
    a.start(); b.start()
    world.run(60 * SECOND)

The same number, the same inputs: the same run, event by event; `trace` is a fold of all of it.  Time is microseconds
(`scheduler.py`), randomness is a stream for each subject (`streams.py`); `network.py`, `machine.py` and the disks say
what can go wrong.  What the machines are for, their rigs know.  Which faults a run has is for its scenario to choose
(`faults.py`); whether what happened was right is for checkers, which look at what a user could see.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, final

from gossipkv.address import DEFAULT_PORT, Address
from tests.world.disk import Disk
from tests.world.machine import Machine
from tests.world.network import Network
from tests.world.scheduler import Scheduler
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.world.rig import MachineDisk, Rig


@final
class World:
    """A world of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.streams = Streams(seed)
        self.struck: Counter[str] = Counter()  # How often each fault struck.
        self.network = Network(self.scheduler, self.streams, self.struck)
        self.machines: list[Machine] = []
        # By the type of what a process tells whoever runs it.
        self.on_told: defaultdict[type, list[Callable[[Machine, object], None]]] = defaultdict(list)
        self.on_moment: list[Callable[[Machine], None]] = []  # Around each change of who a process says it is.
        self.on_ended: list[Callable[[Machine], None]] = []

    @property
    def now_us(self) -> int:
        """The time of the world, which no machine knows."""
        return self.scheduler.now_us

    @property
    def trace(self) -> str:
        """What happened, folded: equal runs have equal traces."""
        return f"{self.network.trace:08x}-{self.scheduler.happened}-{self.network.sent}"

    def add(
        self,
        name: str,
        rig: Callable[[Machine], Rig],
        *,
        disk: MachineDisk | None = None,
        joins: Sequence[Address] = (),
    ) -> Machine:
        """A machine more, which is off; without a `disk`, one that keeps a node's documents."""
        disk = Disk(name, self.streams, self.struck) if disk is None else disk
        machine = Machine(self, len(self.machines), name, self.free_address(), rig=rig, disk=disk)
        machine.joins += joins
        # No two machines came up at the same time: what one clock says means nothing on another.
        machine.clocks.offset_us = self.streams["clock/offset"].randrange(1 << 40)
        self.machines.append(machine)
        return machine

    def free_address(self) -> Address:
        number = len(self.network.addresses) + 1
        return Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", DEFAULT_PORT)

    def run(self, seconds_us: int) -> None:
        self.scheduler.run(self.scheduler.now_us + seconds_us)

    def look_closely(self, machine: Machine) -> None:
        """Called by a machine around each change of who its process says it is."""
        for moment in self.on_moment:
            moment(machine)

    def told(self, machine: Machine, what: object) -> None:
        """Called by a rig whose process has something to tell whoever runs it."""
        for hear in self.on_told[type(what)]:
            hear(machine, what)

    def process_ended(self, machine: Machine) -> None:
        """Called by a machine whose process is about to end."""
        self.look_closely(machine)
        for ended in self.on_ended:
            ended(machine)
