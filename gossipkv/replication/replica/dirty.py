"""Dirty replicas: changed replicas that background work must visit.

Most of a node's thousands of replicas rest, and no loop visits those. Changes of earlier runs are not kept: after a
restart each replica counts as changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.replica.replica import Replica


@final
class DirtyReplicas:
    """The changed replicas of this run, in order."""

    def __init__(self) -> None:
        self.unswept: dict[Replica, None] = {}  # May have tombstones; see `TombstoneCollector`.
        self.undigested: dict[Replica, None] = {}  # Clocks have moved; see `DigestExchange`.
        self.unsettled: dict[Replica, None] = {}  # An assignment is not AVAILABLE, or a former one is left.

    def placed(self, replica: Replica) -> None:
        """Note a replica that adopted a placement."""
        if replica.rules.former or not all(role.available and role.counts for role in replica.roles):
            self.unsettled[replica] = None
        else:
            self.unsettled.pop(replica, None)

    def synced(self, entries: Sequence[LogEntry]) -> None:
        """Note synced entries."""
        self.undigested |= {entry.replica: None for entry in entries}
        self.unswept |= {entry.replica: None for entry in entries if entry.deletes}

    def moved(self, replica: Replica) -> None:
        """Note a replica whose clock and records changed without entries."""
        self.undigested[replica] = self.unswept[replica] = None

    def let_go(self, replica: Replica) -> None:
        """Forget a replica."""
        for noted in (self.undigested, self.unswept, self.unsettled):
            noted.pop(replica, None)

    def goes_on(self, entry: LogEntry) -> bool:
        """Return True if an entry may have to be sent at once: not one whose origin sends it to all hosts."""
        return entry.is_own or entry.joining is not None or entry.replica in self.unsettled
