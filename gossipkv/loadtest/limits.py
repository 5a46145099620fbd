"""Limits of a run: `p99>2ms` names a condition that must not occur.

    limit     = [kind "."] metric (">" | "<") number [unit]
    kind      = "get" | "put" | ... (`KINDS`)      of latencies only; without a kind, all requests
    metric    = "p50" | "p90" | "p99" | "p99.9" | "p99.99" | "max" | "mean"     a latency, in us, ms or s
              | "rate"                                                          answers a second, no unit
              | "errors" | "wrong" | "lost" | "unsent" | "steps_back"           a count, or % of all requests

A limit is passed if its condition holds: `rate<1000` if there were fewer.  A limit is passed as well if its metric is
unknown: a run without an answer has no p99, and must not succeed under a limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures
from gossipkv.loadtest.measures import ALL, COUNTS, LATENCIES, MEASURES, asked, measured
from gossipkv.loadtest.plan import KINDS
from gossipkv.settings.nearest import near

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
    """A forbidden condition: the metric above or below a bound in microseconds, per second, requests or percent."""

    text: str
    metric: str
    kind: str
    is_upper: bool
    bound: float
    is_share: bool

    def measured(self, result: Result) -> float | None:
        """Return the measured value in the bound's unit; None if unknown."""
        number = measured(self.metric, result, self.kind)
        if not self.is_share or number is None:
            return number
        requests = asked(result.totals)
        return 100 * number / requests if requests else None

    def judge(self, result: Result) -> LimitVerdict:
        number = self.measured(result)
        if number is None:
            return LimitVerdict(self.text, passed=True, measured="unknown, because no answer counts for it")
        shown = f"{figures.rounded(number)} %" if self.is_share else MEASURES[self.metric].shown(number)
        return LimitVerdict(
            self.text, passed=number > self.bound if self.is_upper else number < self.bound, measured=shown
        )


@final
@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """The outcome of a limit, with the measured value for people."""

    limit: str
    passed: bool
    measured: str


def parse(text: str) -> Limit:
    """Parse a limit in its text form.

    Raises:
        ValueError: it is malformed; names the fault and the right form.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a metric, > or <, and a quantity, {EXAMPLE}")
    metric, kind, unit = match["metric"], match["kind"] or ALL, match["unit"]
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}{near(metric, METRICS) or _all_metrics()}")
    if kind != ALL and (kind not in KINDS or metric not in LATENCIES):
        raise ValueError(f"only a latency can have a kind ({', '.join(KINDS)}), such as get.p99; got {kind}.{metric}")
    return Limit(
        text=text.strip(),
        metric=metric,
        kind=kind,
        is_upper=match["operator"] == ">",
        bound=float(match["number"]) * _factor(metric, unit),
        is_share=unit == "%",
    )


def _factor(metric: str, unit: str) -> float:
    """Return the factor from the unit to that of the metric."""
    if metric in LATENCIES:
        if unit not in LATENCY_UNITS:
            raise ValueError(
                f"{metric} is a latency and needs one of the units {', '.join(LATENCY_UNITS)}; got {unit or 'no unit'}"
            )
        return LATENCY_UNITS[unit]
    if unit and (metric == "rate" or unit != "%"):
        right = (
            "a number of requests per second without a unit"
            if metric == "rate"
            else "a number, or a share of all requests with %"
        )
        raise ValueError(f"{metric} must be {right}; got the unit {unit}")
    return 1.0


def _all_metrics() -> str:
    return f"; the metrics are {', '.join(METRICS)}"
