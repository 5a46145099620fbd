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
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.placement.measures import Measure, Written

MOST_AHEAD: Final = 64  # Ranges of a table that nobody has written to yet.
LEAD_S: Final = 300  # Before a period ends the next one is planned: it is measured, divided and moved by then.
FEWEST: Final = 2  # Ranges of a period.
MOST_SERIES: Final = 16  # Of one table: what has more is spread by itself.


class TimeKey(Protocol):
    """Where the time stands in each key of a table."""

    @property
    def offset(self) -> int:
        """The bytes before it."""
        ...

    @property
    def most(self) -> int:
        """The time that no key reaches."""
        ...

    def key_time(self, time: int, /) -> bytes:
        """Return the bytes of a time below that."""
        ...

    def time_of(self, key: bytes, /) -> int:
        """The time of a key, or of where a range begins."""
        ...


class Cut(NamedTuple):
    """A range that is to be divided."""

    number: int  # Of the range, in the map.
    keys: tuple[bytes, ...]  # Where its children begin, but the first.


class Ahead(NamedTuple):
    """What the next period asks for."""

    cuts: Sequence[Cut]
    coming: Mapping[int, Measure]  # By number: ranges that nobody has written to yet, as what they are to become.


def ahead(key: TimeKey, firsts: Sequence[bytes], series: Sequence[Written], usual: Measure) -> Ahead:
    """What is to be done by now; `firsts`: where each range begins, `series`: what was written to each.

    `usual`: what a range has that is full, and all requests to the table.
    """
    if len(series) > MOST_SERIES:
        return Ahead((), {})
    # Other nodes have said what was written: what no key can have is not believed.
    series = [one for one in series if len(one.prefix) == key.offset and 0 <= one.low <= one.high < key.most]
    begun = [_begun(key, firsts, one) for one in series]
    room = MOST_AHEAD - sum(map(len, begun))
    cuts: list[Cut] = []
    for one, numbers in zip(series, begun, strict=True):
        cut = _cut(key, firsts, one, numbers, min(-(-one.bytes // max(1, usual.size_bytes)), room))
        if cut is not None:
            cuts.append(cut)
            room -= len(cut.keys)
    coming = [number for numbers in begun for number in numbers]
    to_be = usual._replace(rate=usual.rate / max(1, len(coming)))
    return Ahead(cuts, dict.fromkeys(coming, to_be))


def _begun(key: TimeKey, firsts: Sequence[bytes], written: Written) -> range:
    """The ranges of a series that nobody has written to yet, by their numbers."""
    at = end = bisect_right(firsts, _key_at(key, written, written.high))
    while end < len(firsts) and firsts[end].startswith(written.prefix):
        end += 1
    return range(at, end)


def _cut(key: TimeKey, firsts: Sequence[bytes], written: Written, begun: range, count: int) -> Cut | None:
    period = written.high - written.low
    # Else one is divided as it grows, like any other.
    if count < FEWEST or period < count or written.seconds < LEAD_S:
        return None
    soon, step = written.high + period * LEAD_S // written.seconds, period // count
    last = key.time_of(firsts[begun[-1]]) if begun else soon
    if last > soon:
        return None
    at = begun.stop - 1
    end = firsts[begun.stop] if begun.stop < len(firsts) else None
    times = [last + step * number for number in range(bool(begun), count + bool(begun))]
    # Times that differ by less than keys tell are one key.
    keys = dict.fromkeys(_key_at(key, written, time) for time in times if time < key.most)
    inside = tuple(one for one in keys if firsts[at] < one and (end is None or one < end))
    return Cut(at, inside[: MOST_AHEAD - 1]) if inside else None


def _key_at(key: TimeKey, written: Written, time: int) -> bytes:
    return written.prefix + key.key_time(time)
