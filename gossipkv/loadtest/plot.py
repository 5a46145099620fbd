"""Geometry of plots: places of values between two edges, ticks of an axis, lines as paths.

The module knows nothing of loads or HTML.  Units are those of the drawing, with the origin at the top left.  A scale
gets its begin and end pixels, so one that grows upwards gets the lower edge first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DECADE: Final = (1, 2, 5)  # Round numbers: each is about twice the one before.
FEW_DECADES: Final = 2  # Up to this many decades a logarithmic axis names 2 and 5 as well, beyond only powers of ten.
LEAST: Final = 1e-9  # Smaller widths count as zero.


class AxisTick(NamedTuple):
    """A labelled value of an axis, and its place."""

    at: float
    label: str


@final
@dataclass(frozen=True, slots=True)
class Linear:
    """A linear scale from 0."""

    high: float
    begin_px: float
    end_px: float

    def at(self, value: float) -> float:
        share = min(max(value / self.high, 0.0), 1.0) if self.high > 0 else 0.0
        return self.begin_px + share * (self.end_px - self.begin_px)

    def ticks(self, label: Callable[[float], str], most: int) -> list[AxisTick]:
        """Return round values from 0 to the highest, few enough that their labels do not touch."""
        step = round_up(self.high / max(most, 1))
        if step <= 0:
            return [AxisTick(self.at(0), label(0))]
        return [AxisTick(self.at(n * step), label(n * step)) for n in range(int(self.high / step + LEAST) + 1)]


@final
@dataclass(frozen=True, slots=True)
class Logarithmic:
    """A logarithmic scale for values above 0."""

    low: float
    high: float
    begin_px: float
    end_px: float

    def at(self, value: float) -> float:
        width = math.log10(self.high / self.low)
        share = math.log10(max(value, self.low) / self.low) / width if width > LEAST else 0.0
        return self.begin_px + min(share, 1.0) * (self.end_px - self.begin_px)

    def ticks(self, label: Callable[[float], str]) -> list[AxisTick]:
        """Return the powers of ten between the edges; for few decades, 2 and 5 of each as well."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = DECADE if math.log10(self.high / self.low) <= FEW_DECADES else (1,)
        values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [
            AxisTick(self.at(value), label(value))
            for value in values
            if self.low * (1 - LEAST) <= value <= self.high * (1 + LEAST)
        ]


def round_up(value: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `value`; 0 stays 0."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in DECADE if step * power >= value * (1 - LEAST)), 10 * power)


def round_down(value: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above `value`; for values above 0."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in reversed(DECADE) if step * power <= value * (1 + LEAST)), power)


def path(points: Iterable[tuple[float, float | None]]) -> str:
    """Return a line through the points, as the `d` of an SVG path, with gaps at missing values.

    A single point between two gaps is a line of no length, which round caps make visible.
    """
    drawn: list[str] = []
    is_open = False
    for x, y in points:
        if y is None:
            is_open = False
            continue
        place = f"{_short(x)} {_short(y)}"
        drawn.append(f"L{place}" if is_open else f"M{place}L{place}")
        is_open = True
    return "".join(drawn)


def thinned(count: int, most: int) -> list[range]:
    """Divide `count` values into at most `most` runs, all but the last equally long: one point of a plot each."""
    width = max(1, math.ceil(count / max(most, 1)))
    return [range(begin, min(begin + width, count)) for begin in range(0, count, width)]


def highest(values: Sequence[float | None]) -> float | None:
    """Return the largest existing value."""
    return max((value for value in values if value is not None), default=None)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
