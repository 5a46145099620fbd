"""Upkeep: the copies of which something is to be looked at by and by, since they have changed.

A node may hold thousands of copies, and most of them rest: nobody goes round those.  What a former life has left is not
known here; whoever looks goes through all copies once, in its own time, and from then on by what is noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.replication.replica import record

if TYPE_CHECKING:
    from gossipkv.replication.replica.replica import LogEntry, Replica


@final
class DirtyReplicas:
    """What has changed in this life, in its order."""

    def __init__(self) -> None:
        self.unswept: dict[Replica, None] = {}  # They may have tombstones: see `Collecting`.
        self.undigested: dict[Replica, None] = {}  # Their clocks have moved: see `Comparing`.
        self.unsettled: dict[
            Replica, None
        ] = {}  # An assignment is not AVAILABLE, or a former one is left: see `steps`.

    def placed(self, copy: Replica) -> None:
        """A copy goes by what a map says."""
        if copy.rules.former or not all(seat.available and seat.counts for seat in copy.seats):
            self.unsettled[copy] = None
        else:
            self.unsettled.pop(copy, None)

    def synced(self, entry: LogEntry) -> None:
        """An entry of a copy is synced."""
        self.undigested[entry.copy] = None
        if any(record.is_deleted(data) for _, data in entry.records):
            self.unswept[entry.copy] = None

    def moved(self, copy: Replica) -> None:
        """A copy has come by a clock otherwise, and by whatever records."""
        self.undigested[copy] = self.unswept[copy] = None

    def let_go(self, copy: Replica) -> None:
        """It is no more."""
        for noted in (self.undigested, self.unswept, self.unsettled):
            noted.pop(copy, None)
