"""Drops hidden tables whose restore has ended without a result: the node that restored was killed, or lost its store.

A node that restores a backup publishes the hidden table's id (`peers.hints`), like an ephemeral node of ZooKeeper. The
mover of a hidden table drops it after nobody has published its id for a while: the rebalancer looks in each round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.log import Log
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES
from gossipkv.settings.databases import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.table.controllers.local_tables import LocalTables

ABANDONED_S: Final = 60.0  # Longer than gossip needs to spread the id, and than a node stays suspect.


@final
class AbandonedRestores:
    """Finds and drops the abandoned hidden tables of which this node is the mover."""

    def __init__(self, tables: LocalTables, mover_of: Callable[[bytes], bytes]) -> None:
        self._tables, self._mover_of = tables, mover_of
        self._since: dict[bytes, float] = {}  # By table: the time since when nobody publishes its id.
        self.is_quiet = False  # True if no table is hidden.
        self._log = Log("gossipkv.node")

    async def look(self) -> None:
        """Drop the hidden tables that were abandoned for long enough.  Raises GossipKVError."""
        catalogue, now = self._tables.catalogue, trio.current_time()
        hidden = {table.id: name for name, table in catalogue.tables().items() if name.startswith(HIDDEN)}
        self.is_quiet = not hidden
        abandoned = hidden.keys() - self._tables.restored() if hidden else ()
        self._since = {table: self._since.get(table, now) for table in abandoned}
        for table, since in self._since.items():
            if now - since >= ABANDONED_S and self._mover_of(table) == self._tables.metadata.me.node:
                name, operation = hidden[table], self._tables.random.randbytes(OPERATION_ID_BYTES)
                self._log.warning("restore_abandoned", table=name.removeprefix(HIDDEN))
                await catalogue.drop(name, operation, table=table)
