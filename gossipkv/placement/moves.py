"""The next steps that turn a table's map into the wanted one.

A step is one transaction: it begins a move, or cancels one whose target is not AVAILABLE yet. The nodes do all else. No
order of steps is a deadlock: a node that stays in a partition keeps its slot (`spread`). So a move waits for others
only if a node has too many, or if its target is still leaving, and both conditions end.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.placement.partition import MAX_TO_MOVE, AssignmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Slots

_COMING = frozenset({AssignmentState.PROPOSED, AssignmentState.INITIALIZING})
_slot = attrgetter("slot")


class MoveStep(NamedTuple):
    """A move that begins, or an unwanted one that is cancelled."""

    partition: int  # Number of the partition in the map.
    slot: int
    target: bytes
    unassign: int | None  # The id of the target's assignment to cancel; None to assign the target.


def standing(partition: Partition) -> Slots:
    """Return the nodes of the slots after the running moves: the present map for `spread`."""
    nodes: dict[int, bytes] = {}
    for assignment in partition.assignments:
        if assignment.state in _COMING:
            nodes[assignment.slot] = assignment.node
        elif assignment.state is AssignmentState.AVAILABLE:
            nodes.setdefault(assignment.slot, assignment.node)
    return tuple(map(nodes.get, range(1 + max(map(_slot, partition.assignments), default=-1))))


def _may_move(partition: Partition) -> bool:
    """Return True if a move may begin: none is running, and not too many earlier ones have to settle."""
    return not partition.moves and len(partition.former) < MAX_TO_MOVE


def next_moves(
    now: Sequence[Partition], wanted: Sequence[Slots], most: int, *, able: Callable[[bytes], bool] = lambda _: True
) -> list[MoveStep]:
    """Return the steps that may be taken at once, in order.

    A node has at most `most` running moves, as a target or as the AVAILABLE host of a slot that gets a new node. A
    target that is not `able` gets no move. Partitions with an empty slot come first. An unwanted move is cancelled; the
    wanted one begins afterwards.
    """
    moves: Counter[bytes] = Counter()
    steps, resting = [], []
    for number, (partition, slots) in enumerate(zip(now, wanted, strict=True)):
        for assignment in partition.assignments:
            if assignment.state in _COMING:
                moves.update(_ends(partition, assignment.slot, assignment.node))
                if slots[assignment.slot : assignment.slot + 1] != (assignment.node,):
                    steps.append(MoveStep(number, assignment.slot, assignment.node, assignment.id))
        if _may_move(partition):
            here = standing(partition) + (None,) * len(slots)
            changed = [(here[slot] is not None, slot) for slot in range(len(slots)) if here[slot] != slots[slot]]
            resting += [(min(changed)[0], number, sorted(changed))] if changed else []
    for _, number, changed in sorted(resting):
        for _, slot in changed:
            target = wanted[number][slot]
            hosts = [assignment.node for assignment in now[number].assignments]
            if target is None or not able(target) or target in hosts:
                continue
            ends = _ends(now[number], slot, target)
            if all(moves[node] < most for node in ends):
                moves.update(ends)
                steps.append(MoveStep(number, slot, target, None))
                break
    return steps


def _ends(partition: Partition, slot: int, target: bytes) -> list[bytes]:
    held = (assignment for assignment in partition.assignments if assignment.slot == slot)
    return [target, *(assignment.node for assignment in held if assignment.state is AssignmentState.AVAILABLE)]
