"""What the last hour's writes covered."""

from __future__ import annotations

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.ahead import Written
from gossipkv.replication.copy import Write
from gossipkv.table.written import PIECE_S, LastHour

KEY = TimeKey(1, 4, "s")


def write(time, prefix=b"a", value=b"v"):
    """A write of that time."""
    return Write(prefix + time.to_bytes(4, "big"), value)


def test_an_hour():
    """Oldest and newest time, and the bytes of keys and values, for an hour, and no longer."""
    hour, copy = LastHour(), object()
    assert hour.of(copy, 0.0) is None
    for number in range(24):
        hour.note(copy, KEY, [write(100 * number), write(100 * number + 50, value=None)], number * PIECE_S)
    assert hour.of(copy, 23 * PIECE_S) == Written(b"a", 1200, 2350, 12 * (6 + 5))
    assert hour.of(copy, 33 * PIECE_S) == Written(b"a", 2200, 2350, 2 * (6 + 5))
    assert hour.of(copy, 35 * PIECE_S) is None
    assert hour._pieces == {}


def test_several_beginnings():
    """Of one copy: in one piece, or one after the other."""
    for now in (0.0, PIECE_S):
        hour, copy = LastHour(), object()
        hour.note(copy, KEY, [write(1)], 0.0)
        hour.note(copy, KEY, [write(2, b"b")], now)
        assert hour.of(copy, now) is None


def test_a_clock_that_is_wrong():
    """One time far from all others, be it ahead or long ago, moves nothing."""
    for wrong in (1 << 31, 0):
        hour, copy = LastHour(), object()
        for number in range(6):
            hour.note(copy, KEY, [write(10_000 + 300 * number), write(10_299 + 300 * number)], number * PIECE_S)
        hour.note(copy, KEY, [write(wrong)], 5 * PIECE_S)
        found = hour.of(copy, 5 * PIECE_S)
        assert 10_000 <= found.low <= 10_300
        assert 11_499 <= found.high <= 11_799


def test_copies_that_are_not_held():
    """Nothing is kept of them."""
    hour, one, other = LastHour(), object(), object()
    for copy in (one, other):
        hour.note(copy, KEY, [write(1)], 0.0)
    hour.forget([one])
    assert [hour.of(copy, 0.0) is None for copy in (one, other)] == [False, True]
