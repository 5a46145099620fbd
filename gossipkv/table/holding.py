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
        metadata.on_forgotten = self._drop

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

    def _take_up(self, table: bytes, version: int, partition: Partition) -> None:
        hosts = [
            Host(one.id, one.node, one.slot, one.state != State.LEAVING, one.state in {State.AVAILABLE, State.LEAVING})
            for one in partition.assignments
        ]
        for one in partition.assignments:
            if one.node == self._metadata.me.node:
                self._replication.replicas.place(Identity(table, partition.id, one.id), version, hosts)

    def _drop(self, table: bytes) -> None:
        """A table has ended: nobody will read its records."""
        self._taken_up.pop(table, None)
        replicas = self._replication.replicas
        batch = Batch()
        for copy in [copy for copy in replicas.copies.values() if copy.identity.table == table]:
            replicas.drop(copy, batch)
        if batch.count:
            self._replication.append(batch, lambda: None)
