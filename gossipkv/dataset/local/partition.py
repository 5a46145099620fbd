"""What a sorted file says it is, in its metadata: one partition, of so many, by a function."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from gossipkv.dataset.source.listing import MAX_FILES
from gossipkv.keyspace.partitioner import FUNCTIONS

if TYPE_CHECKING:
    from gossipkv.storage.document import Json
    from gossipkv.storage.label import Label


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """Which partition a sorted file says it is."""

    function: str
    partitions: int
    partition: int


def claim_of(label: Label) -> PartitionClaim | None:
    """What a sorted file's metadata says, or None when they are not of this program."""
    try:
        told: Json = json.loads(label.metadata)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    function, partitions, partition = (told.get(field) for field in ("function", "partitions", "partition"))
    if not isinstance(function, str) or function not in FUNCTIONS:
        return None
    if not _is_below(partitions, MAX_FILES + 1) or not partitions:
        return None
    if not _is_below(partition, partitions):
        return None
    return PartitionClaim(function, partitions, partition)


def _is_below(number: Json, end: int) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < end
