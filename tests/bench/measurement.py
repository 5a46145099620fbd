"""One row's figures: the same thing done by us and by others, once a round.

The figure that counts is a ratio, and it is taken within a round, since what disturbs a round on a shared machine
disturbs both sides of it; the median over the rounds is reported, with the least and the greatest beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """Ours over theirs."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Measurement:
    """`samples[name]` has one figure a round, in `unit`; smaller is better.  `subject` is the name that is ours."""

    row: str
    unit: str
    subject: str
    samples: dict[str, list[float]]

    def ratio(self, peer: str) -> Ratio:
        """Over the rounds."""
        ratios = [ours / theirs for ours, theirs in zip(self.samples[self.subject], self.samples[peer], strict=True)]
        return Ratio(median(ratios), min(ratios), max(ratios))

    def typical(self, name: str) -> float:
        """The median figure of one side."""
        return median(self.samples[name])

    @property
    def peers(self) -> list[str]:
        """Everyone but us."""
        return [name for name in self.samples if name != self.subject]
