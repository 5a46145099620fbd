"""The status of a replica as another node reports it: its clock, its map, and the entries that it can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from gossipkv.replication.replica.replica import Replica


class SpanEnds(NamedTuple):
    """The packed clocks before the first entry of a span in this node's log, and after its last one."""

    before: bytes
    after: bytes


NOTHING: Final = SpanEnds(b"", b"")  # Nothing was merged yet.


class ReplicaStatus(NamedTuple):
    """What the target has told of its copy of a partition."""

    assignment: int
    clock: bytes
    config: int
    can_take: bool
    available: bool
    span: SpanEnds | None = None  # It is not whole, and has merged that of what this node has sent.

    def counted(self, copy: Replica) -> ReplicaStatus:
        """The same without what the map here names no more, if that is as new: it has ended, and all have it."""
        named = clock.named(self.clock, copy.named)
        return self if self.config > copy.config or named == self.clock else self._replace(clock=named)


def is_served(assignment: int, copy: Replica) -> bool:
    """Whether an assignment is AVAILABLE, or LEAVING, by the map that a copy goes by."""
    return any(seat.available for one, seat in copy.seated() if one == assignment)
