"""Splits of a time series before its next period is written.

A *period* is the span of time that the last hour's writes covered, whichever hour that was: a series loaded from an
archive has long periods. The next period gets as many ranges of the usual size as its records need. The ranges are made
before the period is written, so that other nodes hold them by then.

If keys have a prefix before their time, each prefix is a series of its own. A single write far in the future, from a
wrong clock, moves nothing: the next newest time of the last hour's writes counts, too.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.placement.measures import RangeMeasure, SeriesWrites

MAX_AHEAD: Final = 64  # Ranges of a table without writes so far.
LEAD_S: Final = 300  # The next period is planned this long before its start, to be measured, divided and moved by then.
FEWEST: Final = 2  # Least ranges of a period; fewer are divided as they grow.
MAX_SERIES: Final = 16  # Series of one table; more of them spread by themselves.


class Cut(NamedTuple):
    """A range to divide."""

    number: int  # Number of the range in the map.
    keys: tuple[bytes, ...]  # Starts of its children, except the first.


class Ahead(NamedTuple):
    """Changes for the next period."""

    cuts: Sequence[Cut]
    coming: Mapping[int, RangeMeasure]  # Ranges without writes so far, by number, with their expected measure.


def ahead(key: TimeKey, firsts: Sequence[bytes], series: Sequence[SeriesWrites], usual: RangeMeasure) -> Ahead:
    """Return the changes that are due; `firsts`: starts of the ranges, `series`: writes to each series.

    `usual`: the size of a full range, and all requests to the table.
    """
    if len(series) > MAX_SERIES:
        return Ahead((), {})
    # Other nodes report the writes, so ignore values that no key can have.
    series = [written for written in series if 0 <= written.low <= written.high < key.most]
    series = [written for written in series if len(written.prefix) == key.offset]
    begun = [_begun(key, firsts, written) for written in series]
    room = MAX_AHEAD - sum(map(len, begun))
    cuts: list[Cut] = []
    for written, numbers in zip(series, begun, strict=True):
        cut = _cut(key, firsts, written, numbers, min(-(-written.bytes // max(1, usual.size_bytes)), room))
        if cut is not None:
            cuts.append(cut)
            room -= len(cut.keys)
    coming = [number for numbers in begun for number in numbers]
    to_be = usual._replace(rate=usual.rate / max(1, len(coming)))
    return Ahead(cuts, dict.fromkeys(coming, to_be))


def _begun(key: TimeKey, firsts: Sequence[bytes], written: SeriesWrites) -> range:
    """Return the numbers of a series' ranges without writes so far."""
    at = end = bisect_right(firsts, _key_at(key, written, written.high))
    while end < len(firsts) and firsts[end].startswith(written.prefix):
        end += 1
    return range(at, end)


def _cut(key: TimeKey, firsts: Sequence[bytes], written: SeriesWrites, begun: range, count: int) -> Cut | None:
    period = written.high - written.low
    # Otherwise the range is divided as it grows, like any other.
    if count < FEWEST or period < count or written.seconds < LEAD_S:
        return None
    soon, step = written.high + period * LEAD_S // written.seconds, period // count
    last = key.time_of(firsts[begun[-1]]) if begun else soon
    if last > soon:
        return None
    at = begun.stop - 1
    end = firsts[begun.stop] if begun.stop < len(firsts) else None
    times = [last + step * number for number in range(bool(begun), count + bool(begun))]
    # Times that differ by less than the unit of keys give one key.
    keys = dict.fromkeys(_key_at(key, written, time) for time in times if time < key.most)
    inside = tuple(boundary for boundary in keys if firsts[at] < boundary and (end is None or boundary < end))
    return Cut(at, inside[: MAX_AHEAD - 1]) if inside else None


def _key_at(key: TimeKey, written: SeriesWrites, time: int) -> bytes:
    return written.prefix + key.key_time(time)
