"""The choice of plots for a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures
from gossipkv.loadtest.drawings import (
    Axis,
    Curve,
    Drawing,
    Moment,
    PlotClock,
    Series,
    by_percentile,
    by_rate,
    curve,
    mean,
    over_time,
)
from gossipkv.loadtest.measures import ALL
from gossipkv.loadtest.plot import highest

if TYPE_CHECKING:
    from gossipkv.loadtest.result import Event, LatencyResult, OfStep, Result, Second

STYLES: Final = {ALL: "one", "get": "two", "get_many": "three", "scan": "four"}
OTHER_STYLE: Final = "faint thin"
MARKED: Final = frozenset({"member", "version", "silent", "answers", "frozen", "generator"})
STEPS: Final = 3  # From this number of steps on a line through them is meaningful.
MIN_S: Final = 0.1  # The shortest last second for which a rate is not left to chance.


@final
@dataclass(frozen=True, slots=True)
class Plot:
    """One plot: its title, its lines by name and style, and its drawing for each width."""

    title: str
    legend: list[tuple[str, str]]
    drawings: list[Drawing]


def percentile_plots(result: Result) -> list[Plot]:
    """Plot latencies by rarity: all requests, each kind of a mix, and the lateness."""
    kinds = {kind: latency for kind, latency in result.latency.items() if kind != ALL}
    drawn = {ALL: result.latency[ALL]} if ALL in result.latency else {}
    drawn |= kinds if len(kinds) > 1 or not drawn else {}
    curves = [
        _curve("all requests" if name == ALL else name, STYLES.get(name, OTHER_STYLE), latency)
        for name, latency in drawn.items()
    ]
    if result.lateness is not None:
        curves.append(_curve("sent late by", OTHER_STYLE, result.lateness))
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return []
    title = "Latency by percentile"
    return [Plot(title, [(curve.name, curve.style) for curve in curves], by_percentile(title, curves))]


def rate_plots(result: Result) -> list[Plot]:
    """Plot latency by rate, if several rates were requested."""
    steps = [step for step in result.steps if step.rate is not None and step.latency.count]
    if len({step.rate for step in steps}) < STEPS:
        return []
    points = [
        ("p50", "one", [(step.rate or 0.0, step.latency.percentiles.get("50")) for step in steps]),
        ("p99", "two", [(step.rate or 0.0, step.latency.percentiles.get("99")) for step in steps]),
    ]
    title = "Latency by requested rate"
    return [Plot(title, [(name, style) for name, style, _ in points], by_rate(title, points))]


def time_plots(result: Result) -> list[Plot]:
    """Plot throughput, latency and failures by second, each with marks of events."""
    if not result.seconds:
        return []
    seconds, clock = _every_second(result)
    rates = Series("answered", "one", tuple(_rates(result, seconds, int(clock.begin_s))))
    asked = Series("requested", "faint thin", tuple(_asked(result.steps, seconds, int(clock.begin_s))))
    throughput = [rates, asked] if any(asked.values) else [rates]
    latencies = [
        Series(name, style, tuple(_micros(second, field) for second in seconds))
        for name, style, field in (("p50", "one", "p50_us"), ("p99", "two", "p99_us"), ("max", OTHER_STYLE, "max_us"))
    ]
    failures = [
        Series("errors and lost", "two", tuple(float(second.errors) if second else 0.0 for second in seconds)),
        Series("wrong values", "wrongs", tuple(float(second.wrong) if second else 0.0 for second in seconds)),
    ]
    plots = [
        _plot("Answers per second", clock, throughput, Axis(figures.short_count, mean)),
        _plot("Latency", clock, latencies, Axis(figures.latency, is_logarithmic=True)),
    ]
    if any(value for series in failures for value in series.values):
        plots.append(_plot("Failures per second", clock, failures, Axis(figures.short_count, highest)))
    return plots


def moments(result: Result) -> list[tuple[int | None, Event]]:
    """Return the events in order, numbered if the plots mark them."""
    numbered: list[tuple[int | None, Event]] = []
    number = 0
    for event in sorted(result.events, key=lambda event: event.t):
        number += event.what in MARKED
        numbered.append((number if event.what in MARKED else None, event))
    return numbered


def _plot(title: str, clock: PlotClock, series: list[Series], axis: Axis) -> Plot:
    return Plot(title, [(line.name, line.style) for line in series], over_time(title, clock, series, axis))


def _curve(name: str, style: str, latency: LatencyResult) -> Curve:
    return curve(name, style, [(upper, int(seen)) for upper, seen in latency.buckets], latency.percentiles.get("100"))


def _every_second(result: Result) -> tuple[list[Second | None], PlotClock]:
    """Return all seconds from the first to the last, None without answers, and their clock."""
    by_time = {second.t: second for second in result.seconds}
    first, last = min(by_time), max(by_time)
    end = by_time[last]
    if last > first and _part_s(result, last) < MIN_S and not (end.errors or end.wrong):
        last -= 1  # This second has only the few answers that came after the end.
    marks = tuple(Moment(event.t, number) for number, event in moments(result) if number is not None)
    return [by_time.get(t) for t in range(first, last + 1)], PlotClock(float(first), last + 1 - first, marks)


def _rates(result: Result, seconds: list[Second | None], first: int) -> list[float | None]:
    """Return answers per second; the last value is scaled from its part of a second."""
    rates: list[float | None] = [float(second.requests) if second else 0.0 for second in seconds]
    part_s = _part_s(result, first + len(seconds) - 1)
    if len(rates) > 1 and part_s < 1:
        rates[-1] = (rates[-1] or 0.0) / part_s if part_s >= MIN_S else None
    return rates


def _part_s(result: Result, t: int) -> float:
    """Return the part of a second that belongs to the run; 1 if rounds and warm-ups follow each other."""
    return 1.0 if len(result.rounds) > 1 else result.totals.duration_s - t


def _asked(steps: list[OfStep], seconds: list[Second | None], first: int) -> list[float | None]:
    """Return the requested rate in the middle of each second."""
    asked: list[float | None] = []
    for middle_s in (first + at + 0.5 for at in range(len(seconds))):
        within = [step for step in steps if step.begins_s <= middle_s < step.begins_s + step.duration_s]
        asked.append(within[0].rate if within else None)
    return asked


def _micros(second: Second | None, field: str) -> float | None:
    """Return a latency of a second; None without answers."""
    if second is None or second.requests == 0:
        return None
    found = {"p50_us": second.p50_us, "p99_us": second.p99_us, "max_us": second.max_us}
    return found[field]
