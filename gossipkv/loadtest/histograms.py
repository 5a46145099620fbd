"""Histograms as numbers that can be sent, added up and written down; a bucket is what `wire/_latency.pxd` says.

The extension counts; these are its counts outside of it.  Adding up is exact, so percentiles of many processes are
those of all requests together, to the width of a bucket: a sixteenth of a power of two.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest.result import PERCENTILES, Latency

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = 16
NS_IN_US: Final = 1000.0
PERCENT: Final = 100.0


def upper_ns(bucket: int) -> int:
    """The longest duration that is counted in a bucket."""
    if bucket < STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket - shift * STEPS + 1) << shift) - 1


def middle_ns(bucket: int) -> int:
    """What stands for all durations of a bucket."""
    if bucket < STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket - shift * STEPS) << shift) + (1 << shift) // 2


@final
class Counts:
    """How many durations fell into each bucket."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0.0
        self.maximum_ns = 0
        self.buckets: dict[int, int] = {}

    def take(self, count: int, total_ns: float, maximum_ns: int, pairs: Sequence[int]) -> None:
        """Count what an extension's `news` says: bucket and count in turn."""
        self.count += count
        self.total_ns += total_ns
        self.maximum_ns = max(self.maximum_ns, maximum_ns)
        for bucket, more in zip(pairs[::2], pairs[1::2], strict=True):
            self.buckets[bucket] = self.buckets.get(bucket, 0) + more

    def add(self, other: Counts) -> None:
        """Count all that the other one has counted, too."""
        pairs = [number for pair in other.buckets.items() for number in pair]
        self.take(other.count, other.total_ns, other.maximum_ns, pairs)

    def quantiles_ns(self, shares: Sequence[float]) -> list[int]:
        """Shortest times in which such shares, in ascending order, were done; 0 where there was nothing."""
        found: list[int] = []
        ranks = [max(1, ceil(share * self.count)) for share in shares]
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            while len(found) < len(ranks) and ranks[len(found)] <= seen:
                is_last = ranks[len(found)] >= self.count
                found.append(self.maximum_ns if is_last else min(middle_ns(bucket), self.maximum_ns))
        return found + [self.maximum_ns] * (len(shares) - len(found))

    def latency(self) -> Latency:
        """What a result says of it."""
        if self.count == 0:
            return Latency()
        quantiles = self.quantiles_ns([float(name) / PERCENT for name in PERCENTILES])
        cumulative: list[list[float]] = []
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            cumulative.append([min(upper_ns(bucket), self.maximum_ns) / NS_IN_US, seen])
        return Latency(
            self.count,
            self.total_ns / self.count / NS_IN_US,
            {name: found / NS_IN_US for name, found in zip(PERCENTILES, quantiles, strict=True)},
            cumulative,
        )
