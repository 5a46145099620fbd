"""Splits of a time series ahead of its writes: enough ranges for the next period, in time, and never too many."""

from __future__ import annotations

from bisect import bisect_right, insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.ahead import MAX_AHEAD, MAX_SERIES, ahead
from gossipkv.placement.measures import RangeMeasure, SeriesWrites

KEY = TimeKey(0, 8, "s")
MIB, HOUR_S = 1 << 20, 3600
USUAL = RangeMeasure(64 * MIB, 0, 40.0)


def at(time, prefix=b""):
    return prefix + time.to_bytes(8, "big")


def starts(cut):
    return [int.from_bytes(key[-8:], "big") for key in cut.keys]


def cuts(key, firsts, *series, usual=USUAL):
    return [*ahead(key, firsts, series, usual).cuts]


def test_the_first_period():
    """The next period gets as many ranges as its records fill, from a little later on."""
    (cut,) = cuts(KEY, [b""], SeriesWrites(b"", 1000, 1000 + 3600, 512 * MIB, HOUR_S))
    assert cut.number == 0
    assert starts(cut) == [4600 + 300 + 450 * number for number in range(8)]


@pytest.mark.parametrize(("width", "ends"), [(19, ["13:05:00", "13:12:30"]), (16, ["13:05", "13:12"]), (13, ["13"])])
def test_times_in_text(width, ends):
    """Keys that cannot tell two cuts apart get one cut."""
    key = TimeKey(2, width, "iso")
    high = key.time_of(b"ab2026-11-27T13:00:00")
    (cut,) = cuts(key, [b""], SeriesWrites(b"ab", high - HOUR_S, high, 512 * MIB, HOUR_S))
    assert cut.keys[: len(ends)] == tuple(b"ab2026-11-27T" + end.encode() for end in ends)
    assert [*cut.keys] == sorted(set(cut.keys))


def test_the_next_period():
    """No cut is planned until writes come near the last range; then only that range is cut."""
    firsts = [b"", *(at(4900 + 450 * number) for number in range(8))]
    last = 4900 + 450 * 7
    assert cuts(KEY, firsts, SeriesWrites(b"", last - 3600 - 400, last - 400, 512 * MIB, HOUR_S)) == []
    (cut,) = cuts(KEY, firsts, SeriesWrites(b"", last - 3600 - 200, last - 200, 512 * MIB, HOUR_S))
    assert cut.number == 8
    assert starts(cut) == [last + 450 * number for number in range(1, 9)]


def test_what_is_to_come():
    """Ranges without writes yet count as full, and share all requests."""
    firsts = [b"", at(1000), at(2000), at(3000)]
    assert ahead(KEY, firsts, [SeriesWrites(b"", 500, 1500, 1, HOUR_S)], USUAL).coming == dict.fromkeys(
        (2, 3), RangeMeasure(64 * MIB, 0, 20.0)
    )
    assert ahead(KEY, firsts, [], USUAL).coming == {}


@pytest.mark.parametrize(
    "series",
    [
        [],
        [SeriesWrites(b"", 5, 5, 512 * MIB, HOUR_S)],
        [SeriesWrites(b"", 0, 3600, 64 * MIB, HOUR_S)],
        [SeriesWrites(b"", 0, 3, 512 * MIB, HOUR_S)],
        [SeriesWrites(b"", 0, 3600, 512 * MIB, 299)],
        [SeriesWrites(bytes([one]), 0, 3600, 512 * MIB, HOUR_S) for one in range(MAX_SERIES + 1)],
    ],
    ids=[
        "nothing was written",
        "at one time",
        "one range's",
        "less time than ranges",
        "not for long",
        "too many series",
    ],
)
def test_what_is_left_alone(series):
    """Such a range is split as it grows, like any other."""
    assert cuts(KEY, [b""], *series) == []


def test_each_beginning_is_a_series():
    key = TimeKey(1, 8, "s")
    firsts = [b"", b"b"]
    a, b = cuts(
        key, firsts, SeriesWrites(b"a", 0, 3600, 128 * MIB, HOUR_S), SeriesWrites(b"b", 100, 7300, 192 * MIB, HOUR_S)
    )
    assert (a.number, a.keys) == (0, (at(3900, b"a"), at(5700, b"a")))
    assert (b.number, b.keys) == (1, tuple(at(7300 + 600 + 2400 * number, b"b") for number in range(3)))


def test_where_time_ends():
    """No cut lies beyond the last possible time."""
    key = TimeKey(0, 1, "s")
    (cut,) = cuts(key, [b""], SeriesWrites(b"", 100, 220, 512 * MIB, HOUR_S))
    assert cut.keys == tuple(bytes([230 + 15 * number]) for number in range(2))
    assert cuts(key, [b""], SeriesWrites(b"", 135, 255, 512 * MIB, HOUR_S)) == []


@given(
    hours=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1 << 36)), min_size=1, max_size=30),
    usual=st.integers(1, 1 << 34),
    own=st.lists(st.integers(0, 100_000), max_size=5),
)
def test_a_table_that_is_written_to_for_a_day(hours, usual, own):
    """At any rate of writes, cuts are new, lie inside the range that is cut, and few ranges are ahead."""
    firsts, now = sorted({b"", *map(at, own)}), 10_000
    for span, size in hours:
        now += span
        for cut in cuts(KEY, firsts, SeriesWrites(b"", now - span, now, size, HOUR_S), usual=RangeMeasure(usual)):
            assert 0 < len(cut.keys) < MAX_AHEAD
            end = firsts[cut.number + 1] if cut.number + 1 < len(firsts) else b"\xff" * 9
            assert firsts[cut.number] < cut.keys[0]
            assert cut.keys[-1] < end
            assert [*cut.keys] == sorted({*cut.keys})
            for key in cut.keys:
                insort(firsts, key)
        ahead = len(firsts) - bisect_right(firsts, at(now))
        assert ahead <= MAX_AHEAD + len(own)


@pytest.mark.parametrize("lie", [{"high": 1 << 64}, {"low": -5}, {"prefix": b"x" * 300}, {"low": 9, "high": 8}])
def test_what_no_key_can_have_is_not_believed(lie):
    """A report with times or prefixes that no key can have is ignored."""
    told = SeriesWrites(b"", 0, 1 << 20, 1 << 40, 3600)
    assert ahead(KEY, [b""], [told], USUAL).cuts
    assert ahead(KEY, [b""], [told._replace(**lie)], USUAL) == ([], {})
