"""Durations, sizes and rates as people write them: `500ms`, `64KiB`, `20MiB/s`.

A quantity is a whole number of its smallest unit: milliseconds, bytes, bytes per second. A fraction of that (`0.5ms`)
is refused and not rounded. `show` picks the largest unit that expresses a value exactly, so `parse(show(value)) ==
value`.
"""

from __future__ import annotations

import re
from typing import Final

DURATION: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
RATE: Final = {f"{unit}/s": factor for unit, factor in SIZE.items()}

_BARE = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?", re.ASCII)
_FORM = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z/]+)", re.ASCII)
# Other names of durations, in lower case and singular.
_SPELLED: Final = {
    **dict.fromkeys(("msec", "milli", "millisecond"), "ms"),
    **dict.fromkeys(("sec", "second"), "s"),
    **dict.fromkeys(("min", "minute"), "m"),
    **dict.fromkeys(("hr", "hour"), "h"),
    "day": "d",
}


def parse(text: str, units: dict[str, int]) -> int:
    """Return the value of `text` in the smallest of `units`.

    Raises:
        ValueError: `text` is not a number with one of the units, or is a fraction of the smallest one.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        raise ValueError(f"expected a number with a unit ({', '.join(units)}){_as_meant(text.strip(), units)}")
    whole, _, part = match["number"].partition(".")
    scale: int = 10 ** len(part)
    value, rest = divmod(int(whole + part) * units[match["unit"]], scale)
    if rest:
        raise ValueError(f"expected a whole number of {next(iter(units))}")
    return value


def _as_meant(text: str, units: dict[str, int]) -> str:
    """Return an example of the form for a number without a unit (seconds or bytes) or with a usual other one."""
    smallest, next_one, *_ = units
    if _BARE.fullmatch(text):
        return f', such as "{text}{next_one if "." in text or units is DURATION else smallest}"'
    match = _FORM.fullmatch(text)
    if match is None:
        return ""
    word = match["unit"].lower().removesuffix("/s").removesuffix("ps")
    word = (
        _SPELLED.get(word.removesuffix("s"), word) if units is DURATION else word.removesuffix("ib").removesuffix("b")
    )
    meant = [unit for unit in units if unit.removesuffix("/s").lower() in {word, f"{word}ib", f"{word}b"}]
    return f', such as "{match["number"]}{meant[0]}"' if meant else ""


def show(value: int, units: dict[str, int]) -> str:
    """Return the shortest exact form of `value`, in the largest unit that divides it."""
    unit, factor = next((unit, factor) for unit, factor in reversed(units.items()) if value % factor == 0)
    return f"0{next(iter(units))}" if value == 0 else f"{value // factor}{unit}"
