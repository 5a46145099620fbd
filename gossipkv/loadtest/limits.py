"""Limits of a run: `p99>2ms` says what must not be.

    limit     = [kind "."] metric (">" | "<") number [unit]
    kind      = "get" | "get_many" | "scan"        of latencies alone; without it, all requests
    metric    = "p50" | "p90" | "p99" | "p99.9" | "p99.99" | "max" | "mean"     a latency, in us, ms or s
              | "rate"                                                          answers a second, no unit
              | "errors" | "wrong" | "lost" | "unsent" | "steps_back"           a count, or % of all requests

A limit is passed when what it says is so: `rate<1000` when there were fewer.  It is passed, too, when nobody can say:
a run without an answer has no p99, and who limits one wants to hear of that.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures
from gossipkv.loadtest.measures import ALL, COUNTS, LATENCIES, MEASURES, asked, measured
from gossipkv.loadtest.plan import KINDS

if TYPE_CHECKING:
    from gossipkv.loadtest.result import Result

LATENCY_UNITS: Final = {"us": 1.0, "ms": 1000.0, "s": 1_000_000.0}
METRICS: Final = (*LATENCIES, "rate", *COUNTS)
EXAMPLE: Final = "such as 'p99>2ms', 'rate<1000' or 'errors>0.1%'"

_FORM = re.compile(
    r"(?:(?P<kind>[a-z_]+)\.)?(?P<metric>[a-z_]+[0-9.]*)\s*(?P<operator>[<>])\s*"
    r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z%/]*)",
    re.ASCII,
)


@final
@dataclass(frozen=True, slots=True)
class Limit:
    """What must not be: the metric above or below a bound, which is in microseconds, a second, requests or percent."""

    text: str
    metric: str
    kind: str
    is_upper: bool
    bound: float
    is_share: bool

    def measured(self, result: Result) -> float | None:
        """What the run came to, in the unit of the bound; None if nobody knows."""
        number = measured(self.metric, result, self.kind)
        if not self.is_share or number is None:
            return number
        requests = asked(result.totals)
        return 100 * number / requests if requests else None

    def judge(self, result: Result) -> Verdict:
        """Whether a run passed this limit."""
        number = self.measured(result)
        if number is None:
            return Verdict(self.text, passed=True, measured="not known, as there was no such answer")
        shown = f"{figures.rounded(number)} %" if self.is_share else MEASURES[self.metric].shown(number)
        return Verdict(self.text, passed=number > self.bound if self.is_upper else number < self.bound, measured=shown)


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a limit was passed, and what was measured, as people read it."""

    limit: str
    passed: bool
    measured: str


def parse(text: str) -> Limit:
    """A limit as people write it.

    Raises:
        ValueError: it is none; says what is wrong with it, and what is right.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a metric, > or <, and a quantity, {EXAMPLE}")
    metric, kind, unit = match["metric"], match["kind"] or ALL, match["unit"]
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, n=1)
        raise ValueError(f"there is no metric {metric!r}" + (f"; the nearest is {near[0]}" if near else _all_metrics()))
    if kind != ALL and (kind not in KINDS or metric not in LATENCIES):
        raise ValueError(f"only a latency has a kind ({', '.join(KINDS)}), such as get.p99; got {kind}.{metric}")
    return Limit(
        text=text.strip(),
        metric=metric,
        kind=kind,
        is_upper=match["operator"] == ">",
        bound=float(match["number"]) * _factor(metric, unit),
        is_share=unit == "%",
    )


def _factor(metric: str, unit: str) -> float:
    """What one of the unit is, in that of the metric."""
    if metric in LATENCIES:
        if unit not in LATENCY_UNITS:
            raise ValueError(f"{metric} is a latency, in {', '.join(LATENCY_UNITS)}; got {unit or 'no unit'}")
        return LATENCY_UNITS[unit]
    if unit and (metric == "rate" or unit != "%"):
        right = "a number of requests a second" if metric == "rate" else "a number, or with % a share of all requests"
        raise ValueError(f"{metric} is {right}; got the unit {unit}")
    return 1.0


def _all_metrics() -> str:
    return f"; there are {', '.join(METRICS)}"
