"""A host applies smeared puts: the winner, its time, and the origins of newer records."""

from __future__ import annotations

import pytest

from gossipkv.replication._replication import LogEntry, join_shares, new_shares, own_entries
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.hlc import COUNT_BITS
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica, Replica
from gossipkv.replication.replica.smeared import LATEST_MS, sift
from gossipkv.replication.replica.spaces import first_batch
from gossipkv.replication.stream.receiver import ReceivedEntries
from gossipkv.storage.engine.shell import Batch
from tests.unit.replication.talker import MINE, YOURS, made

HOSTS = [AssignedReplica(one, bytes([one]), one, counts=True, available=True) for one in (MINE, YOURS)]
NOW_MS = 10 * LATEST_MS
AHEAD_MS = 1000


@pytest.fixture
def copy():
    """Return an empty replica."""
    identity = ReplicaIdentity(b"table", 0, MINE)
    _, state, _ = first_batch(7, identity, 1, HOSTS)
    copy = Replica(7, identity, state)
    copy.adopts(1, HOSTS)
    return copy


def put(ms, key=b"k", value=b"v"):
    """Return a put that was accepted `ms` milliseconds ago."""
    return RecordWrite(key, value, time=(NOW_MS - ms) << COUNT_BITS)


def sifted(copy, *writes):
    """Return the writes to apply and the origins of records that beat the others; nothing is synced."""
    return sift(copy, writes, lambda _space, _key: None, NOW_MS, AHEAD_MS)


def write(copy, *writes):
    """Originate the writes; return the times of the records."""
    batch, opened = Batch(), {}
    join_shares(batch, opened, new_shares(batch, {copy: writes}, lambda _: NOW_MS), 0)
    (entry,) = own_entries(opened, 1)
    return [int.from_bytes(data[:8], "big") for _, data in entry.records]


def test_the_time_is_kept_and_merged(copy):
    """A put older than half an hour or too far ahead gets a new time; others keep theirs."""
    for ms, is_kept in (
        (0, True),
        (LATEST_MS, True),
        (LATEST_MS + 1, False),
        (-AHEAD_MS, True),
        (-AHEAD_MS - 1, False),
    ):
        ((one,), origins) = sifted(copy, put(ms, key=b"%d" % ms))
        assert (one.time != 0, origins) == (is_kept, set())
        assert write(copy, one)[0] == (put(ms).time if is_kept else copy.time)
        assert copy.time >= one.time


def test_what_stands_there_of_that_time_or_later_stays(copy):
    """A put with an equal or older time loses to the stored record, synced or not; the origin is reported."""
    assert write(copy, put(50)) == [put(50).time]
    for ms in (50, 60, LATEST_MS):
        assert sifted(copy, put(ms)) == ([], {MINE})
    assert sifted(copy, put(49)) == ([put(49)], set())
    assert sifted(copy, put(50, b"l"), put(50)) == ([put(50, b"l")], {MINE})


def test_it_may_be_another_hosts(copy):
    """The winning record may have another origin, whose counters are then awaited."""
    key, data = made(1, origin=YOURS, time=put(5).time)
    taking = ReceivedEntries(lambda *_: None)
    taking.take(LogEntry(copy, ((key, data),), clock.of([]), clock.of([(YOURS, 1)]), is_own=False))
    _, (entry,) = taking.finish()
    copy.appends_merged(entry)
    assert sifted(copy, put(5), put(6)) == ([], {YOURS})
    assert sifted(copy, put(4)) == ([put(4)], set())


def test_of_several_of_one_key_the_latest_is_written(copy):
    """The order of arrival does not matter; a put with a new time is the latest."""
    one, two, late = put(20, value=b"1"), put(10, value=b"2"), put(LATEST_MS + 1, value=b"3")
    assert sifted(copy, one, two)[0] == sifted(copy, two, one)[0] == [two]
    assert sifted(copy, late, two)[0] == sifted(copy, two, late)[0] == [late._replace(time=0)]
