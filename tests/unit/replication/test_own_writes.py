"""Local writes that wait for the same sync are one batch, with one STATE and one log entry for each replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication._replication import encode_state, join_shares, new_shares, own_entries, put_states
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD, STATE, TOMBSTONE, ReplicaIdentity, decode_state
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica, Replica
from gossipkv.storage.engine._engine import operations
from gossipkv.storage.engine.shell import Batch
from tests.oracle import own as oracle
from tests.unit.replication.memory import TABLE, Cluster


@pytest.fixture
def cluster():
    """Return three nodes; the first node's store syncs only when the test says so."""
    cluster = Cluster()
    cluster.nodes[0].syncs = False
    cluster.nodes[0].log.clear()
    return cluster


def test_clocks_of_different_assignments_are_refused():
    """Nothing is written."""
    with pytest.raises(ValueError, match="the clock has 16 bytes after the batch, but 32 before it"):
        encode_state(1, 1, bytes(16), bytes(32))


def write(node, *writes, copy=None):
    """Write in one request; return the counter of the last record."""
    copy = copy or node.copy
    return node.replicas.originate({copy: [RecordWrite(key, value) for key, value in writes]})[copy.assignment]


def sync(cluster, node):
    node.syncs = True
    node.sync()
    cluster.pass_s(0.5)


def states(node):
    """Return the clocks after and before, as counters, of each STATE in the log."""
    puts = [(key, value) for _, changes in node.log for _, _, key, value in changes]
    found = [decode_state(value)[2:] for key, value in puts if key[:2] == STATE]
    return [tuple([count for _, count in clock.entries(packed)] for packed in pair) for pair in found]


def read(node):
    """Return the entries of the log as a sender reads them: counters before and after, keys, and who wrote them."""
    entries = node.replicas.spaces.read(node.log, lambda *_: True)
    return [
        (clock.counter(entry.before, 1), clock.counter(entry.after, 1), [key for key, _ in entry.records], entry.is_own)
        for entry in entries
    ]


def test_writes_before_a_sync_are_one_entry(cluster):
    """Each write has its own counter; the batch has one STATE, whose clock is that after the last write."""
    one = cluster.nodes[0]
    reached = []
    for number in range(1, 4):
        assert write(one, (b"%d" % number, b"value")) == number
        one.replicas.acks[one.copy].wait("majority", number, lambda number=number: reached.append(number))
    assert clock.counter(one.copy.synced, 1) == 0
    sync(cluster, one)
    assert reached == [1, 2, 3]
    assert states(one) == [([3, 0, 0], [0, 0, 0])]
    assert read(one) == [(0, 3, [b"1", b"2", b"3"], True)]
    assert [node.live for node in cluster.nodes] == [dict.fromkeys((b"1", b"2", b"3"), b"value")] * 3


def test_the_next_batch_begins_with_the_next_sync(cluster):
    """A batch that is handed out does not change any more."""
    one = cluster.nodes[0]
    write(one, (b"a", b"1"))
    sync(cluster, one)
    one.syncs = False
    write(one, (b"b", b"2"))
    write(one, (b"c", b"3"))
    sync(cluster, one)
    assert states(one) == [([1, 0, 0], [0, 0, 0]), ([3, 0, 0], [1, 0, 0])]
    assert read(one) == [(0, 1, [b"a"], True), (1, 3, [b"b", b"c"], True)]


def test_a_key_that_is_written_twice_in_a_batch(cluster):
    """Both records are in the log, so the entry is the origin's own; the key is pending until the last is synced."""
    one = cluster.nodes[0]
    write(one, (b"k", b"1"))
    write(one, (b"k", None), (b"k", b"3"))
    write(one, (b"l", b"4"), (b"l", None))
    assert one.copy.is_pending(b"k")
    assert one.copy.is_unsynced
    (_, batch, _) = one.unsynced[-1]
    kinds = [key[:1] for _, _, key, _ in operations(batch.payload)]
    assert (kinds.count(RECORD), kinds.count(TOMBSTONE)) == (5, 2)
    sync(cluster, one)
    assert not one.copy.is_pending(b"k")
    assert not one.copy.is_unsynced
    assert read(one) == [(0, 5, [b"k", b"k", b"k", b"l", b"l"], True)]
    assert [node.live for node in cluster.nodes] == [{b"k": b"3"}] * 3


def test_the_times_of_a_batch_rise(cluster):
    """The STATE has the time of the last record, also if an earlier one came from a clock that is ahead."""
    one = cluster.nodes[0]
    one.skew_s = 5
    write(one, (b"a", b"1"))
    one.skew_s = 0
    write(one, (b"b", b"2"))
    sync(cluster, one)
    ((_, changes),) = one.log
    times = [record.decode(value).time for _, _, key, value in changes if key[:1] == RECORD]
    (state,) = (value for _, _, key, value in changes if key[:2] == STATE)
    assert times[0] < times[1] == decode_state(state)[0]


def test_a_replica_that_adopts_meanwhile_begins_another_batch(cluster):
    """The clock of the new placement has other names, so the old STATE cannot be overwritten."""
    one, *others = cluster.nodes
    write(one, (b"a", b"1"))
    hosts = [
        AssignedReplica(node.number, node.uuid, node.number - 1, counts=True, available=True) for node in cluster.nodes
    ]
    hosts.append(AssignedReplica(9, others[0].uuid, 1, counts=False, available=False))
    one.replicas.place(ReplicaIdentity(TABLE, 7, 1), 2, hosts)
    write(one, (b"b", b"2"))
    one.sync()
    assert states(one) == [([1, 0, 0], [0, 0, 0]), ([1, 0, 0, 0], [1, 0, 0, 0]), ([2, 0, 0, 0], [1, 0, 0, 0])]
    assert read(one) == [(0, 1, [b"a"], True), (1, 2, [b"b"], True)]


