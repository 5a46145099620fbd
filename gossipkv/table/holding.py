"""Which partitions this node holds: what the maps say that are known here becomes copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.placement.partition import State
from gossipkv.register.metadata.partitions import decode_partition
from gossipkv.replication.copy import Host, Identity
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.shell import Replication

FEW: Final = 64  # Partitions that are looked at before others have a turn.


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
            for number, entry in enumerate(tree.scan()):
                if entry.version > config:
                    self._take_up(table.id, entry.version, decode_partition(entry.record))
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
            self._taken_up[table.id] = known.head.root, tree.root.config
            self._replication.goes_by(table.id, tree.root.config)
        self._let_go()

    def _take_up(self, table: bytes, version: int, partition: Partition) -> None:
        hosts = [
            Host(one.id, one.node, one.slot, one.state != State.LEAVING, one.state in {State.AVAILABLE, State.LEAVING})
            for one in partition.assignments
        ]
        for one in partition.assignments:
            if one.node == self._metadata.me.node:
                self._replication.replicas.place(Identity(table, partition.id, one.id), version, hosts)

    def _forget(self, table: bytes) -> None:
        self._taken_up.pop(table, None)
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
