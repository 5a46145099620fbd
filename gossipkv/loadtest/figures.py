"""Numbers in the form for people: three significant digits, the fitting unit, separated thousands."""

from __future__ import annotations

import math
from typing import Final

DIGITS: Final = 3
MANY: Final = 10_000  # From this number on a count beside an axis is given in thousands.
MILLISECOND_US: Final = 1000.0
SECOND_US: Final = 1_000_000.0
NEXT_UNIT: Final = 0.9995  # Values that would be rounded to 1,000 of a unit use the next one.
MINUTE_S: Final = 60
COUNTED_S: Final = 2 * MINUTE_S  # Shorter times are given in seconds.


def rounded(value: float) -> str:
    """Return three significant digits, and all before the point: 0.123, 1.23, 12.3, 1,234."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = DIGITS - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, places):,.{max(places, 0)}f}" if places > 0 else f"{round(value):,}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def latency(us: float | None) -> str:
    """Return a latency such as `850 us`, `1.23 ms`, `2 s`; `-` for none."""
    if us is None:
        return "-"
    if us >= SECOND_US * NEXT_UNIT:
        return f"{rounded(us / SECOND_US)} s"
    return f"{rounded(us / MILLISECOND_US)} ms" if us >= MILLISECOND_US * NEXT_UNIT else f"{rounded(us)} us"


def count(number: float | None) -> str:
    """Return a count such as `1,234`; `-` for none."""
    return "-" if number is None else f"{number:,.0f}"


def rate(a_second: float | None) -> str:
    """Return a rate such as `812 /s`, `41,200 /s`; `-` for none."""
    return "-" if a_second is None else f"{rounded(a_second)} /s"


def short_count(number: float) -> str:
    """Return a number beside an axis, such as `800`, `12 k`, `1.5 M`."""
    for least, factor, unit in ((1_000_000_000, 1_000_000_000, "G"), (1_000_000, 1_000_000, "M"), (MANY, 1000, "k")):
        if abs(number) >= least:
            return f"{rounded(number / factor)} {unit}"
    return rounded(number)


def share(part: float, whole: float) -> str:
    """Return a share such as `0.12 %`; `-` of zero."""
    return "-" if whole <= 0 else f"{rounded(100 * part / whole)} %"


def seconds(number: float) -> str:
    """Return a duration such as `30 s`, `2.5 s`, `5 min`, `1 h 10 min`."""
    if number < COUNTED_S:
        return f"{rounded(number)} s"
    minutes, rest = divmod(round(number), MINUTE_S)
    hours, minutes = divmod(minutes, MINUTE_S)
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else rest, "s"))
    return " ".join(f"{part} {unit}" for part, unit in parts if part)
