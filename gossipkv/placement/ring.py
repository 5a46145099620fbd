"""The ring: the partitions of each shard id, from the ids alone.

Every partition is listed R times in a row: `[0, 0, 1, 1, 2, 2, …]`. The n distinct ids are sorted as strings; index i
of the list belongs to id i mod n. So nodes that know the same ids agree without communication, partitions are spread
evenly, and two nodes with one id hold the same partitions.

The ring only says which nodes *build*; a node itself reports its ready partitions (`statement`). If views of the
members differed, two nodes may have used different rings, and `order` says which id is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Iterable


def share(ids: Iterable[str], mine: str, partitions: int, replication: int) -> PartitionSet:
    """Return the partitions that belong to the id `mine`; none if it is not among the ids.

    With fewer ids than replicas, each holds every partition, once.
    """
    ring = sorted(set(ids))
    if mine not in ring:
        return PartitionSet.empty(partitions)
    places = range(ring.index(mine), partitions * replication, len(ring))
    return PartitionSet.of(partitions, (place // replication for place in places))


def order(partition: int, ids: Iterable[str], replication: int) -> list[str]:
    """Return the ids in the order in which a partition belongs to them, once round the ring.

    The `share` of the first R has the partition; the next ids take over when these are gone.
    """
    ring = sorted(set(ids))
    first = partition * replication % len(ring) if ring else 0
    return ring[first:] + ring[:first]
