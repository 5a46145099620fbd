"""A table of ranges, in some runs: its keys, and the partition of a key by a given map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.placement.partition import AssignmentState
from gossipkv.table.controllers.reconciler import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gossipkv.register.metadata.known import MapView
    from gossipkv.table.controllers.reconciler import LocalPartition

FIRSTS: Final = (b"", b"3", b"6")  # The first keys of the initial partitions; a run uses the first few.
KEYS: Final = tuple(b"%d%d" % (ten, one) for ten in range(9) for one in range(3))
SESSION_KEYS: Final = tuple(b"%ds" % ten for ten in range(0, 9, 2))  # Between the others.
MAX_CHILDREN: Final = 3


def part_of(tree: MapView, key: bytes) -> LocalPartition:
    """Return the partition of a key, by a map."""
    return next(part for part in parts_of(tree) if part.bounds.has(key))


def keys_in(part: LocalPartition) -> list[bytes]:
    return [key for key in KEYS if part.bounds.has(key)]


def cuts_of(part: LocalPartition) -> list[bytes]:
    """Return the keys at which a split gives each child some key."""
    return sorted(key for key in (*KEYS, *SESSION_KEYS) if part.bounds.has(key))[1:]


def divisible(tree: MapView) -> list[LocalPartition]:
    """Return the partitions of a map that may be split."""
    return [part for part in parts_of(tree) if _is_at_rest(part) and cuts_of(part)]


def _is_at_rest(part: LocalPartition) -> bool:
    return all(one.state is AssignmentState.AVAILABLE for one in part.partition.assignments)


def children_of(
    part: LocalPartition, random: Random, firsts: Sequence[bytes] = ()
) -> tuple[tuple[bytes, int, tuple[int, ...]], ...]:
    """Return children of a partition, as `divide` takes them: cut at the given keys, or at drawn ones."""
    if not firsts:
        cuts = cuts_of(part)
        firsts = sorted(random.sample(cuts, min(len(cuts), random.choice((1, 1, MAX_CHILDREN - 1)))))
    ids = [random.getrandbits(40) for _ in range(len(firsts) + 1)]
    count = len(part.partition.assignments)
    return tuple(
        (first, id_, tuple(100 * id_ + place + 1 for place in range(count)))
        for first, id_ in zip((part.bounds.first, *firsts), ids, strict=True)
    )
