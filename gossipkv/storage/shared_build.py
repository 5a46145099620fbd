"""Division of a build among lanes: pure arithmetic over the records that each lane has added.

A build on several cores is one `LaneBuilder` per thread. Each lane adds the records of its share of the input, in input
order. If no group has records in two lanes (the input is partitioned already), each lane writes its own groups and
nothing is exchanged. Otherwise every lane spills its records, and writes a contiguous range of groups, merged from the
runs of all lanes. The runs are in lane order, so the last record of a key wins, as in a build by one lane.

The invariant: every file has the same bytes as in a build by one lane. They depend on the group's records alone, since
the seed and the common prefix are those of all its keys. So nodes that build other partitions get the same file.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from gossipkv.storage.builder import BuildTotals, GroupTotal

if TYPE_CHECKING:
    from collections.abc import Sequence

# The creation and the sync of a file take about as long as writing this many bytes.
_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LaneShares:
    """The groups that each lane writes."""

    totals: BuildTotals  # Totals of the whole build.
    groups: list[list[int]]  # Ascending, for each lane; a contiguous range with `exchange`.
    exchange: bool  # True if every lane must spill its records for all lanes.

    def __post_init__(self) -> None:
        """Assert that every group with records is written by exactly one lane."""
        written = [group for share in self.groups for group in share]
        assert len(set(written)) == len(written), self.groups
        assert self.totals.groups.keys() <= set(written), self.groups


def share_groups(lanes: Sequence[BuildTotals], group_count: int) -> LaneShares:
    """Divide the groups among the lanes that added these totals."""
    totals = combined(lanes)
    if sum(len(lane.groups) for lane in lanes) > len(totals.groups):
        empty = GroupTotal(0, 0, 0, b"")
        weights = [_FILE_BYTES + totals.groups.get(group, empty).size_bytes for group in range(group_count)]
        return LaneShares(totals, [list(share) for share in share_out(weights, len(lanes))], exchange=True)
    groups = [list(lane.groups) for lane in lanes]
    for group in range(group_count):
        if group not in totals.groups:
            min(groups, key=len).append(group)
    return LaneShares(totals, [sorted(share) for share in groups], exchange=False)


def combined(lanes: Sequence[BuildTotals]) -> BuildTotals:
    """Return the totals of a build from those of its lanes."""
    groups: dict[int, GroupTotal] = {}
    for lane in lanes:
        for number, more in lane.groups.items():
            so_far = groups.get(number)
            groups[number] = more if so_far is None else _sum(so_far, more)
    return BuildTotals(sum(lane.added for lane in lanes), groups)


def _sum(a: GroupTotal, b: GroupTotal) -> GroupTotal:
    common = 0
    for mine, other in zip(a.prefix, b.prefix, strict=False):
        if mine != other:
            break
        common += 1
    hash_sum = (a.hash_sum + b.hash_sum) & 0xFFFF_FFFF_FFFF_FFFF
    return GroupTotal(a.records + b.records, a.size_bytes + b.size_bytes, hash_sum, a.prefix[:common])


def share_out(sizes: Sequence[int], count: int) -> list[range]:
    """Divide neighbouring sizes into `count` contiguous ranges whose largest sum is minimal."""
    ends = list(accumulate(sizes))
    low, high = max(sizes, default=0), ends[-1] if ends else 0
    while low < high:
        middle = (low + high) // 2
        if _shares(ends, count, middle)[-1].stop == len(ends):
            high = middle
        else:
            low = middle + 1
    return _shares(ends, count, low)


def _shares(ends: Sequence[int], count: int, max_sum: int) -> list[range]:
    """Return ranges of neighbours, each as long as its sum stays within `max_sum`."""
    shares = []
    start = 0
    for _ in range(count):
        stop = bisect_right(ends, (ends[start - 1] if start else 0) + max_sum)
        shares.append(range(start, stop))
        start = stop
    return shares
