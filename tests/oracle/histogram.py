"""A histogram in plain Python: every duration is kept, and sorted for each query."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil


@dataclass
class Durations:
    """The durations, in nanoseconds."""

    kept: list[int] = field(default_factory=list)

    def record(self, ns: int, count: int = 1) -> None:
        self.kept += [ns] * count

    def add(self, other: Durations) -> None:
        self.kept += other.kept

    @property
    def maximum(self) -> int:
        return max(self.kept, default=0)

    @property
    def mean(self) -> float:
        return float(Fraction(sum(self.kept), len(self.kept))) if self.kept else 0.0

    def below(self, us: float) -> int:
        return sum(ns < us * 1000 for ns in self.kept)

    def quantile(self, share: float) -> int:
        """Return the shortest duration that covers the given share of the durations."""
        if not self.kept:
            return 0
        rank = max(1, ceil(share * len(self.kept)))
        return sorted(self.kept)[rank - 1]
