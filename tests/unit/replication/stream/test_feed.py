"""The steps of a log sender in Cython against the oracle, and against those in Python."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.replication._replication import (
    AckTracker,
    LogEntry,
    encode_state,
    hear_counters,
    hear_rows,
    pack_entries,
    show_confirmed,
)
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, Replica
from gossipkv.replication.replica.status import ReplicaStatus, SpanEnds
from gossipkv.replication.stream.log_tail import Beginnings, LogTail
from gossipkv.replication.stream.messages import ReplicaState
from gossipkv.replication.stream.peer import PeerReplica, ReplicaPeer
from gossipkv.replication.stream.sender import LogSender
from tests.oracle import feed as oracle

NODES = {one: bytes([one]) for one in (1, 2, 3)}
IDS = [(1, 2), (3, 2, 1), ()]
counters = st.integers(0, 200) | st.integers(0, 2**64 - 1)
clocks = st.dictionaries(st.integers(1, 3), counters)
data = record.encode(1, 2, 3, record.PUT, b"", b"value")
entries = st.lists(
    st.builds(
        oracle.Entry,
        st.integers(0, 2),
        clocks,
        clocks,
        st.booleans(),
        st.lists(st.tuples(st.binary(max_size=300), st.just(data)), max_size=20),
    ),
    max_size=20,
)


def packed(of):
    return clock.of(of.items())


class Named:
    def __init__(self, ids):
        self.named = ids


@given(entries=entries)
def test_packed_entries_are_the_oracle_s(entries):
    """Byte by byte those of another packer; records of origins that the link does not name are left out."""
    replicas = [Named(ids) for ids in IDS]
    ours = [
        LogEntry(replicas[one.number], tuple(one.records), packed(one.before), packed(one.after), one.is_own)
        for one in entries
    ]
    kept = [
        one._replace(records=one.records if one.is_own else [*each.records_of(IDS[one.number])])
        for one, each in zip(entries, ours, strict=True)
    ]
    numbers = {replica: number for number, replica in enumerate(replicas)}
    assert pack_entries(ours, numbers, IDS) == msgpack.packb(oracle.rows_of(kept, IDS))
    if ours:
        numbers.pop(ours[-1].replica)
        assert pack_entries(ours, numbers, IDS) is None
        ours[-1].replica.named = (9,)
        assert pack_entries(ours, {replica: number for number, replica in enumerate(replicas)}, IDS) is None


def placed():
    named = clock.named(clock.of([(1, 5)]), (1, 2, 3))
    copy = Replica(7, ReplicaIdentity(b"table", 0, 1), encode_state(0, 1, named, named))
    copy.adopts(1, [AssignedReplica(one, node, one, counts=True, available=True) for one, node in NODES.items()])
    tail = LogTail(10)
    sender = LogSender(tail, 10, relay_s=1.0, is_broken=lambda *_: False, beginnings=Beginnings(10))
    sender.connected({}, 0.0, goes_back=False)
    return copy, sender, AckTracker(copy)


few = st.integers(0, 6)


def mostly(usual, *others):
    return st.sampled_from([*[usual] * 8, *others])


booleans = st.sampled_from([*[True] * 8, False])
statuses = st.builds(
    lambda counts, config, can_take, span: ReplicaStatus(
        2, clock.of(zip((1, 2, 3), counts, strict=True)), config, can_take=can_take, available=True, span=span
    ),
    st.tuples(few, few, few),
    mostly(1, 2),
    booleans,
    mostly(None, SpanEnds(b"", b"")),
)
plain, newer = (
    ReplicaStatus(2, clock.of([(1, 1)]), config, can_take=True, available=True, span=None) for config in (1, 2)
)
perhaps = mostly(statuses, st.none()).flatmap(lambda drawn: drawn)


@pytest.mark.parametrize("is_report", [False, True])
@example(known=plain, state=newer, is_same=False, told=[2, 0, 0], lacks=None)
@example(known=newer, state=newer, is_same=True, told=[2, 0, 0], lacks=None)
@example(known=plain, state=plain, is_same=True, told=[0, 0, 0], lacks=(3, 0, 0))
@example(known=plain, state=plain, is_same=True, told=[6, 0, 0], lacks=None)
@given(
    known=perhaps,
    state=perhaps,
    is_same=booleans,
    told=st.lists(few, min_size=3, max_size=3),
    lacks=st.none() | st.tuples(few, few, few),
)
def test_a_row_with_counters_alone_is_heard_as_any_other(is_report, known, state, is_same, *, told, lacks):
    """Either the row is left to Python, or all is as if Python had heard it; so is each row where more is new."""
    state = known if is_same else state
    (copy, sender, tracker), (other, by_python, plain_tracker) = placed(), placed()
    for replica, to, acks in ((copy, sender, tracker), (other, by_python, plain_tracker)):
        if known is not None:
            to.hears(replica, known, 1.0)
            acks.confirms(known)
        to._gap = {} if lacks is None else {replica: clock.of(zip((1, 2, 3), lacks, strict=True))}
    states = {} if state is None else {0: ReplicaState(2, state.config, state.can_take)}
    peer = ReplicaPeer(NODES[2], sender, numbered=[copy], ids=[(1, 2, 3)], states=states)
    if is_report:
        peer.rows[0] = PeerReplica(copy.partition, 2, (1, 2, 3), is_new=False)
        row = [0, *((1, told, True) if state is None else (state.config, told, state.can_take)), state is None]
        left = hear_rows([row], peer, {copy.partition: copy}, {copy: tracker}, 2.0)
    else:
        row = [0, told]
        left = hear_counters([row], peer, {copy: tracker}, 2.0)
    theirs = clock.of(zip((1, 2, 3), told, strict=True))
    is_plain = known is not None and state is not None and known.span is None and known.can_take and state.can_take
    if not (is_plain and known.config == state.config == copy.config) or told[0] > 5:
        assert (left, sender.statuses.get(copy)) == ([row], known)
        return
    status = known._replace(clock=theirs)
    by_python.hears(other, status, 2.0)
    plain_tracker.confirms(by_python.statuses[other])
    assert (left, sender.statuses[copy]) == ([], by_python.statuses[other])
    assert (sender._since, [*sender._gap.values()]) == (by_python._since, [*by_python._gap.values()])
    assert [tracker.reached(level) for level in ("one", "majority", "all")] == [
        plain_tracker.reached(level) for level in ("one", "majority", "all")
    ]


@pytest.mark.parametrize("change", ["is_new", "unreported", "newer", "unknown"])
def test_a_row_of_a_report_that_is_answered_or_new_is_left_to_python(change):
    copy, sender, tracker = placed()
    sender.hears(copy, plain, 1.0)
    peer = ReplicaPeer(NODES[2], sender)
    if change != "unknown":
        peer.rows[0] = PeerReplica(copy.partition, 2, (1, 2, 3), is_new=change == "is_new")
    peer.unreported = {copy: None} if change == "unreported" else {}
    peer.newer = {0: 2} if change == "newer" else {}
    row = [0, 1, [2, 0, 0], True, False]
    assert hear_rows([row], peer, {copy.partition: copy}, {copy: tracker}, 2.0) == [row]
    assert sender.statuses[copy] == plain


class Shown:
    def __init__(self):
        self.confirmed = []

    def confirms(self, host, counters):
        self.confirmed.append((host, counters))


@given(status=perhaps, is_host=booleans)
def test_serving_loops_see_whole_hosts_of_the_same_config(status, is_host):
    """Another status clears what a loop has seen of that node."""
    copy, _, _ = placed()
    copy.calm, copy.settled = Shown(), (1, b"")
    show_confirmed(copy, NODES[2] if is_host else NODES[3], status)
    counts = is_host and status is not None and status.config == copy.config and status.span is None
    assert copy.calm.confirmed == [(2 if is_host else 3, status.clock if counts else None)]
    assert copy.settled is None
