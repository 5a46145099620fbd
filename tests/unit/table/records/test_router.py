"""The partition of a key, by maps of one leaf and of many, and the order of hosts."""

from __future__ import annotations

import sys
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.errors import NotReady, UnknownDatabase
from gossipkv.gossip.member import MemberState
from gossipkv.keyspace.partitioner import murmur3_32
from gossipkv.placement.partition import ForcedEnd
from gossipkv.register.metadata.partitions import RANGE, decode_partition
from gossipkv.table.records.router import together
from tests.unit.table.record_nodes import Records


@settings(max_examples=20, deadline=None)
@given(firsts=st.sets(st.binary(min_size=1, max_size=2), max_size=20), long=st.booleans(), keys=st.lists(st.binary()))
def test_the_range_of_a_key(firsts, long, keys):
    """The range is the last one that begins at or before the key, also in a map of many leaves."""
    many = [b"%05d" % number for number in range(2000)] if long else []
    bounds = sorted({b"", *firsts, *many})
    records = Records(1)
    records.make("t", RANGE, firsts=bounds, holders=lambda _: records.nodes, adopted=False)
    route = records.nodes[0].methods.routing.route("t")
    assert [place.first for place in route.places()] == bounds
    assert [place.end for place in route.places()] == [*bounds[1:], None]
    for key in [*keys, *bounds[::97]]:
        at = bisect_right(bounds, key) - 1
        assert route.place(key).first == bounds[at]
        if key:
            assert route.before(key).first == max(bound for bound in bounds if bound < key)
    assert route.before(None).first == bounds[-1]


@pytest.mark.parametrize("ranges", [16, 5000])
def test_a_lookup_makes_two_calls(ranges):
    """The number of ranges and of leaves adds none."""
    bounds = [b"%05d" % number if number else b"" for number in range(ranges)]
    records = Records(1)
    records.make("t", RANGE, firsts=bounds, holders=lambda _: records.nodes, adopted=False)
    route, called = records.nodes[0].methods.routing.route("t"), []
    assert len({place.hosts for place in route.places()}) == len({id(place.hosts) for place in route.places()}) == 1
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    found = [*map(route.place, bounds)]
    sys.setprofile(before)
    assert [place.first for place in found] == bounds
    assert called == ["place", "_find"] * ranges


@given(key=st.binary(), shards=st.sampled_from([1, 7, 1500]))
@settings(max_examples=20, deadline=None)
def test_the_shard_of_a_key(key, shards):
    records = Records(1)
    records.make("t", firsts=shards, holders=lambda _: records.nodes, adopted=False)
    place = records.nodes[0].methods.routing.route("t").place(key)
    assert int.from_bytes(place.first, "big") == murmur3_32(key) % shards


def test_a_map_that_changes_is_read_anew():
    """The root decides, also for a table that is dropped and made again, an unknown table and a missing map."""
    records = Records(1)
    routing = records.nodes[0].methods.routing
    first = records.make("t", firsts=2, holders=lambda _: records.nodes)
    route = routing.route("t")
    assert routing.route("t") is route
    records.drop("t")
    with pytest.raises(UnknownDatabase):
        routing.route("t")
    second = records.make("t", firsts=3, holders=lambda _: records.nodes)
    assert [routing.route("t").table.id, first] == [second, route.table.id]
    del records.known[second]
    with pytest.raises(NotReady) as caught:
        routing.route("t")
    assert caught.value.details["coming"] is True


def test_who_is_asked_first():
    """Live nodes come first, then suspects, then dead nodes and former members."""
    records = Records(4)
    for node, state in zip(
        records.nodes, (MemberState.DEAD, MemberState.SUSPECT, MemberState.ALIVE, MemberState.ALIVE), strict=True
    ):
        node.state = state
    uuids = [node.uuid for node in records.nodes]
    for _ in range(10):
        order = records.nodes[0].methods.routing.hosts([bytes(16), *uuids[:3]])
        assert order[:2] == [uuids[2], uuids[1]]
        assert set(order[2:]) == {uuids[0], bytes(16)}
    firsts = {records.nodes[0].methods.routing.hosts(uuids)[0] for _ in range(50)}
    assert firsts == {uuids[2], uuids[3]}


def test_what_the_same_nodes_hold_goes_together():
    """Partitions with the same hosts form a group, whatever their slots."""
    records = Records(3)
    one, two, three = records.nodes
    records.make("t", firsts=6, holders=lambda number: [[one, two], [two, one], [three, one]][number % 3])
    groups = together(records.nodes[0].methods.routing.route("t").places())
    assert [[int.from_bytes(place.first, "big") for place in group] for group in groups] == [[0, 1, 3, 4], [2, 5]]


def test_what_a_partition_names():
    """Present, former and forcibly removed assignments count, since records that a token names may be lost."""
    records = Records(2)
    table = records.make("t", RANGE, firsts=[b""], holders=lambda _: records.nodes)
    (entry,) = records.view(table).scan()
    before = decode_partition(entry.record).named
    records.change("t", lambda one: one._replace(former=(1 << 40,), ends=(ForcedEnd(1 << 41, 5),)))
    route = records.nodes[0].methods.routing.route("t")
    assert {*route.origins()} == {*before, 1 << 40, 1 << 41}
