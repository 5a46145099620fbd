"""Numbers of the last minutes as lines: SVG paths on a grid, and the same in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page.history import KEPT, LONGEST_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.http.page.history import Interval

WIDTH: Final = KEPT - 1  # A unit is one second; the present is on the right.
HEIGHT: Final = 60
MILLISECOND_US: Final = 1000
SECOND_US: Final = 1_000_000
MIN_TOP: Final = 10.0  # The least top of an axis of rates, so that a few requests a second do not fill it.


class ChartLine(NamedTuple):
    """One row of numbers."""

    name: str
    path: str
    now: str


class GridLine(NamedTuple):
    """One line of the grid."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines on a grid."""

    title: str
    lines: tuple[ChartLine, ...]
    ticks: tuple[GridLine, ...]
    words: str


Point = tuple[float, float | None]  # Time and value; None: no value.


def rate_chart(intervals: Sequence[Interval]) -> Chart | None:
    """Return the chart of requests and errors per second; None: no data yet."""
    if not intervals:
        return None
    points: dict[str, list[Point]] = {
        "requests": [(interval.end_s, interval.requests_per_s) for interval in intervals],
        "errors": [(interval.end_s, interval.errors_per_s) for interval in intervals],
    }
    highest = max(interval.requests_per_s for interval in intervals)
    top = nice(max(highest, *(interval.errors_per_s for interval in intervals)))
    lines = _lines(points, lambda value: HEIGHT - value / top * HEIGHT, rate_text)
    ticks = tuple(GridLine(HEIGHT - part * HEIGHT, rate_text(top * part)) for part in (0, 0.5, 1))
    words = f"now {lines[0].now}/s, at most {rate_text(highest)}/s; errors now {lines[1].now}/s"
    return Chart("Requests a second", lines, ticks, words)


def latency_chart(intervals: Sequence[Interval]) -> Chart | None:
    """Return the chart of latencies, on a logarithmic axis; None: no data yet."""
    if not intervals:
        return None
    points: dict[str, list[Point]] = {
        "p50": [(interval.end_s, interval.here.p50_us) for interval in intervals],
        "p99": [(interval.end_s, interval.here.p99_us) for interval in intervals],
        "p99 by other nodes": [(interval.end_s, interval.elsewhere.p99_us) for interval in intervals],
    }
    if all(value is None for line in points.values() for _, value in line):
        points = {
            "mean": [(interval.end_s, interval.here.mean_us) for interval in intervals],
            "mean by other nodes": [(interval.end_s, interval.elsewhere.mean_us) for interval in intervals],
        }
    values = [value for line in points.values() for _, value in line if value]
    low = math.floor(math.log10(min(values))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values)))) if values else 3

    def height(value: float) -> float:
        above = (math.log10(value) - low) / (high - low) if value > 0 else 0
        return HEIGHT - above * HEIGHT

    lines = tuple(line for line in _lines(points, height, duration_us_text) if line.path)
    ticks = tuple(GridLine(height(10.0**power), duration_us_text(10.0**power)) for power in range(low, high + 1))
    words = ", ".join(f"{line.name} {line.now}" for line in lines) or "no request was answered"
    return Chart("Latency", lines, ticks if lines else (), words)


def _lines(
    named: dict[str, list[Point]], height: Callable[[float], float], text: Callable[[float], str]
) -> tuple[ChartLine, ...]:
    now_s = max(at_s for points in named.values() for at_s, _ in points)
    found = []
    for name, points in named.items():
        last = points[-1][1]
        found.append(ChartLine(name, path_of(points, now_s, height), "-" if last is None else text(last)))
    return tuple(found)


def path_of(points: Sequence[Point], now_s: float, height: Callable[[float], float]) -> str:
    """Return a line through the points, broken at gaps in values or time; a single point is a short dash."""
    words, before_s, is_down = [], -math.inf, False
    for at_s, value in points:
        x = WIDTH - (now_s - at_s)
        if value is None or x < 0:
            is_down = False
            continue
        goes_on = is_down and at_s - before_s <= LONGEST_S
        if goes_on:
            words.append(f"L{x:.0f} {height(value):.1f}")
        else:
            words.append(f"M{max(0, x - 1):.0f} {height(value):.1f}H{x:.0f}")
        before_s, is_down = at_s, True
    return "".join(words)


def nice(value: float) -> float:
    """Return the smallest number from 1, 2, 5 times a power of ten that is no less than `value`; at least 10."""
    if value <= MIN_TOP:
        return MIN_TOP
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def rate_text(value: float) -> str:
    """Return a rate of requests per second as text."""
    return f"{value:,.1f}" if 0 < value < MIN_TOP and value % 1 else f"{value:,.0f}"


def duration_us_text(value: float) -> str:
    """Return a short time as text, to three digits."""
    for unit, size in (("s", SECOND_US), ("ms", MILLISECOND_US)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} µs"
