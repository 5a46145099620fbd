"""The effect of a batch on a replica can be read back from the log."""

from __future__ import annotations

import pytest

from gossipkv.replication._replication import (
    LogEntry,
    join_shares,
    new_shares,
    own_entries,
    put_states,
    sync_entries,
)
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import (
    NOTHING,
    AssignedReplica,
    PartitionRules,
    Replica,
)
from gossipkv.replication.replica.spaces import Spaces, first_batch
from gossipkv.replication.stream.receiver import ReceivedEntries
from gossipkv.storage.engine.shell import Batch, operations
from tests.unit.replication.talker import MINE, THIRD, YOURS, made

HOSTS = [AssignedReplica(one, bytes([one]), one, counts=True, available=True) for one in (MINE, YOURS, THIRD)]


@pytest.fixture
def copy():
    """Return an empty replica."""
    identity = ReplicaIdentity(b"table", 0, MINE)
    _, state, _ = first_batch(7, identity, 1, HOSTS)
    copy = Replica(7, identity, state)
    copy.adopts(1, HOSTS)
    return copy


def spaces_with(copy):
    spaces = Spaces()
    spaces.add(copy)
    return spaces


def read(copy, batch):
    """Return the log entries of a batch on a node with one replica."""
    return spaces_with(copy).read([(5, operations(batch.payload))], lambda *_: True)


def again(copy, batch):
    """Return the fields of a batch's only log entry."""
    (entry,) = read(copy, batch)
    return entry.records, entry.before, entry.after, entry.is_own


def test_what_was_written_here(copy):
    """Puts and deletes are read back, with a repeated key."""
    batch = Batch()
    writes = [RecordWrite(b"k", b"v"), RecordWrite(b"l", None), RecordWrite(b"k", b"w")]
    shares, opened = new_shares(batch, {copy: writes}, lambda _: 1), {}
    put_states(batch, shares)
    before = copy.appended
    assert join_shares(batch, opened, shares, 0) == {MINE: 3}
    (entry,) = own_entries(opened, 5)
    assert again(copy, batch) == (entry.records, before, copy.appended, True)
    assert len(entry.records) == 3


@pytest.mark.parametrize("origin", [YOURS, MINE])
def test_what_was_taken(copy, origin):
    """Merged records are not marked as own, even if this replica originated them in a former life."""
    taken = LogEntry(copy, (tuple(made(2, origin=origin)),), clock.of([]), clock.of([(origin, 2)]), is_own=False)
    taking = ReceivedEntries(lambda *_: None)
    taking.take(taken)
    batch, (entry,) = taking.finish()
    assert again(copy, batch) == (entry.records, entry.before, entry.after, False)


@pytest.mark.parametrize(
    ("counts", "available", "may"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_who_originates(copy, counts, available, may):
    """Only an AVAILABLE host originates: no node would wait for the writes of a LEAVING host."""
    own, *others = HOSTS
    copy.adopts(2, [own._replace(counts=counts, available=available), *others])
    assert copy.originates is may


def test_a_former_assignment_stands_in_the_clock_until_the_map_lets_go_of_it(copy):
    """If a replica alone dropped an ended assignment, its clock would differ from those of other replicas."""
    taken = LogEntry(copy, (tuple(made(1, origin=THIRD)),), clock.of([]), clock.of([(THIRD, 1)]), is_own=False)
    taking = ReceivedEntries(lambda *_: None)
    taking.take(taken)
    _, (entry,) = taking.finish()
    copy.appends_merged(entry)
    sync_entries([entry], {}, NOTHING)
    left = HOSTS[:2]
    copy.adopts(2, left, PartitionRules(3, former=(THIRD,)))
    assert clock.entries(copy.synced) == [(MINE, 0), (YOURS, 0), (THIRD, 1)]
    assert clock.entries(copy.appended) == [(MINE, 0), (YOURS, 0), (THIRD, 1)]
    copy.adopts(3, left, PartitionRules(3))
    assert clock.entries(copy.synced) == clock.entries(copy.appended) == [(MINE, 0), (YOURS, 0)]


def test_what_says_nothing(copy):
    """A config change and a batch of another space yield no entry."""
    batch = copy.adopting(2, copy.hosts)
    assert not read(copy, batch)
    other, *_ = first_batch(8, ReplicaIdentity(b"other", 0, MINE), 1, HOSTS[:1])
    assert not read(copy, other)
