"""What the machines of a world have in common where registers run on them: connections, and what gossip would tell.

Gossip is not simulated here.  Where a node is, and who the acceptors were last, all machines know at once; a process
may begin with what was true once.  A store that has gone back (a machine restored from a snapshot) is known by the
product's rule alone.  For those who strike and judge it is written down who has durably seen what of whom, by what a
batch has to take along: a store goes back only where each quorum with it has one of those who know better.
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
    from collections.abc import Iterable

    from gossipkv.register.seen import Position
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
        self.gone_back: set[int] = set()  # Stores; whether anybody knows or not.
        self.seen: dict[AcceptorId, dict[AcceptorId, set[Position]]] = {}  # By whom, of whom.

    def create(self, register: bytes, members: Acceptors) -> None:
        self.histories[register] = History(members)

    def began(self, machine: Machine, identity: Identity) -> None:
        uuid, store, _ = identity
        self._where[uuid] = machine
        self._acceptors[machine.number] = AcceptorId(uuid, store), disk_of(machine).number

    def hint(self, register: bytes) -> Acceptors:
        """Who its acceptors are, as somebody tells a process that has no record; or who they were at first."""
        history = self.histories[register]
        return self.world.streams["hints"].choice((history.acceptors, history.created))

    def where(self, node: bytes) -> Machine | None:
        return self._where.get(node)

    def saw(self, who: AcceptorId, rows: Iterable[tuple[AcceptorId, Position]]) -> None:
        """Somebody has a batch on its disk that was appended after it had heard this."""
        for acceptor, position in rows:
            self.seen.setdefault(who, {}).setdefault(acceptor, set()).add(position)

    def may_go_back(self, acceptor: AcceptorId, reached: Position) -> bool:
        """Whether everybody who could decide something with this store, as it was there, can tell that it is behind."""
        alive = self.alive()
        knowing = {
            who
            for who in alive
            if any(is_beyond(position, reached) for position in self.seen.get(who, {}).get(acceptor, ()))
        }
        sets = {value.acceptors for history in self.histories.values() for value in history.values.values()}
        return bool(knowing) and not any(
            acceptor in each.everyone and each.is_quorum(each.everyone - knowing) for each in sets
        )

    def alive(self) -> set[AcceptorId]:
        return {
            acceptor
            for number, (acceptor, disk) in self._acceptors.items()
            if disk == disk_of(self.world.machines[number]).number and acceptor.store not in self.gone_back
        }


def is_beyond(position: Position, reached: Position) -> bool:
    """Whether a store that has come so far has not been at a position of its own line."""
    if position[:2] == reached[:2]:
        return position.batches > reached.batches
    return position.incarnation >= reached.incarnation


def disk_of(machine: Machine) -> RigDisk:
    """The disk of a machine that holds registers."""
    assert isinstance(machine.disk, RigDisk), machine.disk
    return machine.disk
