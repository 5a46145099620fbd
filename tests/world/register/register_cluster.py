"""What the machines of a world have in common where registers run on them: connections, and what gossip would tell.

Gossip is not simulated here.  Where a node is, who the acceptors were last, and which incarnation of a store was seen,
all machines know at once; a process may begin with what was true once.  A store whose incarnation is not the latest has
gone back (a machine restored from a snapshot): everybody refuses it, itself included, for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.register.configuration import AcceptorId, Acceptors
from tests.world.connections import Connections
from tests.world.register.checkers import Checkers
from tests.world.register.history import History
from tests.world.register.log import Logs
from tests.world.store_disk import RigDisk

if TYPE_CHECKING:
    from tests.world.connections import Identity
    from tests.world.machine import Machine
    from tests.world.promises import Promises
    from tests.world.world import World


@final
class Cluster:
    """Machines that hold registers."""

    def __init__(self, world: World, promises: Promises) -> None:
        self.world = world
        self.connections = Connections(world)
        self.logs = Logs()
        self.histories: dict[bytes, History] = {}  # By register.
        self.checkers = Checkers(promises, self.logs, self.histories)
        self._acceptors: dict[int, tuple[AcceptorId, int]] = {}  # By machine: who it was last, on which disk.
        self._where: dict[bytes, Machine] = {}  # By the uuid of the node.
        self._incarnations: dict[int, int] = {}  # By store: the latest.
        self._gone_back: set[int] = set()  # Stores.

    def create(self, register: bytes, members: Acceptors) -> None:
        """Know of a register."""
        self.histories[register] = History(members)

    def began(self, machine: Machine, identity: Identity) -> None:
        """A process tells who it is."""
        uuid, store, incarnation = identity
        self._where[uuid] = machine
        self._acceptors[machine.number] = AcceptorId(uuid, store), disk_of(machine).number
        if incarnation <= self._incarnations.get(store, 0):
            self._gone_back.add(store)
            self.world.struck["went_back"] += 1
        self._incarnations[store] = max(incarnation, self._incarnations.get(store, 0))

    def hint(self, register: bytes) -> Acceptors:
        """Who its acceptors are, as somebody tells a process that has no record; or who they were at first."""
        history = self.histories[register]
        return self.world.streams["hints"].choice((history.acceptors, history.created))

    def where(self, node: bytes) -> Machine | None:
        """The machine of a node."""
        return self._where.get(node)

    def is_refused(self, store: int) -> bool:
        """Whether a store has gone back."""
        return store in self._gone_back

    def alive(self) -> set[AcceptorId]:
        """Whose disks are what they were."""
        return {
            acceptor
            for number, (acceptor, disk) in self._acceptors.items()
            if disk == disk_of(self.world.machines[number]).number and acceptor.store not in self._gone_back
        }


def disk_of(machine: Machine) -> RigDisk:
    """The disk of a machine that holds registers."""
    assert isinstance(machine.disk, RigDisk), machine.disk
    return machine.disk
