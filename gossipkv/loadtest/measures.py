"""Measures of a result: each number has one name, in limits, comparisons and reports.

p50 p90 p99 p99.9 p99.99 max mean    latencies, in microseconds; `get.p99` is that of one kind of request
rate                                 answers a second
errors wrong lost unsent steps_back  counts
cpu                                  microseconds of the servers' processors for each request
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.loadtest.result import LatencyResult, OfRound, Result, RunTotals, ServerCpu

ALL: Final = "all"  # All kinds of requests together.


@final
@dataclass(frozen=True, slots=True)
class RunMeasure:
    """One number of a result.

    Args:
        words: Its description for people.
        shown: Formats it, with its unit.
        more_is_better: False if less is better.
    """

    words: str
    shown: Callable[[float | None], str]
    more_is_better: bool = False


# Names of latencies, and their keys in the document; `mean` has a field of its own.
LATENCIES: Final = {
    "p50": "50",
    "p90": "90",
    "p99": "99",
    "p99.9": "99.9",
    "p99.99": "99.99",
    "max": "100",
    "mean": None,
}
COUNTS: Final = {
    "errors": "requests refused with an error",
    "wrong": "wrong values",
    "lost": "requests lost with their connection",
    "unsent": "requests that were due and never sent",
    "steps_back": "answers from an older version than the answer before",
}
MEASURES: Final = {
    "rate": RunMeasure("answers per second", figures.rate, more_is_better=True),
    **{name: RunMeasure(f"latency, {name}", figures.latency) for name in LATENCIES},
    "cpu": RunMeasure("processor time of the servers per request", figures.latency),
    **{name: RunMeasure(words, figures.count) for name, words in COUNTS.items()},
}


def measured(name: str, of: Result | OfRound, kind: str = ALL) -> float | None:
    """Return a number of a result or of one of its rounds; None if unknown.

    Raises:
        KeyError: there is no measure of that name.
    """
    if name in LATENCIES:
        return latency_at(name, of.latency.get(kind))
    if name == "rate":
        return of.totals.rate
    if name == "cpu":
        return _cpu(of.server_cpu, of.totals)
    return float(counted(name, of.totals))


def latency_at(name: str, latency: LatencyResult | None) -> float | None:
    """Return one of `LATENCIES`, in microseconds; None without an answer.

    Raises:
        KeyError: there is no latency of that name.
    """
    percentile = LATENCIES[name]
    if latency is None or latency.count == 0:
        return None
    return latency.mean_us if percentile is None else latency.percentiles.get(percentile)


def counted(name: str, totals: RunTotals) -> int:
    """Return one of `COUNTS`.

    Raises:
        KeyError: there is no count of that name.
    """
    counts = {
        "errors": sum(totals.errors.values()),
        "wrong": totals.wrong,
        "lost": totals.lost,
        "unsent": totals.unsent,
        "steps_back": totals.steps_back,
    }
    return counts[name]


def asked(totals: RunTotals) -> int:
    """Return the number of requests, whatever their outcome."""
    return totals.requests + counted("errors", totals) + totals.lost + totals.unsent


def _cpu(servers: Mapping[str, ServerCpu], totals: RunTotals) -> float | None:
    """Return the servers' processor time per answered request, over servers with known times; None if unknown."""
    times = [(server.cpu_s, server.us_per_request) for server in servers.values() if server.us_per_request]
    if not times:
        return 0.0 if servers and totals.requests else None
    return sum(cpu_s for cpu_s, _ in times) / sum(cpu_s / us_per_request for cpu_s, us_per_request in times)
