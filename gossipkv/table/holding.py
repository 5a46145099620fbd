"""Which partitions this node holds: what the maps say that are known here becomes copies.

A copy whose assignment is not there any more *departs*: it is dropped when that is sure (`stepping`).  If it was
AVAILABLE by the map that it has adopted last, or was taken by force, it is *set aside* instead: it may have what others
lack, and merging that back would have old values win under new times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.placement.partition import State
from gossipkv.register.metadata.partitions import decode_partition, decode_table
from gossipkv.replication.copy import Host, Identity, Rules
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.copy import Copy
    from gossipkv.replication.shell import Replication

FEW: Final = 64  # Partitions that are looked at before others have a turn.


def hosts_of(partition: Partition) -> list[Host]:
    """The hosts of a partition, as copies know them."""
    count, serve = {State.INITIALIZING, State.AVAILABLE}, {State.AVAILABLE, State.LEAVING}
    return [Host(one.id, one.node, one.slot, one.state in count, one.state in serve) for one in partition.assignments]


def rules_of(partition: Partition, slots: int, own: int) -> Rules:
    """What else the map says of a partition, to the copy of an assignment; `slots`: the table's replication."""
    loads = any(one.state == State.INITIALIZING for one in partition.assignments if one.id == own)
    return Rules(slots, partition.former, partition.ends, loads)


@final
class Holding:
    """Takes up assignments of this node."""

    def __init__(self, metadata: Metadata, catalogue: Catalogue, replication: Replication) -> None:
        self._metadata = metadata
        self._catalogue = catalogue
        self._replication = replication
        self._taken_up: dict[bytes, tuple[bytes, int]] = {}  # By table: of which root, and its config id.
        self._may_be_left = True  # Copies of tables that have ended; at a start, of one that ended as the node did.
        metadata.on_forgotten = self._forget

    async def look(self) -> None:
        """Hold what the maps of all tables say by now.  Raises Overloaded, StorageError; what is left is for later."""
        for table in self._catalogue.tables().values():
            known = self._metadata.known.get(table.id)
            root, config = self._taken_up.get(table.id, (b"", -1))
            if known is None or known.head.ended or known.head.root == root:
                continue
            tree = self._metadata.tree(table.id)
            slots = decode_table(tree.root.meta).replication
            for number, entry in enumerate(tree.scan()):
                if entry.version > config:
                    self._take_up(table.id, entry.version, decode_partition(entry.record), slots)
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
            self._taken_up[table.id] = known.head.root, tree.root.config
            self._replication.goes_by(table.id, tree.root.config)
        self._let_go()

    def _take_up(self, table: bytes, version: int, partition: Partition, slots: int) -> None:
        replicas = self._replication.replicas
        own = next((one for one in partition.assignments if one.node == self._metadata.me.node), None)
        copy = replicas.copies.get((table, partition.id))
        if copy is not None and (own is None or own.id != copy.assignment):
            self._departs(copy, partition)
        if own is not None:
            identity, rules = Identity(table, partition.id, own.id), rules_of(partition, slots, own.id)
            replicas.place(identity, version, hosts_of(partition), rules)

    def _departs(self, copy: Copy, partition: Partition) -> None:
        """The map does not name a copy here."""
        if copy.was_available:
            self._replication.let_go(copy, why="it was AVAILABLE, and its assignment is not there any more")
        elif any(end.assignment == copy.assignment for end in partition.ends):
            self._replication.let_go(copy, why="its assignment was taken by force")
        else:
            self._replication.departs(copy)

    def drop(self, copy: Copy) -> None:
        """Drop a copy that has departed, and look at its table's map again: it may name this node anew.

        Raises:
            NotReady, Overloaded, StorageError: it stays.
        """
        self._replication.let_go(copy)
        self._taken_up.pop(copy.partition[0], None)

    def _forget(self, table: bytes) -> None:
        self._taken_up.pop(table, None)
        departed = self._replication.departed
        for copy in [copy for copy in departed if copy.partition[0] == table]:
            del departed[copy]
        self._replication.maps.pop(table, None)
        self._may_be_left = True

    def _let_go(self) -> None:
        """Drop copies of tables that have ended: a map is known here until then, also when only its name is lost."""
        if self._may_be_left:
            replicas, known = self._replication.replicas, self._metadata.known
            batch = Batch()
            for copy in [copy for (table, _), copy in replicas.copies.items() if table not in known]:
                replicas.drop(copy, batch)
            if batch.count:
                self._replication.append(batch, lambda: None)
            self._may_be_left = False
