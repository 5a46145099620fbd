"""Counters of a node in the last minutes: one sample a second, and the intervals between neighbours.

A node counts since its start, so all values here are differences.  Percentiles come from its histograms' buckets, and
are upper bounds of buckets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.status.reading import list_of, map_of, number_of, whole_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.wire.rpc import Value

KEPT: Final = 301  # The samples cover five minutes, one a second.
LONGEST_S: Final = 5.0  # The longest interval that is shown; after longer ones no page was being viewed.
READS: Final = ("gets", "get_manys", "scans")


class Counted(NamedTuple):
    """A histogram since the node's start."""

    total: int
    sum_us: float
    buckets: tuple[tuple[float, int], ...]  # Upper bounds in microseconds, with cumulative counts.


class Sample(NamedTuple):
    """One look at a node's counters."""

    at_s: float
    requests: int
    errors: int
    here: Counted
    elsewhere: Counted


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

    def add(self, at_s: float, info: Mapping[str, Value]) -> None:
        """Keep a sample; after a restart of the node the history begins anew."""
        taken = _sample(at_s, info)
        if self._samples and not _follows(self._samples[-1], taken):
            self._samples.clear()
        self._samples.append(taken)

    def intervals(self) -> list[Interval]:
        """Return the intervals between adjacent samples, the oldest first, without long gaps."""
        samples = list(self._samples)
        pairs = pairwise(samples)
        return [_interval(one, two) for one, two in pairs if 0 < two.at_s - one.at_s <= LONGEST_S]


def _sample(at_s: float, info: Mapping[str, Value]) -> Sample:
    counters, latency = map_of(info.get("counters")), map_of(info.get("latency"))
    errors = sum(whole_of(count) or 0 for name, count in counters.items() if name.startswith("errors_"))
    requests = sum(whole_of(counters.get(name)) or 0 for name in READS)
    return Sample(at_s, requests, errors, _counted(latency, "local"), _counted(latency, "forwarded"))


def _counted(latency: Mapping[str, Value], name: str) -> Counted:
    told = map_of(latency.get(name))
    buckets = tuple(_buckets(told.get("buckets")))
    return Counted(whole_of(told.get("count")) or 0, number_of(told.get("sum_us")) or 0.0, buckets)


def _buckets(told: Value) -> list[tuple[float, int]]:
    found = []
    for bucket in map(list_of, list_of(told)):
        match bucket:
            case [int() | float() as bound_us, int(count)]:
                found.append((float(bound_us), count))
            case _:
                return []
    return found


def _follows(one: Sample, two: Sample) -> bool:
    return one.requests <= two.requests and one.here.total <= two.here.total and one.errors <= two.errors


def _interval(one: Sample, two: Sample) -> Interval:
    length_s = two.at_s - one.at_s
    return Interval(
        two.at_s,
        length_s,
        (two.requests - one.requests) / length_s,
        (two.errors - one.errors) / length_s,
        _latency(one.here, two.here),
        _latency(one.elsewhere, two.elsewhere),
    )


def _latency(one: Counted, two: Counted) -> IntervalLatency:
    count = two.total - one.total
    if count <= 0:
        return IntervalLatency()
    mean_us = max(0.0, two.sum_us - one.sum_us) / count
    before = dict(one.buckets)
    grown = [(bound_us, reached - before.get(bound_us, 0)) for bound_us, reached in two.buckets]
    return IntervalLatency(_percentile(grown, 0.5), _percentile(grown, 0.99), mean_us)


def _percentile(grown: Sequence[tuple[float, int]], part: float) -> float | None:
    """Return the upper bound of the bucket that reaches this part of the requests."""
    if not grown or grown[-1][1] <= 0:
        return None
    wanted = part * grown[-1][1]
    return next(bound_us for bound_us, reached in grown if reached >= wanted)
