"""Who writes what when several lanes build together: pure arithmetic over what each has added.

A build on several cores is one `LaneBuilder` in a thread for each: every lane adds the records of its share of the
input, and lanes are in the order of the input.  Then either

* no group has records in two lanes, as when the input comes partitioned already: each lane writes the groups that it
  has, straight from its memory or its own runs, and nothing is exchanged; or
* every lane puts aside what it has, and writes a contiguous range of the groups, merged from the runs of all lanes.
  The runs stand in the order of the lanes, so that the last record of a key stays, as in a build of one lane.

The invariant: the bytes of every file are those of the build in one lane.  They depend on the records of the group
alone, whatever else is built with it: the seed and the common prefix are those of all its keys.  So nodes that build
other partitions of a version beside it have the same file.

Rejected: sending each record to the lane of its group while it is read.  It needs no second pass, but each record is
copied once more even if the input is partitioned, and a slow lane holds up all others.

Also rejected: a process for each lane.  Each took an interpreter's start and memory from the build, and runs had to
have names; two threads take less processor time, and as little of the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from gossipkv.storage.builder import GroupTotal, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

# Beside its records a file costs its making and its sync: about as much time as this many bytes.
_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shares:
    """What each lane is to write."""

    totals: Totals  # Of the whole build.
    groups: list[list[int]]  # For each lane, ascending; a contiguous range if they exchange.
    exchange: bool  # Whether the lanes have to put aside what they have, each for all.

    def __post_init__(self) -> None:
        """Asserts that every group with records is written, and by one lane."""
        written = [group for share in self.groups for group in share]
        assert len(set(written)) == len(written), self.groups
        assert self.totals.groups.keys() <= set(written), self.groups


def share_groups(lanes: Sequence[Totals], group_count: int) -> Shares:
    """Share the groups out among the lanes, which have added these."""
    totals = combined(lanes)
    if sum(len(lane.groups) for lane in lanes) > len(totals.groups):
        empty = GroupTotal(0, 0, 0, b"")
        weights = [_FILE_BYTES + totals.groups.get(group, empty).size_bytes for group in range(group_count)]
        return Shares(totals, [list(share) for share in share_out(weights, len(lanes))], exchange=True)
    groups = [list(lane.groups) for lane in lanes]
    for group in range(group_count):
        if group not in totals.groups:
            min(groups, key=len).append(group)
    return Shares(totals, [sorted(share) for share in groups], exchange=False)


def combined(lanes: Sequence[Totals]) -> Totals:
    """The totals of a build whose lanes have these."""
    groups: dict[int, GroupTotal] = {}
    for lane in lanes:
        for number, more in lane.groups.items():
            so_far = groups.get(number)
            groups[number] = more if so_far is None else _sum(so_far, more)
    return Totals(sum(lane.added for lane in lanes), groups)


def _sum(a: GroupTotal, b: GroupTotal) -> GroupTotal:
    common = 0
    for mine, other in zip(a.prefix, b.prefix, strict=False):
        if mine != other:
            break
        common += 1
    hash_sum = (a.hash_sum + b.hash_sum) & 0xFFFF_FFFF_FFFF_FFFF
    return GroupTotal(a.records + b.records, a.size_bytes + b.size_bytes, hash_sum, a.prefix[:common])


def share_out(sizes: Sequence[int], count: int) -> list[range]:
    """Neighbours to neighbours in `count` shares, the largest of which is as small as can be."""
    ends = list(accumulate(sizes))
    low, high = max(sizes, default=0), ends[-1] if ends else 0
    while low < high:
        middle = (low + high) // 2
        if _shares(ends, count, middle)[-1].stop == len(ends):
            high = middle
        else:
            low = middle + 1
    return _shares(ends, count, low)


def _shares(ends: Sequence[int], count: int, most: int) -> list[range]:
    """As many neighbours as come to no more than `most`, share by share."""
    shares = []
    start = 0
    for _ in range(count):
        stop = bisect_right(ends, (ends[start - 1] if start else 0) + most)
        shares.append(range(start, stop))
        start = stop
    return shares
