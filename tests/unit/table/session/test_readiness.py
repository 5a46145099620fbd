"""Readiness of a replica for a session, the wait for it, and long tokens."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from gossipkv.errors import BadRequest, NotReady, Overloaded, WriteLost
from gossipkv.placement.partition import LEFT_OUT, Assignment, AssignmentState, Partition
from gossipkv.replication.maintenance.tombstone_gc import TombstoneCollector
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import WHOLE
from gossipkv.replication.replica.record import decode as decode_record
from gossipkv.replication.replica.replica import PartitionRules
from gossipkv.table.rpc.force_join import KeptReplica, begins
from gossipkv.table.session.readiness import _ends_are_known
from gossipkv.table.session.token import TableSeen, decode, decode_body, encode, left_out
from tests.unit.table.hopping import Hopping
from tests.unit.table.record_nodes import CONFIG, FOREIGN_KEYS, TOKEN_KEYS

ONE = {"level": "one"}
LOCAL = {"local": True}


@pytest.fixture
def world():
    """Return in-memory nodes whose records travel only on demand."""
    return Hopping(0)


def holder(world, key, table="hash"):
    """Return two nodes that hold the partition of a key."""
    hosts = world.records.nodes[0].methods.routing.route(table).place(key).hosts
    one, two, *_ = [node for node in world.records.nodes if node.uuid in hosts]
    return one, two


def outcome(node, *asked):
    """Return the value that a node answers, or the reason for which its replica waits."""
    try:
        return node.call(*asked)[0]
    except NotReady as error:
        return error.details["waits_for"]


def test_what_was_deleted_was_seen(world):
    """A session that has read a tombstone is shown no older record."""
    one, two = holder(world, b"1", "range")
    one.call("put", "range", b"1", b"old", ONE)
    world.feed(one, two)
    one.call("delete", "range", b"1", ONE)
    for method, *params in (["get", b"1"], ["get_many", [b"1"]], ["scan", {"end": b"2"}], ["scan", {"reverse": True}]):
        *_, token = one.call(method, "range", *params)
        assert outcome(two, "get", "range", b"1", {"token": token, **LOCAL}) == "records"
    assert outcome(two, "get", "range", b"1", LOCAL) == b"old"


def test_a_cursor_has_what_was_passed(world):
    """A scan continued by cursor, without a token, shows no state older than its first page."""
    one, two = holder(world, b"1", "range")
    for key in (b"1", b"11"):
        one.call("put", "range", key, b"new", ONE)
    _, cursor, _ = one.call("scan", "range", {"limit": 1, "end": b"2"})
    assert outcome(two, "scan", "range", {"cursor": cursor, "end": b"2", **LOCAL}) == "records"
    assert outcome(two, "scan", "range", {"end": b"2", **LOCAL}) == []


def test_a_copy_waits_for_what_the_session_has_seen(world):
    """Without `wait_ms` the answer is NOT_READY at once; otherwise the record wakes the request, or it times out."""
    one, two = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"new", ONE)
    with pytest.raises(NotReady) as caught:
        two.call("get", "hash", b"1", {"token": token, **LOCAL})
    assert caught.value.details["waits_for"] == "records"
    assert two.call("get", "hash", b"1", LOCAL)[0] is None
    answers = two.begin("get", "hash", b"1", {"token": token, "wait_ms": 300, **LOCAL})
    late = two.begin("get_many", "hash", [b"1"], {"token": token, "wait_ms": 100, **LOCAL})
    world.records.pass_s(0.2)
    assert answers == []
    assert [type(error) for error in late] == [NotReady]
    assert two.waiting.waiting == 1
    now = world.records.now
    world.feed(one, two)
    assert [value for value, _ in answers] == [b"new"]
    assert (world.records.now, two.waiting.waiting) == (now, 0)


@pytest.mark.parametrize("write", [["put", b"1", b"next"], ["delete", b"1"], ["put_many", [[b"1", b"next"]]]])
def test_a_write_waits_as_a_read_does(world, write):
    """The write waits at the asked replica; if none is ready, nothing is applied."""
    one, two = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"new", ONE)
    (copy,) = {two.replicas.of_origin[origin] for seen in decode(token, TOKEN_KEYS).values()
               for origin, _ in clock.entries(seen.clock)}  # fmt: skip
    for node in world.records.nodes:
        node.is_lost = True
    method, *params = write
    with pytest.raises(NotReady, match="no asked replica is ready"):
        two.call(method, "hash", *params, {"token": token, **ONE})
    assert clock.counter(copy.appended, copy.assignment) == 0
    answers = two.begin(method, "hash", *params, {"token": token, "wait_ms": 500, **ONE})
    world.feed(one, two)
    assert isinstance(answers[0], bytes)
    assert clock.counter(copy.synced, copy.assignment) == 1


def test_another_host_is_asked_where_one_is_not_ready(world):
    """The ready host answers; if no host is ready, each is asked only once."""
    one, two = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"new", ONE)
    assert outcome(two, "get", "hash", b"1", {"token": token}) == b"new"
    one.is_lost = True
    began = world.records.now
    for node in world.records.nodes:
        node.asked.clear()
    with pytest.raises(NotReady):
        two.call("get", "hash", b"1", {"token": token})
    assert world.records.now == began
    assert sum(len(node.asked) for node in world.records.nodes) == 1


def test_a_made_up_token_is_harmless(world):
    """Unknown origins are ignored, an unreachable counter is refused after the wait, and nothing hangs."""
    one, _ = holder(world, b"1")
    table = one.methods.routing.route("hash").table.id
    place = one.methods.routing.route("hash").place(b"1")
    unknown = encode(
        {table: TableSeen(CONFIG, clock.of([(99, 5)])), b"?" * 16: TableSeen(1 << 60, clock.of([(7, 7)]))}, TOKEN_KEYS
    )
    assert one.call("get", "hash", b"1", {"token": unknown, **LOCAL})[0] is None
    never = encode({table: TableSeen(CONFIG, clock.of([(place.origins[0], 1 << 63)]))}, TOKEN_KEYS)
    for wait_ms in (0, 400):
        began = world.records.now
        with pytest.raises(NotReady):
            one.call("get", "hash", b"1", {"token": never, "wait_ms": wait_ms})
        assert world.records.now - began <= wait_ms * 2 / 1000 + 0.2
    for wrong in (b"x", never[:-1], never + b"\1", encode({table: TableSeen(0, b"")}, FOREIGN_KEYS)):
        for method, *params in (["get", b"1"], ["get_many", [b"1"]], ["scan"], ["put", b"1", b"v"], ["delete", b"1"]):
            with pytest.raises(BadRequest, match="not given by this cluster"):
                one.call(method, "hash", *params, {"token": wrong})


def test_a_newer_map_is_looked_for(world):
    """A replica with an older map than the session's answers once its map is as new."""
    one, two = holder(world, b"1")
    for copy in one.replicas.by_partition.values():
        copy.taken_config = CONFIG + 1
    _, token = one.call("get", "hash", b"1", LOCAL)
    table = one.methods.routing.route("hash").table.id
    assert decode(token, TOKEN_KEYS) == {table: TableSeen(CONFIG + 1, b"")}
    assert outcome(two, "get", "hash", b"1", {"token": token, **LOCAL}) == "map"
    assert {*two.looked} == {table}
    answers = two.begin("get", "hash", b"1", {"token": token, "wait_ms": 500, **LOCAL})
    two.goes_by(table, CONFIG + 1)
    assert answers[0][0] is None


