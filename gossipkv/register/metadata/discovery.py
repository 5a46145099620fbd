"""Discovery: what a node should do with the partitions that it stores, by the map of their table (seed 002).

A node asks once for all of a table: it names the partitions that it stores, and is told for each SERVE, LOAD or UNLOAD
and to whom it pushes; and of those that name it and are not stored there.  LOAD is PROPOSED and INITIALIZING, SERVE is
AVAILABLE, UNLOAD is LEAVING, or that the map does not name the node at all.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest
from gossipkv.placement.partition import Partition, State
from gossipkv.register.metadata.partitions import decode_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.placement.partition import Assignment
    from gossipkv.register.metadata.tree import Tree


MOST_OVERLAP: Final = 4  # Of what a node stores and the map does not name there, on average.


class Duty(StrEnum):
    """What a node should do with a partition."""

    SERVE = "SERVE"
    LOAD = "LOAD"
    UNLOAD = "UNLOAD"


DUTIES: Final[Mapping[State, Duty]] = {
    State.PROPOSED: Duty.LOAD,
    State.INITIALIZING: Duty.LOAD,
    State.AVAILABLE: Duty.SERVE,
    State.LEAVING: Duty.UNLOAD,
}


class Target(NamedTuple):
    """Where records of a partition are pushed to."""

    node: bytes
    partition: int
    assignment: int


class Found(NamedTuple):
    """One partition as a node is told of it: its duty there, and to whom it pushes."""

    partition: int
    key: bytes  # Its first key, by the map; of one that is not there, as the asker said.
    assignment: int  # 0: the map does not name the node.
    duty: Duty
    targets: tuple[Target, ...]


def discover(tree: Tree, node: bytes, stored: Mapping[int, tuple[bytes, bytes | None]]) -> list[Found]:
    """What a node should do, by a map; `stored`: the partitions that it stores, by id: from which key, to before which.

    Raises:
        BadRequest: partitions that are stored overlap more often than dividing leaves behind.
        MissingPage, ProtocolError: as reading the tree does.
    """
    found: list[Found] = []
    keys: list[bytes] = []
    partitions: list[Partition] = []
    there: set[int] = set()
    for entry in tree.scan():
        partition = decode_partition(entry.record)
        keys.append(entry.key)
        partitions.append(partition)
        mine = next((one for one in partition.assignments if one.node == node), None)
        if mine is not None:
            others = (one for one in partition.assignments if one is not mine)
            found.append(Found(partition.id, entry.key, mine.id, DUTIES[mine.state], _targets(partition, others)))
            there.add(partition.id)
    room = MOST_OVERLAP * (len(keys) + len(stored))
    for id_, (start, end) in stored.items():
        if id_ not in there:
            # Others took its place, or it was divided: whoever has those keys now is to have what it has.
            low, high = bisect_left(keys, start), len(keys) if end is None else bisect_left(keys, end)
            room -= high - low
            if room < 0:
                raise BadRequest("the partitions that are stored overlap too often")
            now = partitions[low:high]
            targets = tuple(target for each in now for target in _targets(each, each.assignments))
            found.append(Found(id_, start, 0, Duty.UNLOAD, targets))
    return found


def _targets(partition: Partition, assignments: Iterable[Assignment]) -> tuple[Target, ...]:
    return tuple(Target(one.node, partition.id, one.id) for one in assignments if one.state is not State.LEAVING)
