"""How much is in a partition and how much is asked of it, as its hosts say; and beyond what a range is divided."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """What a partition has."""

    size_bytes: int
    rows: int = 0
    rate: float = 0.0  # Requests a second, of all its hosts together.

    def beside(self, other: Measure | None) -> Measure:
        """What two hosts say together: the larger copy, and all requests."""
        if other is None:
            return self
        return Measure(max(self.size_bytes, other.size_bytes), max(self.rows, other.rows), self.rate + other.rate)


class Limits(NamedTuple):
    """Beyond which a range is divided; 0: that is no reason."""

    size_bytes: int
    rows: int

    def are_exceeded(self, measured: tuple[int, int]) -> bool:
        """Whether a copy of so many bytes and records is too large."""
        size_bytes, rows = measured
        return 0 < self.size_bytes < size_bytes or 0 < self.rows < rows
