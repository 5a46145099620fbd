"""How much is in a partition and how much is asked of it, as its hosts say; and beyond what a range is divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


HARDLY: Final = 64  # Of an hour's writes it is a minute's.


class Written(NamedTuple):
    """What the last hour's writes to a time series covered; `placement.ahead` goes by it."""

    prefix: bytes  # What stands before the time in its keys: a table may have several series.
    low: int  # The oldest time, and the newest, but for what one clock may have got wrong.
    high: int
    bytes: int
    seconds: int  # For how long it has been written to, an hour at most.

    def beside(self, other: Written) -> Written:
        """What was written at two hosts; one that has hardly any of it moves no end: a clock may be wrong."""
        assert self.prefix == other.prefix
        most = max(self.bytes, other.bytes)
        counted = [one for one in (self, other) if one.bytes * HARDLY >= most]
        low, high = min(one.low for one in counted), max(one.high for one in counted)
        return Written(self.prefix, low, high, self.bytes + other.bytes, max(self.seconds, other.seconds))


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


class Said(NamedTuple):
    """What the hosts of a table say together."""

    measures: Mapping[int, Measure]  # By partition; what nobody says is missing.
    series: Sequence[Written] = ()


class Limits(NamedTuple):
    """Beyond which a range is divided; 0: that is no reason."""

    size_bytes: int
    rows: int

    def are_exceeded(self, measured: tuple[int, int]) -> bool:
        """Whether a copy of so many bytes and records is too large."""
        size_bytes, rows = measured
        return 0 < self.size_bytes < size_bytes or 0 < self.rows < rows