def test_a_batch_without_room_is_left_as_it_is(cluster):
    """A write that the store does not add to the batch begins another one, with a STATE of its own."""
    one = cluster.nodes[0]
    write(one, (b"a", b"1"))
    extend, one.extend = one.extend, lambda *_: False
    assert write(one, (b"b", b"2")) == 2
    one.extend = extend
    assert write(one, (b"c", b"3")) == 3
    sync(cluster, one)
    assert states(one) == [([1, 0, 0], [0, 0, 0]), ([3, 0, 0], [1, 0, 0])]
    assert cluster.nodes[2].live == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_unsynced_writes_end_with_their_node(cluster):
    """After a crash counters and times go on from the last synced STATE; no part of an open batch is left."""
    one = cluster.nodes[0]
    write(one, (b"a", b"1"))
    sync(cluster, one)
    one.syncs = False
    write(one, (b"a", b"2"))
    write(one, (b"b", b"2"))
    one.syncs = True
    cluster.crash(one)
    cluster.connect(one)
    cluster.pass_s(2.0)
    assert write(one, (b"c", b"3")) == 2
    cluster.pass_s(0.5)
    assert [node.live for node in cluster.nodes] == [{b"a": b"1", b"c": b"3"}] * 3


def test_each_replica_has_one_state():
    """The batch has writes to several replicas, in any order; each gets its own entry."""
    cluster = Cluster(adopts=False)
    for partition in (7, 8):
        hosts = [
            AssignedReplica(10 * partition + node.number, node.uuid, node.number, counts=True, available=True)
            for node in cluster.nodes
        ]
        for node, host in zip(cluster.nodes, hosts, strict=True):
            node.replicas.place(ReplicaIdentity(TABLE, partition, host.assignment), 1, hosts)
    cluster.run()
    cluster.connect()
    cluster.pass_s(0.3)
    one = cluster.nodes[0]
    one.syncs = False
    one.log.clear()
    first, second = one.replicas.by_partition.values()
    assert write(one, (b"a", b"1"), copy=first) == 1
    assert write(one, (b"b", b"2"), copy=second) == 1
    assert one.replicas.originate({second: [RecordWrite(b"c", b"3")], first: [RecordWrite(b"d", b"4")]}) == {
        71: 2,
        81: 2,
    }
    sync(cluster, one)
    entries = one.replicas.spaces.read(one.log, lambda *_: True)
    assert [(entry.replica, len(entry.records), entry.is_own) for entry in entries] == [
        (first, 2, True),
        (second, 2, True),
    ]
    assert len(states(one)) == 2
    for node in cluster.nodes[1:]:
        counters = [dict(clock.entries(copy.synced)) for copy in node.replicas.by_partition.values()]
        assert [counts.get(71, 0) + counts.get(81, 0) for counts in counters] == [2, 2]


def test_a_delete_that_relieves_does_so_only_among_its_like(cluster):
    """A batch may use the reserve only if all of its writes may."""
    one = cluster.nodes[0]
    write(one, (b"a", b"1"))
    sync(cluster, one)
    one.syncs = False
    write(one, (b"a", None))
    (_, batch, _) = one.unsynced[-1]
    assert batch.relieves
    write(one, (b"a", None))
    assert batch.relieves
    write(one, (b"none", None))
    assert (batch.relieves, batch.may_fill) == (False, True)
    write(one, (b"b", b"2"))
    assert (batch.relieves, batch.may_fill) == (False, False)


NUMBERS = st.integers(0, (1 << 64) - 1)
REQUESTS = st.dictionaries(st.integers(1, 4), st.lists(st.binary(max_size=3), min_size=1, max_size=4), min_size=1)


@given(NUMBERS, NUMBERS, st.dictionaries(NUMBERS, st.tuples(NUMBERS, NUMBERS), max_size=5))
def test_a_state_is_as_the_oracle(time, config, counters):
    after, before = ({origin: pair[at] for origin, pair in counters.items()} for at in (0, 1))
    packed = [clock.of(sorted(one.items())) for one in (after, before)]
    if all(len(one) == 16 * len(counters) for one in packed):
        assert encode_state(time, config, *packed) == oracle.state(time, config, after, before)


@given(st.lists(REQUESTS, min_size=1, max_size=5))
def test_the_shares_of_a_batch_are_as_the_oracle(requests):
    """The last STATE of each replica in the batch is that of its entry, after each further request."""
    nothing = clock.named(b"", (1, 9))
    made = {
        space: Replica(space, ReplicaIdentity(TABLE, space, 1), encode_state(0, 1, nothing, nothing))
        for space in range(1, 5)
    }
    whole, opened = Batch(), {}
    for request, (counters, keys) in zip(requests, oracle.counted(requests), strict=True):
        more = Batch()
        shares = new_shares(more, {made[at]: [RecordWrite(key, b"v") for key in request[at]] for at in request}, len)
        put_states(more, [share for share in shares if share.replica not in opened])
        begins = whole.size_bytes
        whole.extend(more)
        given_out = [join_shares(whole, opened, [share], begins)[1] for share in shares]
        assert dict(zip(request, given_out, strict=True)) == counters
        entries = {entry.replica.space: entry for entry in own_entries(opened, 5)}
        assert {space: [key for key, _ in entry.records] for space, entry in entries.items()} == keys
        for space, entry in entries.items():
            (state,) = [value for _, of, key, value in operations(whole.payload) if (of, key) == (space, STATE)]
            count = len(keys[space])
            assert state == oracle.state(made[space].time, 1, {1: count, 9: 0}, {1: 0, 9: 0})
            assert (entry.before, entry.after) == (nothing, made[space].appended)
