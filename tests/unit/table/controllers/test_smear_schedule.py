"""The core of smearing: due puts, puts in flight, and puts that are read again."""

from __future__ import annotations

import random

import pytest

from gossipkv.errors import ProtocolError
from gossipkv.table.controllers.smear_schedule import (
    FIRST,
    MAX_SENT,
    MAX_SENT_BYTES,
    MAX_WAIT_MS,
    SmearSchedule,
    put_of,
)

TABLE = bytes(16)
WALL_MS = 1_700_000_000_000


@pytest.fixture
def smearing():
    """Return an empty schedule."""
    made = SmearSchedule(random.Random(1))
    made.begin(100.0, WALL_MS, None)
    made.is_counted = True
    return made


def accept(smearing, count, now=100.0, size=1):
    """Accept and sync puts; return them in the order in which they are due."""
    puts = [smearing.accept(TABLE, b"k%d" % number, bytes(size), now, WALL_MS) for number in range(count)]
    for put in puts:
        smearing.is_there(put)
    return sorted(puts)


def due(smearing, puts, now):
    """Return the puts in a store that are to be forwarded."""
    span = smearing.span(now)
    return [] if span is None else smearing.send(put for put in sorted(puts) if span[0] <= put.at < span[1])


def test_a_row_is_read_as_it_was_written(smearing):
    (put,) = accept(smearing, 1)
    expiring = smearing.accept(TABLE, b"k", b"v", 100.0, WALL_MS, expiry=-7)
    assert expiring.expires_ms == WALL_MS + 7
    assert [put_of(*each.row()) for each in (put, expiring)] == [put, expiring]
    for at, value in ((put.at + b"x", put.row()[1]), (put.at, b"\x90"), (put.at, b"\xc0")):
        with pytest.raises(ProtocolError):
            put_of(at, value)


@pytest.mark.parametrize("size", [1, MAX_SENT_BYTES // 8])
def test_so_much_is_under_way_at_a_time(smearing, size):
    """The limit is by number or by bytes; an answer frees room for the next puts."""
    puts = accept(smearing, MAX_SENT + 10 if size == 1 else 20, size=size)
    most = MAX_SENT if size == 1 else 8
    sent = due(smearing, puts, 1000.0)
    assert sent == puts[:most]
    assert due(smearing, puts, 1000.0) == []
    smearing.forget(sent[0])
    assert due(smearing, puts[1:], 1000.0) == puts[most : most + 1]


def test_what_is_under_way_is_not_sent_twice(smearing):
    """A put that is due earlier may become readable only after later ones."""
    puts = [smearing.accept(TABLE, b"k", b"v", 100.0, WALL_MS) for _ in range(10)]
    late = min(puts)
    for put in puts:
        if put is not late:
            smearing.is_there(put)
    others = sorted(put for put in puts if put is not late)
    assert due(smearing, others, 1000.0) == others
    smearing.is_there(late)
    assert due(smearing, puts, 1000.0) == [late]


def test_what_nobody_has_taken_is_due_later(smearing):
    """The put gets a new row with the same time; until that row is synced, the old row counts as in flight."""
    (put,) = due(smearing, accept(smearing, 1), 1000.0)
    again = smearing.later(put, 1000.0)
    assert again == put._replace(at=again.at)
    assert due(smearing, [put], 1005.0) == []
    smearing.is_put_off(put, again)
    assert due(smearing, [again], 1000.9) == []
    assert due(smearing, [again], 1010.1) == [again]
    smearing.is_put_off(again, again)  # No other row could be written.
    assert due(smearing, [again], 1010.1) == [again]
    assert smearing.puts == 1


def test_a_life_begins_with_what_the_last_one_left():
    """No put waits longer after a restart, whatever the wall clock was or is."""
    for wall_ms in (WALL_MS, WALL_MS - 10**9, WALL_MS + 10**9):
        former, smearing = SmearSchedule(random.Random(1)), SmearSchedule(random.Random(2))
        former.begin(5.0, WALL_MS, None)
        puts = accept(former, 100, now=5.0)
        smearing.begin(7.0, wall_ms, puts[-1].at)
        for put in puts:
            smearing.count(put)
        assert smearing.until_s(smearing.tables[TABLE], 7.0) <= MAX_WAIT_MS / 1000
        assert due(smearing, puts, 7.0 + MAX_WAIT_MS / 1000 + 0.1) == puts
        smearing.is_counted = True
        assert smearing.accept(TABLE, b"k", b"v", 7.0, wall_ms).time > max(put.time for put in puts)
        assert smearing.admits(1, wall_ms, 60_000) is (wall_ms >= WALL_MS)


def test_what_may_wait(smearing):
    """Puts wait up to a limit, after old rows are counted, and not while the node drains."""
    assert smearing.admits(1 << 20, WALL_MS, 0)
    assert not smearing.admits(1 << 30, WALL_MS, 0)
    smearing.is_counted = False
    assert not smearing.admits(1, WALL_MS, 0)
    smearing.is_counted = True
    puts = accept(smearing, 3)
    assert due(smearing, puts, 100.0) == []
    smearing.drains = True
    assert not smearing.admits(1, WALL_MS, 0)
    assert due(smearing, puts, 100.0) == puts
    assert all(put.at > FIRST for put in puts)
