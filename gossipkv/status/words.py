"""Values, sizes and durations in the form for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gossipkv.settings import quantity
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.wire.rpc import Value

MAX_NAMED: Final = 8  # A sentence for people names this many nodes.
FOUR_DIGITS: Final = 1000  # From this number on the next unit is easier to read.


def printable(text: str) -> str:
    """Return the text as one line without control characters, which names of files and the like may contain."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def plain(value: object) -> str:
    """Return any value in words; `-` for None."""
    if isinstance(value, bytes):
        return shown(value)
    return "-" if value is None else printable(str(value))


def names_text(names: Iterable[Value]) -> str:
    """Return names in a sentence; `-` if there are none."""
    *first, last = [*map(plain, names)] or ["-"]
    return f"{', '.join(first)} and {last}" if first else last


def some_text(names: Sequence[Value]) -> str:
    """Return the first names in a sentence, with the number of further ones."""
    more = len(names) - MAX_NAMED
    return names_text([*names[:MAX_NAMED], *([f"{more:,} more"] if more > 0 else [])])


def size_text(size_bytes: int) -> str:
    """Return a size for people, to one decimal, in the units of the settings."""
    size = float(size_bytes)
    for unit in quantity.SIZE:
        if size < FOUR_DIGITS or unit == "TiB":
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def left_text(remaining_s: float | None) -> str:
    """Return the remaining time, to follow a progress; empty if unknown."""
    return "" if remaining_s is None else f", {duration_text(round(remaining_s))} left"


def done_text(done: float, remaining_s: float | None) -> str:
    """Return a progress from 0 to 1 in words, with the remaining time."""
    return f"{done * 100:.0f} % done{left_text(remaining_s)}"


def time_text(time_s: int) -> str:
    """Return a time given in seconds since 1970."""
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"


def duration_text(seconds: int) -> str:
    """Return a duration in its largest two units."""
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
