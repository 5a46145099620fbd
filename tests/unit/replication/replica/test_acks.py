"""A slot acknowledges when all of its counting hosts have, under the replica's config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.acks import AckTracker
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules, Replica
from gossipkv.replication.replica.status import NOTHING, ReplicaStatus, SpanEnds
from tests.oracle import acks as oracle

NODES = {one: bytes([one]) for one in (1, 2, 3, 4)}


def levels(*, leaving=(), without=(), slots=0):
    """Return the tracker of a replica with 5 writes and two other slots; one slot moves from 3 to 4."""
    seats = {one: slot for one, slot in {1: 0, 2: 1, 3: 2, 4: 2}.items() if one not in without}
    named = clock.named(clock.of([(1, 5)]), [*seats])
    copy = Replica(7, ReplicaIdentity(b"table", 0, 1), encode_state(0, 1, named, named))
    available = {1, 2, 3, *([4] if leaving else [])}
    hosts = [
        AssignedReplica(one, NODES[one], slot, one not in leaving, one in available) for one, slot in seats.items()
    ]
    copy.adopts(1, hosts, PartitionRules(slots))
    return AckTracker(copy)


def confirm(levels, **counters):
    for who, count in counters.items():
        told = ReplicaStatus(int(who[1:]), clock.of([(1, count)]), 1, can_take=True, available=True)
        levels.confirms(told)


def test_a_slot_has_confirmed_with_all_of_its_hosts():
    """A moving slot counts once both ends have the write; a leaving host does not count."""
    moving, left = levels(), levels(leaving=(3,))
    for one in (moving, left):
        assert (one.reached("one"), one.reached("majority"), one.reached("all")) == (5, 0, 0)
        confirm(one, n4=2)
    assert (moving.reached("majority"), left.reached("majority")) == (0, 2)
    confirm(moving, n3=5)
    assert (moving.reached("majority"), moving.reached("all")) == (2, 0)
    confirm(moving, n2=3)
    assert (moving.reached("majority"), moving.reached("all")) == (3, 2)


def test_who_leaves_confirms_for_nobody():
    """A leaving host cannot confirm in place of the AVAILABLE host of its slot."""
    left = levels(leaving=(3,))
    confirm(left, n3=5)
    assert left.reached("majority") == 0
    confirm(left, n4=4)
    assert left.reached("majority") == 4


@pytest.mark.parametrize(("nodes", "slots"), [((), 1), ((2,), 2), ((3,), 1), ((4,), 1), ((3, 4), 2), ((2, 3, 4), 3)])
def test_who_can_confirm(nodes, slots):
    """A slot can confirm if all of its counting hosts are connected."""
    assert levels().confirming({NODES[one] for one in nodes}.__contains__) == slots


def test_a_level_is_of_the_slots_that_there_are_to_be():
    """The slots of the table count, not the occupied ones: two of five are no majority."""
    one = levels(without=(3, 4), slots=5)
    confirm(one, n2=5)
    assert (one.reached("one"), one.reached("majority"), one.reached("all")) == (5, 0, 0)


def test_one_is_its_origin():
    """Level `one` is the origin itself, also while a target that shares its slot loads."""
    named = clock.named(clock.of([(1, 5)]), (1, 2))
    copy = Replica(7, ReplicaIdentity(b"table", 0, 1), encode_state(0, 1, named, named))
    copy.adopts(
        1,
        [
            AssignedReplica(1, NODES[1], 0, counts=True, available=True),
            AssignedReplica(2, NODES[2], 0, counts=True, available=False),
        ],
    )
    one = AckTracker(copy)
    assert (one.reached("one"), one.reached("majority")) == (5, 0)
    confirm(one, n2=3)
    assert (one.reached("one"), one.reached("majority")) == (5, 3)


def test_who_waits_is_called_once():
    """Waiters are called in the order of the writes, each when its level is reached."""
    one, called = levels(), []
    for counter in (2, 4):
        one.wait("majority", counter, lambda counter=counter: called.append(counter))
    one.wait("one", 5, lambda: called.append("one"))
    one.look()
    confirm(one, n2=3)
    confirm(one, n2=3)
    assert called == ["one", 2]
    confirm(one, n2=9)
    assert called == ["one", 2, 4]


def test_a_target_that_is_not_whole_confirms_by_its_span():
    """A loading target confirms records since its feed began; older records wait until it is complete."""
    one, called = levels(), []
    for counter in (1, 3, 5):
        one.wait("all", counter, lambda counter=counter: called.append(counter))
    confirm(one, n2=5, n3=5)
    one.confirms(
        ReplicaStatus(4, b"", 1, can_take=True, available=False, span=SpanEnds(clock.of([(1, 2)]), clock.of([(1, 4)])))
    )
    assert (called, one.reached("all"), one.reached("all", 2)) == ([3], 0, 4)
    one.confirms(ReplicaStatus(4, b"", 1, can_take=True, available=False, span=NOTHING))
    assert (called, one.reached("all", 2)) == ([3], 0)
    confirm(one, n4=5)
    assert called == [3, 1, 5]


def test_a_slot_that_has_only_a_target_confirms_nothing():
    """A write on the origin and such a target would be lost with the origin."""
    one = levels(without=(3,))
    confirm(one, n4=5)
    assert (one.reached("majority"), one.confirming({NODES[2], NODES[4]}.__contains__)) == (0, 2)
    confirm(one, n2=5)
    assert (one.reached("majority"), one.reached("all")) == (5, 0)


counters = st.integers(0, 6)
told = st.builds(oracle.Told, counters, st.integers(1, 2), st.none() | st.tuples(counters, counters))


@given(
    seats=st.lists(st.integers(1, 3), min_size=1, max_size=9),
    asked=st.dictionaries(st.integers(2, 30), told),
    slots=st.integers(0, 9),
    behind=counters,
    level=st.sampled_from(["majority", "all"]),
)
def test_a_level_is_the_oracle_s(seats, asked, slots, behind, level):
    """Hosts of up to nine slots, by statuses under two configs, complete or with a span."""
    places = [(slot, one) for slot, count in enumerate(seats) for one in range(count)]
    hosts = dict(enumerate(places, 1))
    named = clock.named(clock.of([(1, 5)]), (*hosts,))
    copy = Replica(7, ReplicaIdentity(b"table", 0, 1), encode_state(0, 1, named, named))
    rows = [
        AssignedReplica(one, bytes([one]), slot, counts=True, available=at == 0) for one, (slot, at) in hosts.items()
    ]
    copy.adopts(1, rows, PartitionRules(slots))
    tracker = AckTracker(copy)
    for one, status in asked.items():
        span = None if status.span is None else SpanEnds(*(clock.of([(1, end)]) for end in status.span))
        known = clock.of([(1, status.counter)])
        tracker.confirms(ReplicaStatus(one, known, status.config, can_take=True, available=True, span=span))
    by_slot = [[one for one, (at, _) in hosts.items() if at == slot] for slot in range(len(seats))]
    expected = oracle.reached(level, slots or len(seats), by_slot, asked | {1: oracle.Told(5, 1)}, behind)
    assert tracker.reached(level, behind) == expected