def test_a_newer_map_makes_calls_only_for_replicas_with_waiting_requests(world):
    one, two = holder(world, b"1")
    table = one.methods.routing.route("hash").table.id
    moved = []
    two.replicas.moved = moved.append
    two.goes_by(table, CONFIG + 1)
    assert (moved, two.replicas.maps[table]) == ([], CONFIG + 1)


def test_a_copy_that_is_to_go_by_a_newer_map(world):
    """The replica does not know the new map's origins while the end of a load freezes it."""
    one, two = holder(world, b"1")
    table = one.methods.routing.route("hash").table.id
    place = one.methods.routing.route("hash").place(b"1")
    copy = one.replicas.by_partition[table, place.partition]
    copy.is_frozen = True
    added = copy.hosts[0]._replace(assignment=99, node=b"9" * 16)
    one.replicas.place(copy.identity, CONFIG + 1, [*copy.hosts, added])
    one.goes_by(table, CONFIG + 1)
    token = encode({table: TableSeen(CONFIG + 1, clock.of([(99, 1)]))}, TOKEN_KEYS)
    assert outcome(one, "get", "hash", b"1", {"token": token, **LOCAL}) == "map"
    copy.is_frozen = False
    one.refuses = Overloaded("no room")
    one.replicas.pump()
    assert outcome(one, "get", "hash", b"1", {"token": token, **LOCAL}) == "map"
    one.refuses = None
    one.replicas.pump()
    assert outcome(one, "get", "hash", b"1", {"token": token, **LOCAL}) == "records"
    assert outcome(two, "get", "hash", b"1", LOCAL) is None


