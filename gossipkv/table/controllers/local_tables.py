"""The tables of this node, as its controllers share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.placement.measures import MeasureLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from gossipkv.register.maps import AskNode, Beside
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.shell import Replication
    from gossipkv.settings.tables import TableSettings


class LocalTables(NamedTuple):
    """The maps and replicas of this node, and its access to other nodes."""

    metadata: Metadata
    catalogue: Catalogue
    replication: Replication
    settings: TableSettings
    random: Random
    ask: AskNode
    beside: Beside  # Runs a slow function in a worker thread.
    alive: Callable[[], Sequence[bytes]]  # Returns uuids of nodes that seem alive, in order, this node included.
    look_at: Callable[[bytes], object]  # Requests a read of a table's register, which has a newer map.
    restored: Callable[[], Collection[bytes]]  # Returns ids of hidden tables into which live nodes restore a backup.

    @property
    def split_limits(self) -> MeasureLimits:
        """The size beyond which a range is divided."""
        return MeasureLimits(self.settings.split_bytes, self.settings.split_rows)

    @property
    def stall_s(self) -> float:
        """The setting `move_stall`."""
        return self.settings.move_stall / 1000
