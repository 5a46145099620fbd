"""Counters of a node in the last minutes: one sample a second, and the intervals between neighbours.

A node counts since its start, so all values here are differences.  Percentiles come from its histograms' buckets, and
are upper bounds of buckets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport, LatencyReport

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT: Final = 301  # The samples cover five minutes, one a second.
LONGEST_S: Final = 5.0  # The longest interval that is shown; after longer ones no page was being viewed.
READS: Final = ("gets", "get_manys", "scans")


_NONE: Final = decode(LatencyReport, None)


class Sample(NamedTuple):
    """One look at a node's counters."""

    at_s: float
    requests: int
    errors: int
    here: LatencyReport
    elsewhere: LatencyReport


@dataclass(frozen=True, slots=True)
class IntervalLatency:
    """Latencies of an interval, in microseconds; None: not known, or no requests."""

    p50_us: float | None = None
    p99_us: float | None = None
    mean_us: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """The changes between two samples."""

    end_s: float
    length_s: float
    requests_per_s: float
    errors_per_s: float
    here: IntervalLatency
    elsewhere: IntervalLatency


@final
class NodeHistory:
    """The recent samples of one node."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=KEPT)

    def add(self, at_s: float, info: InfoReport) -> None:
        """Keep a sample; after a restart of the node the history begins anew."""
        taken = _sample(at_s, info)
        if self._samples and not _follows(self._samples[-1], taken):
            self._samples.clear()
        self._samples.append(taken)

    def intervals(self) -> list[Interval]:
        """Return the intervals between adjacent samples, the oldest first, without long gaps."""
        samples = list(self._samples)
        pairs = pairwise(samples)
        return [_interval(before, after) for before, after in pairs if 0 < after.at_s - before.at_s <= LONGEST_S]


def _sample(at_s: float, info: InfoReport) -> Sample:
    errors = sum(count for name, count in info.counters.items() if name.startswith("errors_"))
    requests = sum(info.counters.get(name, 0) for name in READS)
    return Sample(at_s, requests, errors, info.latency.get("local", _NONE), info.latency.get("forwarded", _NONE))


def _follows(before: Sample, after: Sample) -> bool:
    grows = before.requests <= after.requests and before.errors <= after.errors
    return grows and before.here.count <= after.here.count


def _interval(before: Sample, after: Sample) -> Interval:
    length_s = after.at_s - before.at_s
    return Interval(
        after.at_s,
        length_s,
        (after.requests - before.requests) / length_s,
        (after.errors - before.errors) / length_s,
        _latency(before.here, after.here),
        _latency(before.elsewhere, after.elsewhere),
    )


def _latency(before: LatencyReport, after: LatencyReport) -> IntervalLatency:
    count = after.count - before.count
    if count <= 0:
        return IntervalLatency()
    mean_us = max(0.0, after.sum_us - before.sum_us) / count
    earlier = dict(before.buckets)
    grown = [(bound_us, reached - earlier.get(bound_us, 0)) for bound_us, reached in after.buckets]
    return IntervalLatency(_percentile(grown, 0.5), _percentile(grown, 0.99), mean_us)


def _percentile(grown: Sequence[tuple[float, int]], part: float) -> float | None:
    """Return the upper bound of the bucket that reaches this part of the requests."""
    if not grown or grown[-1][1] <= 0:
        return None
    wanted = part * grown[-1][1]
    return next(bound_us for bound_us, reached in grown if reached >= wanted)
