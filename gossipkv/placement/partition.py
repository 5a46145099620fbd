"""A partition of a table: who is assigned to it, in which slot, and how far each is.

A slot is where one replica belongs.  An assignment goes PROPOSED, INITIALIZING, AVAILABLE; where it becomes AVAILABLE
beside another of its slot, that one is LEAVING from then on.  Invariants of every partition (`fault_of`):

* ids are unique, a node is there once, slots are below the replication;
* a slot has at most two assignments, of which one at most is AVAILABLE; somebody is, in some slot;
* at most one slot moves: has an assignment that is not AVAILABLE.

An assignment that was AVAILABLE once and is none any more is *former* until all copies have said the same of what it
had originated; where it was taken by force, it has an *end*: the highest counter of it that is known to be kept.
Where a partition was divided, its assignments, and those that were former in it, are former in each child.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_REPLICATION: Final = 9
LEAST_OF_GROUP: Final = 2  # Nodes: seed 004 wants two replicas at least in each of its shards.
MOST_FORMER: Final = 64  # By what people or nodes plan; what is taken by force then may be so, too, of each slot.
MOST_TO_MOVE: Final = MOST_FORMER - MOST_REPLICATION  # Beyond that nothing moves: each slot may be forced yet.
# In the place of assignments, where a range began anew.  Their counters are of config ids, the first counted backwards
# (`table.token.left_out`): of sessions that are older, and what all hosts had when their tokens left it out, it is lost
LEFT_OUT: Final = (1 << 64) - 1
HAD: Final = LEFT_OUT - 1  # unless the copy that was kept went by a map as new as all that the session has seen.
MOST_ENDS: Final = 64  # Beyond that the oldest is let go of: a token of then is not told any more that it is lost.


class State(IntEnum):
    """How far an assignment is."""

    PROPOSED = 1
    INITIALIZING = 2
    AVAILABLE = 3
    LEAVING = 4


# What a slot may have, in the order of states.  LEAVING is alone where the other end of the move was taken by force,
# until others have what only it has.
_OF_SLOT: Final = frozenset({
    *((state,) for state in State),
    (State.PROPOSED, State.AVAILABLE),
    (State.INITIALIZING, State.AVAILABLE),
    (State.AVAILABLE, State.LEAVING),
})  # fmt: skip


class Assignment(NamedTuple):
    """A node that holds a partition, or is to."""

    id: int
    node: bytes  # Its uuid.
    slot: int
    state: State


class End(NamedTuple):
    """Where the records of an assignment end that was taken by force."""

    assignment: int
    counter: int | None  # None: it is not known yet; who has adopted that it was taken says what is kept.


class Partition(NamedTuple):
    """A part of a table."""

    id: int
    assignments: tuple[Assignment, ...]  # In the order of slots and ids.
    former: tuple[int, ...] = ()  # Ids, in order.
    ends: tuple[End, ...] = ()  # In the order in which they were forced.
    kept: int = 0  # It began anew: with the copy that was set aside of this assignment; 0: with nothing, or it did not.

    @classmethod
    def of(cls, id_: int, assignments: Iterable[Assignment]) -> Partition:
        """Put assignments in their order."""
        return cls(id_, tuple(sorted(assignments, key=_place)))

    def assignment(self, id_: int) -> Assignment | None:
        """Find an assignment."""
        return next((one for one in self.assignments if one.id == id_), None)

    @property
    def moves(self) -> bool:
        """Whether a slot of it does: one of its assignments is not AVAILABLE."""
        return any(one.state is not State.AVAILABLE for one in self.assignments)

    @property
    def has_too_many_former(self) -> bool:
        """Whether children of it would name more former assignments than may be: they have to settle first."""
        return len(self.named) > MOST_FORMER

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments that clocks have an entry for: the present ones and the former, in order."""
        return tuple(sorted((*(one.id for one in self.assignments), *self.former)))


def ends_of_move(partition: Partition) -> tuple[bytes | None, bytes | None]:
    """From which node a partition moves to which; None: from or to nobody, or nothing moves."""
    moving = {one.slot for one in partition.assignments if one.state is not State.AVAILABLE}
    ends = [one for one in partition.assignments if one.slot in moving]
    replaced = State.LEAVING if any(one.state is State.LEAVING for one in ends) else State.AVAILABLE
    source = next((one.node for one in ends if one.state is replaced), None)
    return source, next((one.node for one in ends if one.state is not replaced), None)


def least_of_group(replication: int) -> int:
    """How many nodes a group has at least: one may be lost, or go, and another of it takes its place."""
    return max(LEAST_OF_GROUP, replication)


def fault_of(partition: Partition, replication: int) -> str:
    """Which invariant a partition breaks; empty: none."""
    assignments, former, ends = partition.assignments, partition.former, [end.assignment for end in partition.ends]
    if not (former or ends) and _is_at_rest(assignments, replication):
        return ""
    slots: dict[int, list[State]] = {}
    for one in assignments:
        slots.setdefault(one.slot, []).append(one.state)
    states = slots.values()
    broken = (
        (list(assignments) != sorted(assignments, key=_place), "its assignments are not in order"),
        (len({one.id for one in assignments}) < len(assignments), "two assignments have one id"),
        (len({one.node for one in assignments}) < len(assignments), "a node is assigned twice"),
        (
            any(not 0 <= slot < replication for slot in slots),
            f"a slot is negative, or not below the replication, {replication}",
        ),
        (any((*sorted(held),) not in _OF_SLOT for held in states), "a slot has what no move leaves in it"),
        (not any(State.AVAILABLE in held for held in states), "nobody is AVAILABLE"),
        (sum(held != [State.AVAILABLE] for held in states) > 1, "more than one slot moves"),
        (list(former) != sorted({*former}), "its former assignments are not in order"),
        (len(former) > MOST_FORMER + replication, "it has too many former assignments"),
        (not {*former}.isdisjoint(one.id for one in assignments), "a former assignment is there still"),
        (len({*ends}) < len(ends), "an assignment has two ends"),
        (not {*ends}.isdisjoint(one.id for one in assignments), "an assignment that has an end is there still"),
    )
    return next((words for is_broken, words in broken if is_broken), "")


def _is_at_rest(assignments: tuple[Assignment, ...], replication: int) -> bool:
    """Whether every slot has its one assignment, AVAILABLE: nothing can be wrong with them, and most are so."""
    count = len(assignments)
    return (
        0 < count <= replication
        and [(one.slot, one.state) for one in assignments] == [(slot, State.AVAILABLE) for slot in range(count)]
        and len({one.node for one in assignments}) == len({one.id for one in assignments}) == count
    )


def _place(assignment: Assignment) -> tuple[int, int]:
    return assignment.slot, assignment.id
