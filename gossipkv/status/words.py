"""Values, sizes and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gossipkv.settings import quantity
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.wire.rpc import Value

MOST_NAMED: Final = 8  # Nodes in a sentence for people.
FOUR_DIGITS: Final = 1000  # From here on the next unit is easier to read.


def printable(text: str) -> str:
    """A line in which nothing breaks it or commands the terminal: what messages name, files among it, may do both."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def plain(value: Value) -> str:
    """Any value in words; `-` for none."""
    if isinstance(value, bytes):
        return shown(value)
    return "-" if value is None else printable(str(value))


def names_text(names: Iterable[Value]) -> str:
    """Names in a sentence; there is at least one."""
    *first, last = map(plain, names)
    return f"{', '.join(first)} and {last}" if first else last


def some_text(names: Sequence[Value]) -> str:
    """The first names in a sentence, and how many there are beside them; there is at least one."""
    more = len(names) - MOST_NAMED
    return names_text([*names[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])


def size_text(size_bytes: int) -> str:
    """A size for people, to one decimal, in the units of the settings."""
    size = float(size_bytes)
    for unit in quantity.SIZE:
        if size < FOUR_DIGITS or unit == "TiB":
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def left_text(remaining_s: float | None) -> str:
    """How long something will go on, behind how far it is; nothing where that is not told."""
    return "" if remaining_s is None else f", {duration_text(round(remaining_s))} left"


def done_text(done: float, remaining_s: float | None) -> str:
    """How far something is, 0 to 1, and how long it will go on."""
    return f"{done * 100:.0f} % done{left_text(remaining_s)}"


def time_text(time_s: int) -> str:
    """A time, of seconds since 1970."""
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"


def duration_text(seconds: int) -> str:
    """A length of time, in its largest two units."""
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