def test_a_record_depends_on_what_its_session_has_seen(world):
    """Dependencies include other partitions and tables with config ids, not the own partition; readers inherit them."""
    one, _ = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"same", ONE)
    other = {b"\7" * 16: TableSeen(9, clock.of([(70, 7)]))}
    _, token = one.call("get", "hash", b"1", {"token": token + encode(other, TOKEN_KEYS), **LOCAL})
    token = one.call("put", "hash", b"1", b"next", {"token": token, **ONE})
    copy = next(copy for copy in one.replicas.by_partition.values() if one.get(copy.space, b"\x011") is not None)
    kept = decode_body(decode_record(one.get(copy.space, b"\x011")).dependencies)
    assert kept == {copy.identity.table: TableSeen(CONFIG, b""), **other}
    _, read = one.call("get", "hash", b"1", LOCAL)
    assert decode(read, TOKEN_KEYS) == decode(token, TOKEN_KEYS)
    assert decode(read, TOKEN_KEYS) == {
        copy.identity.table: TableSeen(CONFIG, clock.of([(copy.assignment, 2)])),
        **other,
    }


def test_what_waits_is_bounded(world):
    """A waiting request counts with the size of its token; beyond the limit requests are refused."""
    one, two = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"new", ONE)
    two.waiting.most_bytes = 16 * 3
    for _ in range(3):
        two.begin("get", "hash", b"1", {"token": token, "wait_ms": 500, **LOCAL})
    with pytest.raises(Overloaded):
        two.call("get", "hash", b"1", {"token": token, "wait_ms": 500, **LOCAL})


@pytest.fixture
def left():
    """Return a `leave` function and two hosts; the last host has an old value and misses the map that removes it."""
    world = Hopping(0)
    nodes = {node.uuid: node for node in world.records.nodes}
    route = world.records.nodes[0].methods.routing.route("hash")
    place = route.place(b"1")
    one, two, three = [nodes[uuid] for uuid in place.hosts]
    one.call("put", "hash", b"1", b"old", ONE)
    world.feed(one, two)
    world.feed(one, three)

    def leave(write, *params):
        token = one.call(write, "hash", b"1", *params, ONE)
        world.feed(one, two)
        for node in (one, two):
            copy = node.replicas.by_partition[route.table.id, place.partition]
            hosts = [host for host in copy.hosts if host.node != three.uuid]
            node.replicas.place(copy.identity, CONFIG + 1, hosts)
            node.goes_by(route.table.id, CONFIG + 1)
        world.records.run()
        world.tell(one, two)
        world.tell(two, one)
        return token

    return leave, one, three


def test_what_is_left_out_of_a_token_takes_the_map_along_by_which_it_is_settled(left):
    """All replicas of that map have the record; an older map has another replica that lacks it."""
    leave, one, three = left
    token = leave("put", b"new")
    value, token = one.call("get", "hash", b"1", {"token": token, **LOCAL})
    (seen,) = decode(token, TOKEN_KEYS).values()
    assert (value, seen) == (b"new", TableSeen(CONFIG + 1, left_out(CONFIG + 1)))
    assert outcome(three, "get", "hash", b"1", {"token": token, **LOCAL}) == "map"


