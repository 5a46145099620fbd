"""What is to be begun next, so that the map of a table becomes the one that is wanted.

Pure: from the assignments as they are and the slots that are wanted to steps, each of them one transaction.  Only the
beginning of a move, and taking back one whose target is not yet AVAILABLE, are steps: all else the nodes do themselves.

No order of steps is a deadlock: who stays in a partition stays in its slot (`spread`), so a move waits for others only
where they are too many at a node, or where its target is still on its way out; and both end.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.placement.partition import MOST_TO_MOVE, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Slots

_COMING = frozenset({State.PROPOSED, State.INITIALIZING})


class Step(NamedTuple):
    """A move that begins, or one that is not wanted any more and is taken back."""

    partition: int  # Its number in the map.
    slot: int
    target: bytes
    unassign: int | None  # The id of the target's assignment, which is taken back; None: it is to be assigned.


def standing(partition: Partition) -> Slots:
    """Return who is in each slot when the moves that are under way are done: for `spread`, the map now."""
    if all(one.slot == at and one.state is State.AVAILABLE for at, one in enumerate(partition.assignments)):
        return tuple(one.node for one in partition.assignments)  # It is at rest, as most are.
    slots: list[bytes | None] = [None] * (1 + max((one.slot for one in partition.assignments), default=-1))
    for one in sorted(partition.assignments, key=lambda one: one.state in _COMING):
        if one.state != State.LEAVING:
            slots[one.slot] = one.node
    return tuple(slots)


def _may_move(partition: Partition) -> bool:
    """Whether a move of a partition may begin: none is under way, and not too many of before have to settle."""
    return not partition.moves and len(partition.former) < MOST_TO_MOVE


def next_moves(
    now: Sequence[Partition], wanted: Sequence[Slots], most: int, *, able: Callable[[bytes], bool] = lambda _: True
) -> list[Step]:
    """Return the steps that may be taken at once, in their order.

    A node has `most` moves under way at most, as target and as the AVAILABLE host of a slot to which another comes; a
    target that is not `able` is not begun.  Partitions that have an empty slot come first.  A move that is not wanted
    is taken back; what is wanted in its place begins when that is done.
    """
    moves: Counter[bytes] = Counter()
    steps, resting = [], []
    for number, (partition, slots) in enumerate(zip(now, wanted, strict=True)):
        for one in partition.assignments:
            if one.state in _COMING:
                moves.update(_ends(partition, one.slot, one.node))
                if slots[one.slot : one.slot + 1] != (one.node,):
                    steps.append(Step(number, one.slot, one.node, one.id))
        if _may_move(partition):
            here = standing(partition) + (None,) * len(slots)
            changed = [(here[slot] is not None, slot) for slot in range(len(slots)) if here[slot] != slots[slot]]
            resting += [(min(changed)[0], number, sorted(changed))] if changed else []
    for _, number, changed in sorted(resting):
        for _, slot in changed:
            target = wanted[number][slot]
            if target is None or not able(target) or any(one.node == target for one in now[number].assignments):
                continue
            ends = _ends(now[number], slot, target)
            if all(moves[node] < most for node in ends):
                moves.update(ends)
                steps.append(Step(number, slot, target, None))
                break
    return steps


def _ends(partition: Partition, slot: int, target: bytes) -> list[bytes]:
    sources = [one.node for one in partition.assignments if one.slot == slot and one.state == State.AVAILABLE]
    return [target, *sources]
