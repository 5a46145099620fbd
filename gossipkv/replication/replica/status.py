"""The status of a replica as another node reports it: its clock, its config, and if it can accept entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from gossipkv.replication.replica.replica import Replica


class SpanEnds(NamedTuple):
    """The packed clocks before the first entry of a span in this node's log, and after its last one."""

    before: bytes
    after: bytes


NOTHING: Final = SpanEnds(b"", b"")  # No entry was merged yet.


class ReplicaStatus(NamedTuple):
    """The status of a replica that its host has reported."""

    assignment: int
    clock: bytes
    config: int
    can_take: bool
    available: bool
    span: SpanEnds | None = None  # Set if the replica is incomplete: the merged entries of this node's log.

    def counted(self, replica: Replica) -> ReplicaStatus:
        """Drop origins that the local placement no longer names, unless the status is newer: they have ended."""
        named = clock.named(self.clock, replica.named)
        return self if self.config > replica.config or named == self.clock else self._replace(clock=named)


def is_served(assignment: int, replica: Replica) -> bool:
    """Return True if an assignment is AVAILABLE or LEAVING by the placement that a replica follows."""
    role = replica.role_of(assignment)
    return role is not None and role.available
