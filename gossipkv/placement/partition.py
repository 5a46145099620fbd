"""A partition of a table: its assignments, with their slots and states.

A slot is the place of one replica. An assignment goes PROPOSED, INITIALIZING, AVAILABLE; when it becomes AVAILABLE, the
previous one of its slot becomes LEAVING. If the new one is removed by force first, the previous one becomes AVAILABLE
again. Invariants of every partition (`fault_of`):

* Ids are unique, a node is assigned once, and slots are below the replication.
* A slot has at most two assignments, at most one of them AVAILABLE; some slot has an AVAILABLE one.
* At most one slot moves, that is, has an assignment that is not AVAILABLE.

An assignment that is AVAILABLE no more is *former* until all copies report the same counter for it. An assignment
removed by force has an *end*: the highest counter that is known to be kept. A split makes the assignments of a
partition, present and former, former in each child.
"""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_REPLICATION: Final = 9
MIN_OF_GROUP: Final = 2  # Nodes: if one is lost or leaves, another must replace it.
MAX_FORMER: Final = 64  # Bounds planned moves; forced removals may exceed it by one for each slot.
MAX_TO_MOVE: Final = MAX_FORMER - MAX_REPLICATION  # With more, nothing moves: each slot may still be forced.
# Pseudo-assignments in the ends of a re-created range. These counters are config ids, for LEFT_OUT counted backwards
# (`table.token.left_out`). A session with an older token is told that writes may be lost, unless the map of the kept
# copy is as new as the session's.
LEFT_OUT: Final = (1 << 64) - 1
HAD: Final = LEFT_OUT - 1  # The config id of the kept copy's map.
# With more, the oldest end is dropped: a token of that time is not told any more that writes are lost.
MAX_ENDS: Final = 64


class AssignmentState(IntEnum):
    """State of an assignment."""

    PROPOSED = 1
    INITIALIZING = 2
    AVAILABLE = 3
    LEAVING = 4


_AT_REST: Final = frozenset({AssignmentState.AVAILABLE})
# The states that a slot may have, in order.
_OF_SLOT: Final = frozenset({
    (AssignmentState.PROPOSED,),
    (AssignmentState.INITIALIZING,),
    (AssignmentState.AVAILABLE,),
    (AssignmentState.PROPOSED, AssignmentState.AVAILABLE),
    (AssignmentState.INITIALIZING, AssignmentState.AVAILABLE),
    (AssignmentState.AVAILABLE, AssignmentState.LEAVING),
})  # fmt: skip


class Assignment(NamedTuple):
    """A node that holds a partition, or is to hold it."""

    id: int
    node: bytes  # The uuid of the node.
    slot: int
    state: AssignmentState


class ForcedEnd(NamedTuple):
    """End of the records of an assignment that was removed by force."""

    assignment: int
    counter: int | None  # None while unknown; the hosts that have adopted the removal report what is kept.


_place, _state = attrgetter("slot", "id"), attrgetter("state")


class Partition(NamedTuple):
    """A part of a table."""

    id: int
    assignments: tuple[Assignment, ...]  # Ordered by slots and ids.
    former: tuple[int, ...] = ()  # Ids, in order.
    ends: tuple[ForcedEnd, ...] = ()  # Ordered by the time of the force.
    kept: int = 0  # The assignment of the quarantined copy from which the partition was re-created; 0 if there is none.

    @classmethod
    def of(cls, id_: int, assignments: Iterable[Assignment]) -> Partition:
        return cls(id_, tuple(sorted(assignments, key=_place)))

    def assignment(self, id_: int) -> Assignment | None:
        return next((assignment for assignment in self.assignments if assignment.id == id_), None)

    @property
    def moves(self) -> bool:
        """True if a slot moves: an assignment is not AVAILABLE."""
        return not _AT_REST.issuperset(map(_state, self.assignments))

    @property
    def has_too_many_former(self) -> bool:
        """True if children would have too many former assignments, so that some must settle first."""
        return len(self.named) > MAX_FORMER

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments that have an entry in clocks: the present and the former ones, in order."""
        return tuple(sorted((*(assignment.id for assignment in self.assignments), *self.former)))

    @property
    def recorded(self) -> tuple[int, ...]:
        """The named assignments, and those with an end; an assignment may be both."""
        return (*self.named, *(end.assignment for end in self.ends))


def ends_of_move(partition: Partition) -> tuple[bytes | None, bytes | None]:
    """Return the source and the target node of the running move; None for no node, or if nothing moves."""
    assignments = partition.assignments
    moving = {assignment.slot for assignment in assignments if assignment.state is not AssignmentState.AVAILABLE}
    ends = [assignment for assignment in assignments if assignment.slot in moving]
    is_leaving = any(assignment.state is AssignmentState.LEAVING for assignment in ends)
    replaced = AssignmentState.LEAVING if is_leaving else AssignmentState.AVAILABLE
    source = next((assignment.node for assignment in ends if assignment.state is replaced), None)
    return source, next((assignment.node for assignment in ends if assignment.state is not replaced), None)


def least_of_group(replication: int) -> int:
    """Return the least number of nodes in a group: if one is lost or leaves, another replaces it."""
    return max(MIN_OF_GROUP, replication)


def fault_of(partition: Partition, replication: int) -> str:
    """Return the broken invariant; empty if there is none."""
    assignments, former, ends = partition.assignments, partition.former, [end.assignment for end in partition.ends]
    if not (former or ends) and _is_at_rest(assignments, replication):
        return ""
    slots: dict[int, list[AssignmentState]] = {}
    for assignment in assignments:
        slots.setdefault(assignment.slot, []).append(assignment.state)
    states = slots.values()
    ids, nodes = [assignment.id for assignment in assignments], [assignment.node for assignment in assignments]
    is_outside = not 0 <= min(slots, default=0) <= max(slots, default=0) < replication
    broken = (
        (list(assignments) != sorted(assignments, key=_place), "its assignments are not in order"),
        (len({*ids}) < len(ids), "two assignments have the same id"),
        (len({*nodes}) < len(nodes), "a node is assigned twice"),
        (is_outside, f"a slot must be 0 to {replication - 1}"),
        (not _OF_SLOT.issuperset(map(tuple, map(sorted, states))), "the states in a slot are impossible"),
        (_AT_REST.isdisjoint(map(_state, assignments)), "no assignment is AVAILABLE"),
        (sum([held != [AssignmentState.AVAILABLE] for held in states]) > 1, "more than one slot moves"),
        (list(former) != sorted({*former}), "its former assignments are not in order"),
        (len(former) > MAX_FORMER + replication, "it has too many former assignments"),
        (not {*former}.isdisjoint(ids), "a former assignment is also a present one"),
        (len({*ends}) < len(ends), "an assignment has two ends"),
        (not {*ends}.isdisjoint(ids), "a present assignment has an end"),
    )
    return next((words for is_broken, words in broken if is_broken), "")


def _is_at_rest(assignments: tuple[Assignment, ...], replication: int) -> bool:
    """Return True if every slot has its one assignment, AVAILABLE: a fast check that most partitions pass."""
    count = len(assignments)
    return (
        0 < count <= replication
        and [(assignment.slot, assignment.state) for assignment in assignments]
        == [(slot, AssignmentState.AVAILABLE) for slot in range(count)]
        and len({assignment.node for assignment in assignments}) == count
        and len({assignment.id for assignment in assignments}) == count
    )
