"""The shared parts of a world with registers: connections, and the knowledge that gossip would spread.

Gossip is not simulated here.  All machines know the nodes' addresses and the latest acceptors at once; a process may
begin with older acceptors.  A store that has gone back (a machine restored from a snapshot) is detected by the
product's rule alone.  For faults and checkers, `seen` records which nodes have durably seen which positions, by the
rule of what a batch has to contain: a store goes back only where each quorum with it has a member that knows better.
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
    def __init__(self, world: World, promises: Promises) -> None:
        self.world = world
        self.connections = Connections(world)
        self.logs = Logs()
        self.histories: dict[bytes, History] = {}  # By register.
        self.checkers = Checkers(promises, self.logs, self.histories)
        # By machine: its latest acceptor, and the disk's number.
        self._acceptors: dict[int, tuple[AcceptorId, int]] = {}
        self._where: dict[bytes, Machine] = {}  # By the uuid of the node.
        self.gone_back: set[int] = set()  # Stores that went back, detected or not.
        # By the node that saw, and the store that was seen.
        self.seen: dict[AcceptorId, dict[AcceptorId, set[Position]]] = {}

    def create(self, register: bytes, members: Acceptors) -> None:
        self.histories[register] = History(members)

    def began(self, machine: Machine, identity: Identity) -> None:
        uuid, store, _ = identity
        self._where[uuid] = machine
        self._acceptors[machine.number] = AcceptorId(uuid, store), disk_of(machine).number

    def hint(self, register: bytes) -> Acceptors:
        """Return the present acceptors or the first ones, as a process without a record may be told."""
        history = self.histories[register]
        return self.world.streams["hints"].choice((history.acceptors, history.created))

    def where(self, node: bytes) -> Machine | None:
        return self._where.get(node)

    def saw(self, who: AcceptorId, rows: Iterable[tuple[AcceptorId, Position]]) -> None:
        """Note that an acceptor has synced a batch that was appended after it had heard these positions."""
        for acceptor, position in rows:
            self.seen.setdefault(who, {}).setdefault(acceptor, set()).add(position)

    def may_go_back(self, acceptor: AcceptorId, reached: Position) -> bool:
        """Return True if every quorum that could decide with the old store has a member that can tell it is behind."""
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
    """Return True if a store at `reached` has never been at this position of its own line."""
    if position[:2] == reached[:2]:
        return position.batches > reached.batches
    return position.incarnation >= reached.incarnation


def disk_of(machine: Machine) -> RigDisk:
    assert isinstance(machine.disk, RigDisk), machine.disk
    return machine.disk
