"""Which shard ids hold a partition, from the ids alone.

Every partition is written down R times, one after the other: `[0, 0, 1, 1, 2, 2, …]`.  The distinct ids stand sorted as
strings, and index i of that list falls to the i mod n-th of them (seed 000).  So nodes that know the same ids agree
without speaking, the partitions are spread evenly, and a node whose id is another's holds what the other holds.

The ring only says who *builds*; who has a partition ready says so itself (`statement`).  Where views of the members
differed, two nodes may have gone by different rings, and `order` says whose turn it is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Iterable


def share(ids: Iterable[str], mine: str, partitions: int, replication: int) -> PartitionSet:
    """Return the partitions of so many that fall to the id `mine`; none where it is not among the ids.

    With fewer ids than copies are asked for, each holds every partition, once.
    """
    ring = sorted(set(ids))
    if mine not in ring:
        return PartitionSet.empty(partitions)
    places = range(ring.index(mine), partitions * replication, len(ring))
    return PartitionSet.of(partitions, (place // replication for place in places))


def order(partition: int, ids: Iterable[str], replication: int) -> list[str]:
    """Return the ids in the order in which a partition falls to them, going round once.

    The first R are those whose `share` has it; who follows takes it when they are gone.
    """
    ring = sorted(set(ids))
    first = partition * replication % len(ring) if ring else 0
    return ring[first:] + ring[:first]
