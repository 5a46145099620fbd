"""Reassignment of partitions that no node has, or too few, and no node builds.

Shares are computed once, from each node's view at that time.  If views differed ({A, B}, {A, B, C}, {A, C}), or all
owners of a partition are gone, no node builds the partition and a gate would never pass.  A partition of an active or
awaited version is reassigned if it had fewer than `min_replication` live owners and no builder for `reassign_after`.
The next ids of the present ring take it, as many as are missing.  These nodes may be unable to build (no source, no
room).  After each further `reassign_after`, as many more ids have their turn.  Likewise, a partition with fewer owners
than `replication` goes to one more id after each `repair_after`, if that is set.

The work is done on whole bitmaps, for any number of partitions: partitions with equal remainders by the number of ids
share one order in the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.ring import order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_GENERATIONS: Final = 8  # Partitions that become unowned later share the clock of the latest generation.


class Ring(NamedTuple):
    """The present ring, as one node sees it."""

    own_id: str
    ids: Sequence[str]  # The ids of the present ring.
    ready: Mapping[str, PartitionSet]  # The partitions that the live members of each id have ready.
    replication: int
    least: int  # The setting `min_replication`.


class _Generation(NamedTuple):
    since_ms: int
    unowned: PartitionSet


@final
class Reassignment:
    """The partitions of one version that too few live nodes have, while no node builds them."""

    def __init__(self, partitions: int, reassign_after_ms: int) -> None:
        self._nothing = PartitionSet.empty(partitions)
        self._after_ms = reassign_after_ms
        self._generations: list[_Generation] = []

    def step(self, unowned: PartitionSet, *, now_ms: int) -> None:
        before = self._nothing
        kept = []
        for since_ms, partitions in self._generations:
            if still := partitions & unowned:
                kept.append(_Generation(since_ms, still))
                before |= still
        if new := unowned - before:
            if len(kept) == MAX_GENERATIONS:
                new |= kept.pop().unowned
            kept.append(_Generation(now_ms, new))
        self._generations = kept

    def due_ms(self, now_ms: int) -> int | None:
        """Return when the next turn begins."""
        after = self._after_ms
        turns = (since_ms + ((now_ms - since_ms) // after + 1) * after for since_ms, _ in self._generations)
        return min(turns, default=None)

    def mine(self, ring: Ring, *, now_ms: int) -> PartitionSet:
        """Return the partitions that fall to this node."""
        found = self._nothing
        for since_ms, unowned in self._generations:
            turns = (now_ms - since_ms) // self._after_ms
            if turns > 0:
                found |= self.falling_to(unowned, ring, ring.least * turns)
        return found

    def falling_to(self, unowned: PartitionSet, ring: Ring, takers: int | None = None) -> PartitionSet:
        """Return the partitions that fall to this node if each is taken by `takers` ids (default `replication`)."""
        found = self._nothing
        count = len(ring.ids)
        takers = min(ring.replication if takers is None else takers, count)
        for remainder in range(min(count, unowned.partitions)):
            wanted = unowned & every(count, remainder, unowned.partitions)
            if not wanted:
                continue
            # taken[k]: partitions that k ids earlier in the order take.
            taken = [wanted] + [self._nothing] * takers
            for shard_id in order(remainder, ring.ids, ring.replication):
                free = wanted - ring.ready.get(shard_id, self._nothing)
                if shard_id == ring.own_id:
                    found |= free - taken[takers]
                    break
                for times in range(takers, 0, -1):
                    taken[times] |= taken[times - 1] & free
        return found


def every(step: int, first: int, partitions: int) -> PartitionSet:
    """Return the partitions first, first + step, first + 2 step, … below `partitions`."""
    times = (partitions - first + step - 1) // step
    bits = ((1 << step * times) - 1) // ((1 << step) - 1) << first
    return PartitionSet(partitions, bits)
