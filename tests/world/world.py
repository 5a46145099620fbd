"""The simulated world: machines on a network in virtual time, from one number.

    world = World(seed)
    a = world.add("a", rig); b = world.add("b", rig, joins=[a.address])
    a.start(); b.start()
    world.run(60 * SECOND)

The same number and inputs give the same run, event by event; `trace` is a fold of all events.  Time is in microseconds
(`scheduler.py`), randomness has a stream for each subject (`streams.py`); `network.py`, `machine.py` and the disks
define the faults.  The rigs know the machines' purpose.  A scenario chooses its faults (`faults.py`); checkers, which
see only users' views, decide if the run was right.
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
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.streams = Streams(seed)
        self.struck: Counter[str] = Counter()  # The strikes of each fault.
        self.network = Network(self.scheduler, self.streams, self.struck)
        self.machines: list[Machine] = []
        # By the type of a process's message to its supervisor.
        self.on_told: defaultdict[type, list[Callable[[Machine, object], None]]] = defaultdict(list)
        self.on_moment: list[Callable[[Machine], None]] = []  # Called around each change of a process's identity.
        self.on_ended: list[Callable[[Machine], None]] = []

    @property
    def now_us(self) -> int:
        """The time of the world, which no machine knows."""
        return self.scheduler.now_us

    @property
    def trace(self) -> str:
        """A fold of all events: equal runs have equal traces."""
        return f"{self.network.trace:08x}-{self.scheduler.happened}-{self.network.sent}"

    def add(
        self,
        name: str,
        rig: Callable[[Machine], Rig],
        *,
        disk: MachineDisk | None = None,
        joins: Sequence[Address] = (),
    ) -> Machine:
        """Add a machine, which is off; without a `disk`, it has one for a node's documents."""
        disk = Disk(name, self.streams, self.struck) if disk is None else disk
        machine = Machine(self, len(self.machines), name, self.free_address(), rig=rig, disk=disk)
        machine.joins += joins
        # Machines came up at different times: one clock's reading means nothing on another machine.
        machine.clocks.offset_us = self.streams["clock/offset"].randrange(1 << 40)
        self.machines.append(machine)
        return machine

    def free_address(self) -> Address:
        number = len(self.network.addresses) + 1
        return Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", DEFAULT_PORT)

    def run(self, seconds_us: int) -> None:
        self.scheduler.run(self.scheduler.now_us + seconds_us)

    def look_closely(self, machine: Machine) -> None:
        """Call the observers around a change of a process's identity."""
        for moment in self.on_moment:
            moment(machine)

    def told(self, machine: Machine, what: object) -> None:
        """Call the observers of a process's message to its supervisor."""
        for hear in self.on_told[type(what)]:
            hear(machine, what)

    def process_ended(self, machine: Machine) -> None:
        """Call the observers of a process that is about to end."""
        self.look_closely(machine)
        for ended in self.on_ended:
            ended(machine)
