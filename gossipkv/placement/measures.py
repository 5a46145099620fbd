"""Measures of partitions, as reported by their hosts, and the limits beyond which a range is divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


HARDLY: Final = 64  # A host with less than a minute's share of an hour's writes has hardly any.


class SeriesWrites(NamedTuple):
    """The span of the last hour's writes to a time series, for `placement.ahead`."""

    prefix: bytes  # Bytes before the time in keys: a table may have several series.
    low: int  # The oldest and the newest time, except for the error of one clock.
    high: int
    bytes: int
    seconds: int  # Duration of the writes, an hour at most.

    def beside(self, other: SeriesWrites) -> SeriesWrites:
        """Combine the writes at two hosts; ignore the span of a host with hardly any, since a clock may be wrong."""
        assert self.prefix == other.prefix
        most = max(self.bytes, other.bytes)
        counted = [writes for writes in (self, other) if writes.bytes * HARDLY >= most]
        low, high = min(writes.low for writes in counted), max(writes.high for writes in counted)
        return SeriesWrites(self.prefix, low, high, self.bytes + other.bytes, max(self.seconds, other.seconds))


class RangeMeasure(NamedTuple):
    """Size and request rate of a partition."""

    size_bytes: int
    rows: int = 0
    rate: float = 0.0  # Requests a second at all hosts together.

    def beside(self, other: RangeMeasure | None) -> RangeMeasure:
        """Combine the measures of two hosts: the larger copy, and all requests."""
        if other is None:
            return self
        return RangeMeasure(max(self.size_bytes, other.size_bytes), max(self.rows, other.rows), self.rate + other.rate)


class HostMeasures(NamedTuple):
    """Combined reports of the hosts of a table."""

    measures: Mapping[int, RangeMeasure]  # Partitions without a report are missing.
    series: Sequence[SeriesWrites] = ()


class MeasureLimits(NamedTuple):
    """Limits beyond which a range is divided; 0 means no limit."""

    size_bytes: int
    rows: int

    def are_exceeded(self, measured: tuple[int, int]) -> bool:
        """True if a copy of so many bytes and records is too large."""
        size_bytes, rows = measured
        return 0 < self.size_bytes < size_bytes or 0 < self.rows < rows
