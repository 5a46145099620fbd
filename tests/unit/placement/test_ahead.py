"""Where a time series is divided ahead: enough ranges for the next period, in time, and never too many."""

from __future__ import annotations

from bisect import bisect_right, insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.ahead import MOST_AHEAD, Written, cuts

KEY = TimeKey(0, 8, "s")
MIB = 1 << 20


def at(time, prefix=b""):
    """A key of that time."""
    return prefix + time.to_bytes(8, "big")


def starts(cut):
    """The times at which children begin."""
    return [int.from_bytes(key[-8:], "big") for key in cut.keys]


def test_the_first_period():
    """One range that is written to: the next period has as many as its records take, from a little later on."""
    (cut,) = cuts(KEY, [b""], {0: Written(b"", 1000, 1000 + 3600, 512 * MIB)}, 64 * MIB)
    assert cut.number == 0
    assert starts(cut) == [4600 + 300 + 450 * number for number in range(8)]


def test_the_next_period():
    """Nothing, until the last range is about to be written to; then from there on, and of that range alone."""
    firsts = [b"", *(at(4900 + 450 * number) for number in range(8))]
    last = 4900 + 450 * 7
    written = {3: Written(b"", last - 3600 - 400, last - 400, 512 * MIB)}
    assert cuts(KEY, firsts, written, 64 * MIB) == []
    written = {3: Written(b"", last - 3600 - 200, last - 200, 512 * MIB)}
    (cut,) = cuts(KEY, firsts, written, 64 * MIB)
    assert cut.number == 8
    assert starts(cut) == [last + 450 * number for number in range(1, 9)]


@pytest.mark.parametrize(
    "written",
    [
        {},
        {0: Written(b"", 5, 5, 512 * MIB)},
        {0: Written(b"", 0, 3600, 64 * MIB)},
        {0: Written(b"", 0, 3, 512 * MIB)},
    ],
    ids=["nothing was written", "at one time", "no more than one range's", "less time than ranges"],
)
def test_what_is_left_alone(written):
    """It is divided as it grows, like any other."""
    assert cuts(KEY, [b""], written, 64 * MIB) == []


def test_each_beginning_is_a_series():
    """And has its own periods, within its own ranges."""
    key = TimeKey(1, 8, "s")
    firsts = [b"", b"b"]
    written = {0: Written(b"a", 0, 3600, 128 * MIB), 1: Written(b"b", 100, 7300, 192 * MIB)}
    a, b = cuts(key, firsts, written, 64 * MIB)
    assert (a.number, a.keys) == (0, (at(3900, b"a"), at(5700, b"a")))
    assert (b.number, b.keys) == (1, tuple(at(7300 + 600 + 2400 * number, b"b") for number in range(3)))


def test_where_time_ends():
    """No key is beyond the last one."""
    key = TimeKey(0, 1, "s")
    (cut,) = cuts(key, [b""], {0: Written(b"", 100, 220, 512 * MIB)}, 64 * MIB)
    assert cut.keys == tuple(bytes([230 + 15 * number]) for number in range(2))
    assert cuts(key, [b""], {0: Written(b"", 135, 255, 512 * MIB)}, 64 * MIB) == []


@given(
    hours=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1 << 36)), min_size=1, max_size=30),
    usual=st.integers(1, 1 << 34),
    own=st.lists(st.integers(0, 100_000), max_size=5),
)
def test_a_table_that_is_written_to_for_a_day(hours, usual, own):
    """However fast time goes: ranges begin where none did, inside the one that is divided, and few are ahead."""
    firsts, now = sorted({b"", *map(at, own)}), 10_000
    for span, size in hours:
        now += span
        for cut in cuts(KEY, firsts, {0: Written(b"", now - span, now, size)}, usual):
            assert 0 < len(cut.keys) < MOST_AHEAD
            end = firsts[cut.number + 1] if cut.number + 1 < len(firsts) else b"\xff" * 9
            assert firsts[cut.number] < cut.keys[0]
            assert cut.keys[-1] < end
            assert [*cut.keys] == sorted({*cut.keys})
            for key in cut.keys:
                insort(firsts, key)
        ahead = len(firsts) - bisect_right(firsts, at(now))
        assert ahead <= MOST_AHEAD + len(own)
