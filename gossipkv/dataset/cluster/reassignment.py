"""Who builds a partition that nobody has and nobody builds.

Shares are computed once, from what each node knew then.  Where views differed ({A, B}, {A, B, C}, {A, C}), or all that
a partition fell to are gone, it is left to nobody, and a gate would never pass.  So a partition of a version that a
gate awaits or that is active, which for `reassign_after` has had fewer than `min_replication` live owners, and nobody
building it, is taken by the next ids of the ring of the present, still list; as many as are missing.  They may be
unable to build (no source, no room), so after each further `reassign_after` as many more have their turn.

All of it is done on whole bitmaps, whatever N is: partitions with one remainder by the number of ids have one order in
the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.ring import order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_GENERATIONS: Final = 8  # What becomes unowned later has its time counted with the latest of these.


class Ring(NamedTuple):
    """The present ring, as one node sees it."""

    own_id: str
    ids: Sequence[str]  # The last still list.
    ready: Mapping[str, PartitionSet]  # By id, what its live members have ready.
    replication: int
    least: int  # `min_replication`


class _Generation(NamedTuple):
    since_ms: int
    unowned: PartitionSet


@final
class Reassignment:
    """The partitions of one version that are unowned: too few live nodes have them, and nobody builds them."""

    def __init__(self, partitions: int, reassign_after_ms: int) -> None:
        self._nothing = PartitionSet.empty(partitions)
        self._after_ms = reassign_after_ms
        self._generations: list[_Generation] = []

    def step(self, unowned: PartitionSet, *, now_ms: int) -> None:
        """Take in what has too few live owners and is built by nobody."""
        before = self._nothing
        kept = []
        for since_ms, some in self._generations:
            if still := some & unowned:
                kept.append(_Generation(since_ms, still))
                before |= still
        if new := unowned - before:
            if len(kept) == MOST_GENERATIONS:
                new |= kept.pop().unowned
            kept.append(_Generation(now_ms, new))
        self._generations = kept

    def due_ms(self, now_ms: int) -> int | None:
        """When the next turn of any of them begins."""
        after = self._after_ms
        turns = (since_ms + ((now_ms - since_ms) // after + 1) * after for since_ms, _ in self._generations)
        return min(turns, default=None)

    def mine(self, ring: Ring, *, now_ms: int) -> PartitionSet:
        """Return what falls to this node."""
        found = self._nothing
        for since_ms, unowned in self._generations:
            turns = (now_ms - since_ms) // self._after_ms
            if turns > 0:
                found |= self.falling_to(unowned, ring, ring.least * turns)
        return found

    def falling_to(self, unowned: PartitionSet, ring: Ring, takers: int | None = None) -> PartitionSet:
        """Return what falls to this node, when so many ids, `replication` unless told, take each of these."""
        found = self._nothing
        count = len(ring.ids)
        takers = min(ring.replication if takers is None else takers, count)
        for remainder in range(min(count, unowned.partitions)):
            wanted = unowned & every(count, remainder, unowned.partitions)
            if not wanted:
                continue
            # [k]: for these, k ids that come before the present one in the order take them.
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
    """Return partitions first, first + step, first + 2 step, … of so many."""
    times = (partitions - first + step - 1) // step
    bits = ((1 << step * times) - 1) // ((1 << step) - 1) << first
    return PartitionSet(partitions, bits)
