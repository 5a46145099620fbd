"""Discovery: a node's duties for the partitions that it stores, by the map of their table (as in EventQL).

A node asks once for a whole table, and names the partitions that it stores. The answer has SERVE, LOAD or UNLOAD for
each, with its push targets, and lists partitions that the node should hold and does not store. LOAD means PROPOSED or
INITIALIZING, SERVE means AVAILABLE, and UNLOAD means LEAVING or not assigned to the node.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest
from gossipkv.placement.partition import AssignmentState, Partition
from gossipkv.register.metadata.partitions import decode_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.placement.partition import Assignment
    from gossipkv.register.metadata.tree import MapTree


# Bounds the overlaps of the map with stored partitions that it does not assign to the node: this many for each
# partition of the map, and for each stored one.
MAX_OVERLAP: Final = 4


class Duty(StrEnum):
    """A node's duty for a partition."""

    SERVE = "SERVE"
    LOAD = "LOAD"
    UNLOAD = "UNLOAD"


DUTIES: Final[Mapping[AssignmentState, Duty]] = {
    AssignmentState.PROPOSED: Duty.LOAD,
    AssignmentState.INITIALIZING: Duty.LOAD,
    AssignmentState.AVAILABLE: Duty.SERVE,
    AssignmentState.LEAVING: Duty.UNLOAD,
}


class PushTarget(NamedTuple):
    """A destination for pushed records of a partition."""

    node: bytes
    partition: int
    assignment: int


class FoundPartition(NamedTuple):
    """One partition in a node's answer: its duty, and its push targets."""

    partition: int
    key: bytes  # The first key by the map, or, for a partition that is gone, by the asker.
    assignment: int  # 0 if the map does not assign the partition to the node.
    duty: Duty
    targets: tuple[PushTarget, ...]


def discover(tree: MapTree, node: bytes, stored: Mapping[int, tuple[bytes, bytes | None]]) -> list[FoundPartition]:
    """Return a node's duties by a map; `stored`: its partitions by id, with first key and end.

    Raises:
        BadRequest: the stored partitions overlap more often than splits explain.
        MissingPage, ProtocolError: as reading the tree does.
    """
    found: list[FoundPartition] = []
    keys: list[bytes] = []
    partitions: list[Partition] = []
    listed: set[int] = set()
    for entry in tree.scan():
        partition = decode_partition(entry.record)
        keys.append(entry.key)
        partitions.append(partition)
        mine = next((assignment for assignment in partition.assignments if assignment.node == node), None)
        if mine is not None:
            rest = (assignment for assignment in partition.assignments if assignment is not mine)
            found.append(
                FoundPartition(partition.id, entry.key, mine.id, DUTIES[mine.state], _targets(partition, rest))
            )
            listed.add(partition.id)
    room = MAX_OVERLAP * (len(keys) + len(stored))
    for id_, (start, end) in stored.items():
        if id_ not in listed:
            # The partition was moved or divided: the present holders of its keys must get its records.
            low, high = bisect_left(keys, start), len(keys) if end is None else bisect_left(keys, end)
            room -= high - low
            if room < 0:
                raise BadRequest("the stored partitions overlap too often")
            successors = partitions[low:high]
            targets = tuple(target for successor in successors for target in _targets(successor, successor.assignments))
            found.append(FoundPartition(id_, start, 0, Duty.UNLOAD, targets))
    return found


def _targets(partition: Partition, assignments: Iterable[Assignment]) -> tuple[PushTarget, ...]:
    return tuple(
        PushTarget(assignment.node, partition.id, assignment.id)
        for assignment in assignments
        if assignment.state is not AssignmentState.LEAVING
    )
