"""What a batch does to a copy is read from the log as it was."""

from __future__ import annotations

import pytest

from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import (
    AssignedReplica,
    LogEntry,
    PartitionRules,
    RecordWrite,
    Replica,
    first_batch,
)
from gossipkv.replication.replica.spaces import Spaces
from gossipkv.replication.stream.receiver import ReceivedEntries
from gossipkv.storage.engine.shell import Batch, operations
from tests.unit.replication.talker import MINE, THIRD, YOURS, made

HOSTS = [AssignedReplica(one, bytes([one]), one, counts=True, available=True) for one in (MINE, YOURS, THIRD)]


@pytest.fixture
def copy():
    """One that has nothing yet."""
    identity = ReplicaIdentity(b"table", 0, MINE)
    _, state, _ = first_batch(7, identity, 1, HOSTS)
    copy = Replica(7, identity, state)
    copy.adopts(1, HOSTS)
    return copy


def spaces_with(copy):
    """The spaces of a node that has one copy."""
    spaces = Spaces()
    spaces.add(copy)
    return spaces


def read(copy, batch):
    """What the log of a node with one copy has of a batch."""
    return spaces_with(copy).read([(5, operations(batch.payload))], lambda *_: True)


def again(copy, batch):
    """The entry that the log has of a batch."""
    (entry,) = read(copy, batch)
    return entry.records, entry.before, entry.after, entry.is_own


def test_what_was_written_here(copy):
    """Puts and deletes, one key twice."""
    batch = Batch()
    entry = copy.originate(batch, [RecordWrite(b"k", b"v"), RecordWrite(b"l", None), RecordWrite(b"k", b"w")], 1)
    assert again(copy, batch) == (entry.records, entry.before, entry.after, True)
    assert len(entry.records) == 3


@pytest.mark.parametrize("origin", [YOURS, MINE])
def test_what_was_taken(copy, origin):
    """Also what this copy wrote in a former life, of which others have kept a part: it is not sent as its own is."""
    taken = LogEntry(copy, (tuple(made(2, origin=origin)),), clock.of([]), clock.of([(origin, 2)]), is_own=False)
    taking = ReceivedEntries(lambda *_: None)
    taking.take(taken)
    batch, (entry,) = taking.finish()
    assert again(copy, batch) == (entry.records, entry.before, entry.after, False)


@pytest.mark.parametrize(
    ("counts", "available", "may"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_who_originates(copy, counts, available, may):
    """Who is AVAILABLE alone: what one that is LEAVING wrote, nobody would wait for."""
    own, *others = HOSTS
    copy.adopts(2, [own._replace(counts=counts, available=available), *others])
    assert copy.originates is may


def test_a_former_assignment_stands_in_the_clock_until_the_map_lets_go_of_it(copy):
    """Not until this copy finds that it has ended: others would still have it, and clocks be equal no more."""
    taken = LogEntry(copy, (tuple(made(1, origin=THIRD)),), clock.of([]), clock.of([(THIRD, 1)]), is_own=False)
    taking = ReceivedEntries(lambda *_: None)
    taking.take(taken)
    _, (entry,) = taking.finish()
    copy.appends(entry)
    copy.has_synced(entry)
    left = HOSTS[:2]
    copy.adopts(2, left, PartitionRules(3, former=(THIRD,)))
    assert clock.entries(copy.synced) == [(MINE, 0), (YOURS, 0), (THIRD, 1)]
    assert clock.entries(copy.appended) == [(MINE, 0), (YOURS, 0), (THIRD, 1)]
    copy.adopts(3, left, PartitionRules(3))
    assert clock.entries(copy.synced) == clock.entries(copy.appended) == [(MINE, 0), (YOURS, 0)]


def test_what_says_nothing(copy):
    """A batch that has another config adopted, and what is of another space."""
    batch = copy.adopting(2, copy.hosts)
    assert not read(copy, batch)
    other, *_ = first_batch(8, ReplicaIdentity(b"other", 0, MINE), 1, HOSTS[:1])
    assert not read(copy, other)
