"""Where a time series is to be divided before its next period is written to.

Pure: from what the last hour's writes covered and where the ranges begin to keys at which others are to.  A *period* is
the stretch of time that the last hour's writes covered, whatever hour it was: a series that is loaded from an archive
has long ones.  The next one is to have as many ranges as its records take, of the usual size; they are there before it
is written to, so that other nodes have them by then.

Where keys begin with something else than their time, each beginning is a series of its own.  What is written once far
ahead of all else, by a clock that is wrong, moves nothing: of the last hour's writes the next newest time counts too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_AHEAD: Final = 64  # Ranges of a table that nobody has written to yet.
LEAD: Final = 12  # Of a period, the part before its end at which the next one is planned: five minutes of an hour.
FEWEST: Final = 2  # Ranges of a period.
MOST_SERIES: Final = 16  # Of one table: what has more is spread by itself.


class TimeKey(Protocol):
    """Where the time stands in each key of a table."""

    @property
    def width(self) -> int:
        """Its bytes."""
        ...

    def time_of(self, key: bytes, /) -> int:
        """The time of a key, or of where a range begins."""
        ...


class Written(NamedTuple):
    """What the last hour's writes to a range covered; of a range that is written to with several beginnings nothing."""

    prefix: bytes  # What stands before the time in their keys.
    low: int  # The oldest time, and the newest, but for what one clock may have got wrong.
    high: int
    bytes: int


class Cut(NamedTuple):
    """A range that is to be divided."""

    number: int  # Of the range, in the map.
    keys: tuple[bytes, ...]  # Where its children begin, but the first.


def cuts(key: TimeKey, firsts: Sequence[bytes], written: Mapping[int, Written], usual_bytes: int) -> list[Cut]:
    """Where ranges are to be divided; `firsts`: the first key of each, `written`: by the range's number.

    `usual_bytes`: how large ranges are that are full.
    """
    series: dict[bytes, list[Written]] = defaultdict(list)
    for one in written.values():
        series[one.prefix].append(one)
    found: list[Cut] = []
    room = MOST_AHEAD - sum(count_ahead(key, firsts, _all_of(some)) for some in series.values())
    for _, some in sorted(series.items()) if len(series) <= MOST_SERIES else ():
        cut = _cut(key, firsts, _all_of(some), usual_bytes, room)
        if cut is not None:
            found.append(cut)
            room -= len(cut.keys)
    return found


def count_ahead(key: TimeKey, firsts: Sequence[bytes], written: Written) -> int:
    """How many ranges of a series nobody has written to yet."""
    return len(_ahead(key, firsts, written))


def _all_of(some: Sequence[Written]) -> Written:
    lows, highs = (one.low for one in some), (one.high for one in some)
    return Written(some[0].prefix, min(lows), max(highs), sum(one.bytes for one in some))


def _ahead(key: TimeKey, firsts: Sequence[bytes], written: Written) -> list[int]:
    """The times at which ranges of a series begin beyond what is written."""
    at = bisect_right(firsts, _key_at(key, written, written.high))
    times = []
    while at < len(firsts) and firsts[at].startswith(written.prefix):
        times.append(key.time_of(firsts[at]))
        at += 1
    return times


def _cut(key: TimeKey, firsts: Sequence[bytes], written: Written, usual_bytes: int, room: int) -> Cut | None:
    period = written.high - written.low
    count = min(-(-written.bytes // max(1, usual_bytes)), room)
    if count < FEWEST or period < count:  # Else one is divided as it grows, like any other.
        return None
    soon, step = written.high + period // LEAD, period // count
    begun = _ahead(key, firsts, written)
    if begun and begun[-1] > soon:
        return None
    times = [begun[-1] + step * number for number in range(1, count + 1)] if begun else []
    times = times or [soon + step * number for number in range(count)]
    at = bisect_right(firsts, _key_at(key, written, begun[-1] if begun else written.high)) - 1
    end = firsts[at + 1] if at + 1 < len(firsts) else None
    keys = [_key_at(key, written, time) for time in times if time < 1 << 8 * key.width]
    inside = tuple(one for one in keys if firsts[at] < one and (end is None or one < end))
    return Cut(at, inside[: MOST_AHEAD - 1]) if inside else None


def _key_at(key: TimeKey, written: Written, time: int) -> bytes:
    return written.prefix + time.to_bytes(key.width, "big")