def test_who_is_told_by_others_what_is_settled_is_told_by_which_map(left):
    """The node that shortens a token holds no replica, and asks for the settled clocks."""
    leave, one, three = left
    token = leave("put", b"new")
    hosts = one.methods.routing.route("hash").place(b"1").hosts
    (asked,) = [node for node in one.records.nodes if node.uuid not in hosts]
    noise = encode({bytes([number]) * 16: TableSeen(1, clock.of([(99, 1)])) for number in range(9, 60)}, TOKEN_KEYS)
    three.is_lost = True
    _, token = asked.call("get", "hash", b"1", {"token": token + noise})
    table = one.methods.routing.route("hash").table.id
    assert decode(token, TOKEN_KEYS)[table] == TableSeen(CONFIG + 1, left_out(CONFIG + 1))


def test_who_was_shown_that_nothing_is_there_is_not_shown_what_was_deleted(left):
    """The tombstone is collected under the new map, so only the config tells the lagging host apart."""
    leave, one, three = left
    leave("delete")
    TombstoneCollector(one.replicas, one).look()
    one.records.run()
    for method, *params in (["get", b"1"], ["scan"]):
        *_, token = one.call(method, "hash", *params, LOCAL if method == "get" else {})
        assert outcome(three, "get", "hash", b"1", {"token": token, **LOCAL}) == "map"
    assert outcome(three, "get", "hash", b"1", LOCAL) == b"old"


def test_who_is_not_in_the_map_any_more_answers_nobody_who_has_seen_a_newer_one(world):
    """A departed replica's clock does not name the origins of later maps, however new the node's map is."""
    one, two = holder(world, b"1")
    token = one.call("put", "hash", b"1", b"new", ONE)
    world.feed(one, two)
    (copy,) = {two.replicas.of_origin[origin] for seen in decode(token, TOKEN_KEYS).values()
               for origin, _ in clock.entries(seen.clock)}  # fmt: skip
    two.departed[copy] = None
    table = copy.partition[0]
    later = encode({table: TableSeen(copy.config + 1, clock.of([(1 << 60, 1)]))}, TOKEN_KEYS)
    two.maps[table] = copy.config + 9
    assert outcome(two, "get", "hash", b"1", {"token": token, **LOCAL}) == b"new"
    assert outcome(two, "get", "hash", b"1", {"token": later, **LOCAL}) == "map"


def is_lost(copy, seen):
    try:
        return not _ends_are_known(copy, seen)
    except WriteLost as error:
        return "was force-joined since" in error.message


def test_what_is_left_out_is_compared_with_the_beginning_of_a_range():
    """Omitted records are lost to older sessions, unless the kept replica is as new as all that the session saw."""
    partition = Partition(7, (Assignment(1, 16 * b"n", 0, AssignmentState.AVAILABLE),))
    for oldest, later, begun, kept in product(range(1, 5), range(3), (2, 3, 4), (None, 1, 2, 3)):
        copy_kept = None if kept is None else KeptReplica("c", WHOLE, b"", 0, 1, kept)
        ends, _ = begins(partition, copy_kept, begun)
        copy = SimpleNamespace(rules=PartitionRules(ends=ends), synced=b"", identity=SimpleNamespace(partition=8))
        seen = TableSeen(oldest + later, clock.merge(left_out(oldest + later), left_out(oldest)))
        assert is_lost(copy, seen) == (oldest < begun and (kept is None or seen.config > kept))
    assert not is_lost(copy, TableSeen(1, b"")), "a session of which nothing was left out"
    assert PartitionRules(ends=ends).ended(()) == b"", "no copy says that it has what was left out"


def test_a_record_does_not_keep_since_when_anything_was_left_out(left):
    """Otherwise a reader would count as old as the writer."""
    leave, one, _ = left
    token = leave("put", b"new")
    _, token = one.call("get", "hash", b"1", {"token": token, **LOCAL})
    one.call("put", "hash", b"1", b"newer", {"token": token, **ONE})
    assert LEFT_OUT in {
        origin for seen in decode(token, TOKEN_KEYS).values() for origin, _ in clock.entries(seen.clock)
    }
    copy = next(copy for copy in one.replicas.by_partition.values() if one.get(copy.space, b"\x011") is not None)
    kept = decode_body(decode_record(one.get(copy.space, b"\x011")).dependencies)
    assert {origin for seen in kept.values() for origin, _ in clock.entries(seen.clock)} == set()
