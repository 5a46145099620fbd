"""Readiness for a session of a replica in a moving partition, and lost writes."""

from __future__ import annotations

import pytest

from gossipkv.errors import GossipKVError, WriteLost
from gossipkv.replication.replica import clock
from gossipkv.table.session.token import TableSeen, encode
from tests.unit.table.record_nodes import CONFIG, TOKEN_KEYS, Records

GONE = 1 << 20  # A former assignment.
MOVED = CONFIG + 1


@pytest.fixture
def world():
    """Return three nodes that hold one partition."""
    records = Records(3)
    records.make("t", firsts=1, holders=lambda _: records.nodes)
    return records


def moves(world, *nodes, former=(), ends=()):
    for one in nodes:
        (copy,) = one.replicas.by_partition.values()
        rules = copy.rules._replace(former=former, ends=ends)
        one.replicas.place(copy.identity, MOVED, copy.hosts, rules)
        one.goes_by(copy.partition[0], MOVED)
    world.run()


def seen(world, config, count):
    """Return a token with `count` records of the former assignment."""
    (copy,) = world.nodes[0].replicas.by_partition.values()
    had = clock.of([(GONE, count)])
    return encode({copy.partition[0]: TableSeen(config, had)}, TOKEN_KEYS)


def outcome(node, token):
    """Return the node's value, or the reason for its refusal."""
    try:
        return node.call("get", "t", b"k", {"token": token, "local": True})[0]
    except WriteLost:
        return "lost"
    except GossipKVError as error:
        return error.details.get("waits_for", error.code)


def test_an_origin_that_has_ended_is_not_waited_for(world):
    """A map as new as the token does not name the origin, so all replicas have its records."""
    one, *_ = world.nodes
    moves(world, one)
    assert outcome(one, seen(world, MOVED, 5)) is None


def test_an_origin_of_a_newer_map_is_waited_for(world):
    """The node reads the register for the newer map; then it waits for the origin's records."""
    one, two, _ = world.nodes
    token = seen(world, MOVED, 5)
    assert (outcome(one, token), one.looked != []) == ("map", True)
    moves(world, one, former=(GONE,))
    moves(world, two)
    assert (outcome(one, token), outcome(two, token)) == ("records", None)


def test_a_session_of_this_map_is_answered_without_the_register(world):
    """No majority of the register's servers is needed."""
    one, *_ = world.nodes
    moves(world, one)
    assert outcome(one, seen(world, MOVED, 0)) is None
    assert one.looked == []


def test_what_is_beyond_a_forced_end_is_lost(world):
    """Records up to the forced end are awaited and later ones are lost; an unknown end makes all of them wait."""
    one, *_ = world.nodes
    moves(world, one, former=(GONE,), ends=((GONE, None),))
    assert [outcome(one, seen(world, MOVED, count)) for count in (0, 5)] == [None, "ends"]
    moves(world, one, former=(GONE,), ends=((GONE, 4),))
    assert [outcome(one, seen(world, MOVED, count)) for count in (4, 5)] == ["records", "lost"]
    moves(world, one, ends=((GONE, 4),))  # The origin is settled.
    assert [outcome(one, seen(world, MOVED, count)) for count in (4, 5)] == [None, "lost"]


def test_a_write_is_told_to_be_lost_too(world):
    """The write would depend on a lost record."""
    one, *_ = world.nodes
    moves(world, one, ends=((GONE, 4),))
    told = one.outcome("put", "t", b"k", b"v", {"token": seen(world, MOVED, 5), "level": "one"})
    assert isinstance(told, WriteLost)
    (copy,) = one.replicas.by_partition.values()
    assert (told.details["kept"], clock.counter(copy.appended, copy.assignment)) == (4, 0)


@pytest.mark.parametrize("request_", [("get",), ("put", b"v")])
@pytest.mark.parametrize("is_alone", [False, True])
def test_who_holds_nothing_tells_what_a_host_says(request_, is_alone):
    """One host's word that a write is lost is final, even if other hosts do not answer."""
    records = Records(3)
    one, two, other = records.nodes
    records.make("t", firsts=1, holders=lambda _: [one, two])
    moves(records, one, two, ends=((GONE, 4),))
    two.is_lost = is_alone
    method, *value = request_
    options = {"token": seen(records, MOVED, 5), "timeout_ms": 500}
    assert isinstance(other.outcome(method, "t", b"k", *value, options), WriteLost)
