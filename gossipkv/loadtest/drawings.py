"""The plots of a report: latency by percentile, and values over time, drawn for a wide and a narrow page.

A drawing holds the parts that the template writes as SVG: lines as paths, ticks, marks.  The text of a drawing has one
size whatever the page's width, so each plot is drawn for two widths and the style sheet shows one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures
from gossipkv.loadtest.plot import LEAST, AxisTick, Linear, Logarithmic, highest, path, round_down, round_up, thinned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORMS: Final = {"wide": 920, "narrow": 360}  # The keys are names in the style sheet, the values are widths.
LEFT_PX: Final = 62  # This has room for "1.23 ms" and a gap.
RIGHT_PX: Final = 16
TOP_PX: Final = 22  # The flags of marks stand here.
BOTTOM_PX: Final = 24  # One row of labels stands here.
LABEL_PX: Final = {"wide": 74, "narrow": 62}  # The least distance between two labels below an axis.
POINT_PX: Final = 2  # Narrower steps of a line are invisible.
HINT_PX: Final = 6  # The least width that a pointer can hit.
FLAG_PX: Final = 18
RARITY_PX: Final = 74  # One and a half labels: "99.99 %" at the edge stands to the left of its place.
SHORTEST_US: Final = 1.0  # Shorter values, as of lateness, get no decade of their own.
ROWS: Final = 4  # A linear axis names this many values, except 0.


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """Cumulative latencies of one kind: for each share of the requests, the longest time in microseconds."""

    name: str
    style: str
    points: tuple[tuple[float, float], ...]  # The points are (1 of how many took longer, us), both growing.


@final
@dataclass(frozen=True, slots=True)
class Series:
    """One value a second; None for no value."""

    name: str
    style: str
    values: tuple[float | None, ...]


@final
@dataclass(frozen=True, slots=True)
class Moment:
    """An event at a time, by its number in the list below the plots."""

    t_s: float
    number: int


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """The vertical axis.

    Args:
        label: Formats a value.
        fold: Combines values, if there are more seconds than places.
    """

    label: Callable[[float], str]
    fold: Callable[[Sequence[float | None]], float | None] = highest
    is_logarithmic: bool = False


@final
@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line as it is drawn."""

    style: str
    d: str


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a flag, for one moment or several that would overlap."""

    at: float
    label: str
    width: int


@final
@dataclass(frozen=True, slots=True)
class PlotHint:
    """The text shown when a pointer rests on a part of the plot."""

    at: float
    width: float
    text: str


@final
@dataclass(frozen=True, slots=True)
class Drawing:
    """One plot at one width."""

    form: str
    title: str
    width: int
    height: int
    rows: list[AxisTick]
    columns: list[AxisTick]
    lines: list[PlotLine]
    marks: list[Mark] = field(default_factory=list)
    hints: list[PlotHint] = field(default_factory=list)

    @property
    def left(self) -> int:
        return LEFT_PX

    @property
    def right(self) -> int:
        return self.width - RIGHT_PX

    @property
    def top(self) -> int:
        return TOP_PX

    @property
    def bottom(self) -> int:
        return self.height - BOTTOM_PX


@final
@dataclass(frozen=True, slots=True)
class PlotClock:
    """The seconds of a run that a plot shows, and their events."""

    begin_s: float
    seconds: int
    moments: tuple[Moment, ...] = ()


def by_percentile(title: str, curves: Sequence[Curve]) -> list[Drawing]:
    """Draw latency against rarity: half, 1 in 10, 1 in 100 ..., both logarithmic."""
    return [_by_percentile(title, curves, form, width) for form, width in FORMS.items()]


def over_time(title: str, clock: PlotClock, series: Sequence[Series], axis: Axis) -> list[Drawing]:
    """Draw values by second."""
    return [_over_time(title, clock, series, axis, form) for form in FORMS]


def by_rate(title: str, lines: Sequence[tuple[str, str, Sequence[tuple[float, float | None]]]]) -> list[Drawing]:
    """Draw latencies against rates; each line has a name, a style, and points (a second, us)."""
    return [_by_rate(title, lines, form, width) for form, width in FORMS.items()]


def curve(name: str, style: str, buckets: Sequence[tuple[float, int]], most_us: float | None) -> Curve:
    """Return the curve of a histogram of (upper bound in us, cumulative count); the slowest took `most_us`.

    A bucket stands for its upper bound, so the curve says "took at most". The curve ends at the rarity of a single
    request; rarer latencies were not observed.
    """
    whole = buckets[-1][1] if buckets else 0
    points = []
    for upper_us, seen in buckets:
        one_in = whole / (whole - seen) if seen < whole else float(whole)
        points.append((one_in, upper_us if most_us is None else min(upper_us, most_us)))
    return Curve(name, style, tuple(points))


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the existing values."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _by_percentile(title: str, curves: Sequence[Curve], form: str, width: int) -> Drawing:
    height = 340 if form == "wide" else 300
    rarest = max((one_in for curve in curves for one_in, _ in curve.points), default=10.0)
    across = Logarithmic(1.0, max(10.0, rarest), LEFT_PX, width - RIGHT_PX)
    up = _logarithmic([us for curve in curves for _, us in curve.points if us >= SHORTEST_US], height)
    return Drawing(
        form,
        title,
        width,
        height,
        up.ticks(figures.latency),
        _rarities(across, rarest),
        [
            PlotLine(curve.style, path([(across.at(1.0), up.at(curve.points[0][1])), *_placed(curve, across, up)]))
            for curve in curves
            if curve.points
        ],
    )


def _placed(curve: Curve, across: Logarithmic, up: Logarithmic) -> list[tuple[float, float | None]]:
    return [(across.at(one_in), up.at(us)) for one_in, us in curve.points]


def _rarities(across: Logarithmic, rarest: float) -> list[AxisTick]:
    """Return ticks for 50 %, 90 %, 99 %, 99.9 % ..., omitting labels that would touch."""
    decades = range(1, int(math.log10(max(10.0, rarest)) + LEAST) + 1)
    named = [(2.0, "50 %"), *((10.0**n, f"{100 - 10.0 ** (2 - n):.{max(n - 2, 0)}f} %") for n in decades)]
    ticks: list[AxisTick] = []
    for one_in, label in named:
        if not ticks or across.at(one_in) - ticks[-1].at >= RARITY_PX:
            ticks.append(AxisTick(across.at(one_in), label))
    return ticks


def _by_rate(
    title: str, lines: Sequence[tuple[str, str, Sequence[tuple[float, float | None]]]], form: str, width: int
) -> Drawing:
    height = 260
    rates = [rate for _, _, points in lines for rate, _ in points]
    across = Linear(max(rates, default=1.0), LEFT_PX, width - RIGHT_PX)
    up = _logarithmic([us for _, _, points in lines for _, us in points if us], height)
    return Drawing(
        form,
        title,
        width,
        height,
        up.ticks(figures.latency),
        across.ticks(figures.short_count, (width - LEFT_PX) // LABEL_PX[form]),
        [
            PlotLine(style, path((across.at(rate), up.at(us) if us else None) for rate, us in sorted(points)))
            for _, style, points in lines
        ],
    )


def _over_time(title: str, clock: PlotClock, series: Sequence[Series], axis: Axis, form: str) -> Drawing:
    width, height = FORMS[form], 190
    across = Linear(float(max(clock.seconds, 1)), LEFT_PX, width - RIGHT_PX)
    runs = thinned(clock.seconds, (width - LEFT_PX - RIGHT_PX) // POINT_PX)
    folded = [[axis.fold(line.values[run.start : run.stop]) for run in runs] for line in series]
    up = _upwards([value for values in folded for value in values if value is not None and value > 0], height, axis)
    middles = [across.at((run.start + run.stop) / 2) for run in runs]
    return Drawing(
        form,
        title,
        width,
        height,
        up.ticks(axis.label) if isinstance(up, Logarithmic) else up.ticks(axis.label, ROWS),
        across.ticks(lambda t_s: figures.seconds(t_s + clock.begin_s), (width - LEFT_PX) // LABEL_PX[form]),
        [PlotLine(line.style, path(_raised(middles, values, up))) for line, values in zip(series, folded, strict=True)],
        _marks(clock, across),
        _hints(clock, series, axis, across) if form == "wide" else [],
    )


def _raised(
    places: Sequence[float], values: Sequence[float | None], up: Linear | Logarithmic
) -> list[tuple[float, float | None]]:
    """Return values at their places; a logarithmic axis has no place for 0."""
    least = 0.0 if isinstance(up, Linear) else LEAST
    return [
        (x, None if value is None or value < least else up.at(value)) for x, value in zip(places, values, strict=True)
    ]


def _upwards(values: Sequence[float], height: int, axis: Axis) -> Linear | Logarithmic:
    if axis.is_logarithmic:
        return _logarithmic(values, height)
    high = max(values, default=1.0)
    step = round_up(high / ROWS)
    return Linear(math.ceil(high / step - LEAST) * step, height - BOTTOM_PX, TOP_PX)


def _logarithmic(values: Sequence[float], height: int) -> Logarithmic:
    low = round_down(min(values, default=1.0))
    return Logarithmic(low, _above(low, max(values, default=10.0)), height - BOTTOM_PX, TOP_PX)


def _above(low: float, high: float) -> float:
    """Return the upper edge of a logarithmic axis: round, and above the lower edge."""
    return max(round_up(high), 10 * low)


def _marks(clock: PlotClock, across: Linear) -> list[Mark]:
    """Return a mark for each moment; moments with overlapping flags share one."""
    marks: list[Mark] = []
    group: list[Moment] = []
    for moment in sorted(clock.moments, key=lambda moment: (moment.t_s, moment.number)):
        if group and across.at(moment.t_s - clock.begin_s) - across.at(group[0].t_s - clock.begin_s) >= 2 * FLAG_PX:
            marks.append(_mark(group, clock, across))
            group = []
        group.append(moment)
    return [*marks, _mark(group, clock, across)] if group else marks


def _mark(group: Sequence[Moment], clock: PlotClock, across: Linear) -> Mark:
    numbers = [moment.number for moment in group]
    label = str(numbers[0]) if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"
    return Mark(across.at(group[0].t_s - clock.begin_s), label, FLAG_PX + 7 * (len(label) - 1))


def _hints(clock: PlotClock, series: Sequence[Series], axis: Axis, across: Linear) -> list[PlotHint]:
    hints = []
    for run in thinned(clock.seconds, int((across.end_px - across.begin_px) // HINT_PX)):
        values = [(line.name, axis.fold(line.values[run.start : run.stop])) for line in series]
        text = ", ".join(f"{name} {'-' if value is None else axis.label(value)}" for name, value in values)
        begin, end = across.at(run.start), across.at(run.stop)
        hints.append(PlotHint(begin, end - begin, f"{figures.seconds(clock.begin_s + run.start)}: {text}"))
    return hints
