"""The time range and size of the last hour's writes."""

from __future__ import annotations

import pytest

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.ahead import MAX_SERIES
from gossipkv.placement.measures import SeriesWrites
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.table.controllers.write_stats import PIECE_S, WriteStats

KEY = TimeKey(1, 4, "s")


def write(time, prefix=b"a", value=b"v"):
    return RecordWrite(prefix + time.to_bytes(4, "big"), value)


TABLE = bytes(16)


def new():
    hour = WriteStats()
    hour.keys[TABLE] = KEY
    return hour


def test_an_hour():
    """The oldest and newest time, and the bytes of keys and values, are kept for an hour."""
    hour = new()
    assert hour.of(TABLE, 0.0) == []
    for number in range(24):
        hour.note(TABLE, [write(100 * number), write(100 * number + 50, value=None)], number * PIECE_S)
    assert hour.of(TABLE, 23 * PIECE_S) == [SeriesWrites(b"a", 1200, 2350, 12 * (6 + 5), 3300)]
    assert hour.of(TABLE, 33 * PIECE_S) == [SeriesWrites(b"a", 2200, 2350, 2 * (6 + 5), 3300)]
    assert hour.of(TABLE, 35 * PIECE_S) == []
    assert hour._series == {}
    hour.note(TABLE, [write(1)], 36 * PIECE_S)
    hour.forget(TABLE)
    assert hour._series == hour.keys == {}


def test_several_series():
    """Each series is counted by itself; beyond the limit one more is kept, so that the excess is visible."""
    hour = new()
    hour.note(TABLE, [write(1), write(7, b"b"), write(3)], 0.0)
    assert hour.of(TABLE, 0.0) == [SeriesWrites(b"a", 1, 3, 12, 0), SeriesWrites(b"b", 7, 7, 6, 0)]
    hour.note(TABLE, [write(1, bytes([one])) for one in range(100)], 0.0)
    assert len(hour.of(TABLE, 0.0)) == MAX_SERIES + 1


@pytest.mark.parametrize("wrong", [1 << 31, 0])
def test_a_clock_that_is_wrong(wrong):
    """One time far from all others, ahead or long ago, has no effect."""
    hour = new()
    for number in range(6):
        hour.note(TABLE, [write(10_000 + 300 * number), write(10_299 + 300 * number)], number * PIECE_S)
    hour.note(TABLE, [write(wrong)], 5 * PIECE_S)
    (found,) = hour.of(TABLE, 5 * PIECE_S)
    assert 10_000 <= found.low <= 10_300
    assert 11_499 <= found.high <= 11_799


@pytest.mark.parametrize("at", [(0, 0, 0), (0, 1, 2), (3, 4, 5)])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_few_clocks_that_are_wrong(at, is_elsewhere):
    """A few wrong clocks have no effect, even on a node with no other writes."""
    hour, other = new(), new()
    for number in range(6):
        hour.note(TABLE, [write(10_000 + 300 * number + one) for one in range(0, 300, 3)], number * PIECE_S)
    wrong = other if is_elsewhere else hour
    for number in at:
        wrong.note(TABLE, [write((1 << 31) + number)], number * PIECE_S)
    found = [*hour.of(TABLE, 5 * PIECE_S), *other.of(TABLE, 5 * PIECE_S)]
    for one, beside in (found, found[::-1]) if is_elsewhere else (found * 2,):
        assert (one.beside(beside).low, one.beside(beside).high) == (10_000, 11_797)


def test_a_table_without_a_time_key():
    hour = new()
    hour.note(b"t" * 16, [write(1)], 0.0)
    assert hour.of(b"t" * 16, 0.0) == []
