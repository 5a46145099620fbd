"""Temporary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.placement.partition import State

if TYPE_CHECKING:
    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Slots


def standing(partition: Partition) -> Slots:
    """As it will be."""
    slots: dict[int, bytes] = {}
    for one in partition.assignments:
        if one.state in {State.PROPOSED, State.INITIALIZING} or (one.slot not in slots and one.state != State.LEAVING):
            slots[one.slot] = one.node
    return tuple(slots.get(slot) for slot in range(max(slots, default=-1) + 1))
