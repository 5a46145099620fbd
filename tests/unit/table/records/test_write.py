"""Writes to tables: their path, their refusal, and the report of unknown outcomes."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest

from gossipkv.cli.writes import put
from gossipkv.errors import (
    BadRequest,
    LimitExceeded,
    NotServed,
    Overloaded,
    StorageError,
    TooLarge,
    Unavailable,
    Unknown,
    UnknownDatabase,
    no_table,
)
from gossipkv.gossip.member import MemberState
from gossipkv.replication.replica import record
from gossipkv.replication.replica.hlc import COUNT_BITS
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.status import ReplicaStatus
from gossipkv.replication.stream.peer import ReplicaPeer
from gossipkv.settings.tables import MAX_EXPIRES_MS, MAX_KEY_BYTES, MAX_TTL_MS, MAX_VALUE_BYTES, MIN_EXPIRES_MS
from gossipkv.table.records.forward import LOOK_S
from gossipkv.table.rpc.status import TableReporter
from gossipkv.wire.arguments import MAX_MESSAGE_BYTES
from tests.unit.table.record_nodes import MAX_BYTES, TOKEN, Records

BAD_EXPIRIES = (
    ({"ttl_ms": -1}, "ttl_ms must be at least 0"),
    ({"ttl_ms": MAX_TTL_MS + 1}, "ttl_ms must be at most"),
    ({"expires_at": MAX_EXPIRES_MS + 1}, "expires_at must be at most"),
    ({"expires_at": 1_900_000_000}, "seconds are no milliseconds"),
    ({"ttl_ms": 0, "expires_at": MIN_EXPIRES_MS}, "a record has one expiry"),
)


@pytest.fixture
def records():
    """Return three nodes; the first two hold the only partition of `t`."""
    made = Records(3)
    made.make("t", firsts=1, holders=lambda _: made.nodes[:2])
    return made


def values(records, key):
    return [node.call("get", "t", key)[0] for node in records.nodes[:2]]


def reach(node, other):
    """Let a node hear of another's clocks, as in the answer to a greeting."""
    peer = node.replicas.peers.setdefault(other.uuid, ReplicaPeer(other.uuid, None))
    peer.link, peer.greeted = 1, True


def test_a_write_is_at_one_origin(records):
    """A host writes to its own replica, another node to one host; a delete is a write; the token is empty."""
    one, two, three = records.nodes
    assert one.call("put", "t", b"a", b"1", {"level": "one"}) == TOKEN
    assert values(records, b"a") == [b"1", None]
    assert three.call("put", "t", b"b", b"2", {"level": "one"}) == TOKEN
    assert sorted(values(records, b"b"), key=str) == [None, b"2"]
    one.call("delete", "t", b"a", {"level": "one"})
    assert values(records, b"a") == [None, None]
    assert (one.asked + two.asked).count("table_write") == 1


def test_a_level_that_cannot_be_reached_is_refused_before_anything_is_applied(records):
    """The refusal is immediate and has the reason of each host."""
    one, two, three = records.nodes
    for node in (one, three):
        error = node.outcome("put", "t", b"k", b"v")
        assert "majority needs 2 slots of the partition, and 1 can confirm" in str(error)
        assert (type(error), {*error.details["asked"]}) == (Unavailable, {"n1", "n2"})
    assert records.now == 0.0
    assert values(records, b"k") == [None, None]
    assert not one.unsynced + two.unsynced


def test_who_is_about_to_tell_its_clocks_is_waited_for(records):
    """A new link will confirm in a moment, so the write is retried and not refused."""
    one, two, _ = records.nodes
    reach(one, two)
    one.replicas.peers[two.uuid].greeted = False
    answers = one.begin("put", "t", b"k", b"v", {"timeout_ms": 500})
    records.pass_s(0.1)
    assert answers == []
    reach(one, two)
    records.pass_s(0.5)
    assert isinstance(answers[0], Unknown)  # The write was applied, and no feed runs in this test.
    assert values(records, b"k") == [b"v", None]


def test_short_of_its_level_in_time_it_is_unknown(records):
    """An applied but unconfirmed write is UNKNOWN at its timeout, and gets no second answer later."""
    one, two, _ = records.nodes
    reach(one, two)
    answers = one.begin("put", "t", b"k", b"v", {"timeout_ms": 300})
    records.pass_s(0.2)
    assert answers == []
    records.pass_s(0.2)
    assert isinstance(answers[0], Unknown)
    assert answers[0].details["level"] == "majority"
    (copy,) = one.replicas.by_partition.values()
    other = next(host.assignment for host in copy.hosts if host.node == two.uuid)

    def confirm():
        told = ReplicaStatus(other, copy.synced, copy.config, can_take=True, available=True)
        one.replicas.acks[copy].confirms(told)

    confirm()
    assert len(answers) == 1
    told = one.begin(
        "table_write", *copy.identity[:2], "majority", msgpack.packb([b"k", b"u"]), one.now_ms() + 100 << COUNT_BITS
    )
    records.pass_s(0.2)
    confirm()
    assert [type(answer) for answer in told] == [Unknown]
    again = one.begin("put", "t", b"k", b"w")
    records.run()
    assert again == []
    confirm()
    assert again == [TOKEN]


def test_a_level_that_the_living_hosts_cannot_reach_is_not_waited_for(records):
    """The confirmation of a host that has died may never come; but a connection that ends is no death."""
    one, two, _ = records.nodes
    reach(one, two)
    answers = [one.begin("put", "t", b"k", b"v", {"timeout_ms": 30_000, "level": level}) for level in ("all", "one")]
    one.replicas.peers[two.uuid].greeted = False
    records.pass_s(5.0)
    assert answers == [[], [TOKEN]]
    one.replicas.is_up = lambda node: node != two.uuid
    records.pass_s(LOOK_S)
    assert "did not reach the level all since too few replicas are alive" in str(answers[0][0])
    assert isinstance(answers[0][0], Unknown)


def test_a_write_that_was_sent_is_not_repeated(records):
    """A silent host may have applied the write, so no other host is asked."""
    one, two, three = records.nodes
    one.hangs = two.hangs = True
    answers = three.begin("put", "t", b"k", b"v", {"level": "one"})
    records.pass_s(2.0)
    assert isinstance(answers[0], Unknown)
    assert (one.asked + two.asked) == ["table_write"]


@pytest.mark.parametrize("fault", ["lost", "refuses"])
def test_a_write_that_was_certainly_not_applied_goes_to_the_next(records, fault):
    """A write that was never sent, or was refused by a closed or full store, goes to the next host."""
    one, _, three = records.nodes
    if fault == "lost":
        one.is_lost = True
    else:
        one.refuses = StorageError("the log: no space left on the device")
    for number in range(8):
        three.call("put", "t", b"%d" % number, b"v", {"level": "one"})
        assert values(records, b"%d" % number) == [None, b"v"]
    if fault == "refuses":
        one.call("put", "t", b"k", b"v", {"level": "one"})
        assert values(records, b"k") == [None, b"v"]


def test_a_forwarded_write_is_not_forwarded_again(records):
    """A node without the partition refuses a node's request, while a client's request is forwarded."""
    one, two, three = records.nodes
    (table, partition), *_ = one.replicas.by_partition
    with pytest.raises(NotServed):
        three.call("table_write", table, partition, "one", msgpack.packb([b"k", b"v"]), 1 << 62)
    assert one.asked == two.asked == []


def test_a_table_that_was_just_made():
    """Hosts that have not adopted their partitions are asked again; if they never do, the error names each."""
    records = Records(3)
    one, two, three = records.nodes
    records.make("t", firsts=1, holders=lambda _: [one, two], adopted=False)
    answers = three.begin("put", "t", b"k", b"v", {"level": "one"})
    records.pass_s(0.2)
    assert answers == []
    records.adopt("t", two)
    records.pass_s(0.05)
    assert answers == [TOKEN]
    assert two.call("get", "t", b"k") == [b"v", TOKEN]
    assert one.call("get", "t", b"k") == [b"v", TOKEN]
    records.drop("t")
    records.make("t", firsts=1, holders=lambda _: [one, two], adopted=False)
    with pytest.raises(Unavailable, match=r"n1: the node does not hold.*n2: the node does not hold|n2: .*n1: "):
        one.call("put", "t", b"k", b"v", {"timeout_ms": 200})
    assert records.now < 1.0


def test_a_copy_that_is_not_available_yet(records):
    """Neither writes nor reads go to the replica, because it lacks records."""
    one, _, _ = records.nodes
    (copy,) = one.replicas.by_partition.values()
    copy.hosts = tuple(host._replace(available=host.node != one.uuid) for host in copy.hosts)
    one.call("put", "t", b"k", b"v", {"level": "one"})
    assert one.call("get", "t", b"k", {"explain": True}) == [b"v", TOKEN, {"node": "n2"}]


def test_a_copy_that_may_not_originate(records):
    """A barred replica forwards writes, and so does a new one for a while."""
    one, two, _ = records.nodes
    (copy,) = one.replicas.by_partition.values()
    copy.barred = "another node has later records of this replica"
    one.call("put", "t", b"k", b"v", {"level": "one"})
    assert values(records, b"k") == [None, b"v"]
    two.is_lost = True
    with pytest.raises(Unavailable, match="n1: another node has later records of this replica"):
        one.call("put", "t", b"k", b"v", {"level": "one"})
    copy.barred, copy.is_new = None, False
    records.now = 0.5
    one.call("put", "t", b"k", b"w", {"level": "one"})
    assert records.now >= 1.0


def test_many_rows_are_cut_into_batches(records):
    """Batches are limited by partition and size; the later row of a key wins."""
    one, _, three = records.nodes
    records.make("u", firsts=1, holders=lambda _: [one])
    rows = [[b"%d" % (number % 50), bytes([number]) * 20_000] for number in range(100)]
    assert three.call("put_many", "u", rows) == TOKEN
    assert one.asked.count("table_write") >= 50 * 20_000 // (MAX_MESSAGE_BYTES + 20_000)
    found, _ = one.call("get_many", "u", [b"%d" % number for number in range(50)])
    assert found == [bytes([number + 50]) * 20_000 for number in range(50)]
    assert three.call("put_many", "u", []) == b""


def test_many_rows_of_which_some_are_refused():
    """If all parts are refused nothing was applied; otherwise the outcome is UNKNOWN, with the written parts."""
    records = Records(3)
    one, two, three = records.nodes
    records.make("t", firsts=2, holders=lambda number: [records.nodes[number]])
    rows = [[b"%d" % number, b"v"] for number in range(20)]
    two.is_lost = True
    error = three.outcome("put_many", "t", rows)
    assert isinstance(error, Unknown)
    assert re.search(r"1 of 2 parts are written.*n2 is not reached", str(error))
    one.is_lost = True
    with pytest.raises(Unavailable, match="nothing was applied"):
        three.call("put_many", "t", rows)


def test_too_much_waits(records):
    """A write beyond the limit is refused unapplied; if all hosts are full the error is OVERLOADED."""
    one, two, three = records.nodes
    for node in (one, two, three):
        node.waiting.begin(10.0, MAX_BYTES, lambda: None)
    for node in (one, three):
        with pytest.raises(Overloaded):
            node.call("put", "t", b"k", b"v", {"level": "one"})
    assert values(records, b"k") == [None, None]


NO_ROOM = Overloaded("the store takes no writes now: both memtables are full", {"passes": True})


@pytest.mark.parametrize("asked", [0, 2])
def test_a_write_waits_for_room_in_the_stores(records, asked):
    """Stores merge for seconds: the write is written once they have room, without many attempts."""
    one, two, _ = records.nodes
    one.refuses = two.refuses = NO_ROOM
    node = records.nodes[asked]
    rows = [[b"%d" % number, bytes(60_000)] for number in range(20)]
    told = node.begin("put_many", "t", rows, {"level": "one", "timeout_ms": 8000})
    records.pass_s(6)
    assert told == []
    assert len(two.asked) < 5 * 20
    one.refuses = two.refuses = None
    records.pass_s(1)
    assert told == [TOKEN]


def test_a_write_without_room_until_its_end_is_refused_unapplied(records):
    """The error is OVERLOADED, since nothing was written; a full disk, which lasts, refuses at once."""
    one, two, three = records.nodes
    one.refuses = two.refuses = NO_ROOM
    for node in (one, three):
        began = records.now
        with pytest.raises(Overloaded, match=r"nothing was applied.*both memtables are full"):
            node.call("put_many", "t", [[b"k", b"v"], [b"l", b"v"]], {"level": "one", "timeout_ms": 3000})
        assert 2.9 < records.now - began <= 3
    began, one.refuses = records.now, Overloaded("too little free space", {"passes": False})
    two.refuses = one.refuses
    with pytest.raises(Overloaded, match="too little free space"):
        three.call("put", "t", b"k", b"v", {"level": "one"})
    assert records.now == began
    assert values(records, b"k") == [None, None]


def test_what_a_write_is_not(records):
    """Invalid keys, values, levels, options and tables are refused with one clear error, and nothing is applied."""
    one, *_ = records.nodes
    long = bytes(MAX_KEY_BYTES + 1)
    for error, words, method, *params in (
        (BadRequest, "more than the 65522 that a key may have", "put", "t", long, b"v"),
        (TooLarge, "the limit is", "put", "t", b"k", bytes(MAX_VALUE_BYTES + 1)),
        (
            BadRequest,
            "the level must be one of one, majority, all, not most",
            "put",
            "t",
            b"k",
            b"v",
            {"level": "most"},
        ),
        (BadRequest, "did you mean level", "delete", "t", b"k", {"levels": "one"}),
        (BadRequest, "unknown option local", "put", "t", b"k", b"v", {"local": True}),
        (BadRequest, "a table has no versions", "put", "t", b"k", b"v", {"version": "1"}),
        (BadRequest, "the token was not given", "put", "t", b"k", b"v", {"token": b"\1"}),
        (BadRequest, "timeout_ms must be at least 0", "put", "t", b"k", b"v", {"timeout_ms": -1}),
        (BadRequest, "wait_ms must be an integer", "put", "t", b"k", b"v", {"wait_ms": "1"}),
        *((BadRequest, words, "put", "t", b"k", b"v", options) for options, words in BAD_EXPIRIES),
        (BadRequest, "unknown option ttl_ms", "delete", "t", b"k", {"ttl_ms": 1}),
        (BadRequest, "the value must be bytes", "put", "t", b"k", 7),
        (BadRequest, "the value is missing", "put", "t", b"k"),
        (BadRequest, "row 1 must be a key", "put_many", "t", [[b"k", b"v"], [b"k"]]),
        (BadRequest, "expires_at of row 0 must be", "put_many", "t", [[b"k", b"v", 5]]),
        (BadRequest, "row 0 must be a key", "put_many", "t", [[long, b"v"]]),
        (TooLarge, "the limit is", "put_many", "t", [[b"k", bytes(MAX_VALUE_BYTES + 1)]]),
        (UnknownDatabase, "there is no table u", "put", "u", b"k", b"v"),
        (BadRequest, "a level is required", "table_write", bytes(16), 0, "most", msgpack.packb([b"k", b"v"]), 1),
        (BadRequest, "rows of 2 elements, not 1", "table_write", bytes(16), 0, "one", msgpack.packb([b"k"]), 1),
        (BadRequest, "rows must be keys", "table_write", bytes(16), 0, "one", msgpack.packb([b"k", 1]), 1),
        (BadRequest, "rows must be keys", "table_write", bytes(16), 0, "one", msgpack.packb([b"k", [None, 5]]), 1),
    ):
        with pytest.raises(error, match=words):
            one.call(method, *params)
    assert not one.replicas.tail.end > 5
    one.call("put", "t", bytes(MAX_KEY_BYTES), b"v", {"level": "one"})
    one.call("delete", "t", bytes(MAX_KEY_BYTES), {"level": "one"})


def expiry_at(records, key, node=0):
    """Return the expiry of the record of a key at a node; 0: it never expires."""
    (replica,) = (one for one in records.nodes[node].replicas.by_partition.values() if one.bounds.has(key))
    return record.decode(records.nodes[node].spaces[replica.space][RECORD + key]).expires_ms


@pytest.mark.parametrize("by", [0, 2])
def test_the_origin_gives_a_record_its_expiry(by):
    """The lifetime counts from the origin's clock, wherever the put was asked for; a put can overrule the table's."""
    records = Records(3)
    records.make("t", firsts=1, holders=lambda _: records.nodes[:1], ttl_ms=5_000)
    node, now_ms = records.nodes[by], records.nodes[0].now_ms()
    records.nodes[2].skew_s = 7.0
    for options, expected in (
        ({}, now_ms + 5_000), ({"ttl_ms": 9}, now_ms + 9), ({"ttl_ms": 0}, 0), ({"ttl_ms": None}, now_ms + 5_000),
        ({"expires_at": MIN_EXPIRES_MS}, MIN_EXPIRES_MS), ({"expires_at": MAX_EXPIRES_MS}, MAX_EXPIRES_MS),
    ):  # fmt: skip
        node.call("put", "t", b"k", b"v", {"level": "one", **options})
        node.call("put_many", "t", [[b"l", b"v"]], {"level": "one", **options})
        assert [expiry_at(records, key) for key in (b"k", b"l")] == [expected] * 2
    rows = [[b"k", b"v", MIN_EXPIRES_MS], [b"l", b"v", MIN_EXPIRES_MS], [b"l", b"v"]]
    node.call("put_many", "t", rows, {"level": "one", "ttl_ms": 0})
    assert [expiry_at(records, key) for key in (b"k", b"l")] == [MIN_EXPIRES_MS, 0]
    node.call("delete", "t", b"k", {"level": "one"})
    assert expiry_at(records, b"k") == 0


@pytest.mark.parametrize("by", [0, 2])
def test_an_expired_record_reads_as_absent(by):
    """Gets, batches and pages omit it from its expiry on, and explain tells the expiry of a live one."""
    records = Records(3)
    records.make("t", firsts=1, holders=lambda _: records.nodes[:1])
    node, now_ms = records.nodes[by], records.nodes[0].now_ms()
    node.call("put", "t", b"a", b"1", {"level": "one", "ttl_ms": 2_000})
    node.call("put", "t", b"b", b"2", {"level": "one"})
    for live in (True, False):
        value = b"1" if live else None
        found, _, explained = node.call("get", "t", b"a", {"explain": True})
        assert (found, explained.get("expires_at")) == (value, now_ms + 2_000 if live else None)
        assert "expires_at" not in node.call("get", "t", b"b", {"explain": True})[2]
        assert node.call("get_many", "t", [b"a", b"b"])[0] == [value, b"2"]
        assert node.call("scan", "t")[0] == [*([[b"a", b"1"]] if live else []), [b"b", b"2"]]
        records.pass_s(2.0)
    assert [node.call("delete_range", "t", {"prefix": key}, {"level": "one"})[0] for key in (b"a", b"b")] == [0, 1]
    token = node.call("put", "t", b"c", b"3", {"level": "one", "ttl_ms": 1_000})
    for skew_s in (1.0, 0.0):
        node.skew_s = skew_s
        found = node.call("get", "t", b"c", {"token": token})[0]
        assert found is None, "a session that wrote it reads absence, also after the clock was set back"


def test_more_than_the_log_takes(records):
    """The error is TOO_LARGE, and no other host is asked, since all have the same limit."""
    one, two, _ = records.nodes
    one.refuses = LimitExceeded("a batch of 300,000 bytes", {"limit": 262_144})
    with pytest.raises(TooLarge, match="the write is too large for the node's log"):
        one.call("put", "t", b"k", b"v", {"level": "one"})
    assert two.asked == []


def test_the_limits_are_told():
    page = (Path(__file__).parents[4] / "docs" / "users" / "wire.md").read_text(encoding="utf-8")
    assert put.help is not None
    for text in (page, put.help):
        assert f"{MAX_KEY_BYTES:,} bytes" in text
        assert f"{MAX_VALUE_BYTES:,}" in text


def test_a_node_without_tables():
    records = Records(1)
    (node,) = records.nodes
    node.methods.routing._service.replicating = refuse
    with pytest.raises(
        UnknownDatabase, match="there is no table t; create it with `gossipkv table create t --kind hash`"
    ):
        node.call("put", "t", b"k", b"v")


def refuse(table):
    raise no_table(table)


@pytest.mark.parametrize("states", [*product((MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEAD), repeat=2)])
@pytest.mark.parametrize("reached", [(False, False), (True, False), (True, True)])
def test_writer_and_verdict_count_alike(states, reached):
    """A host that gossip calls dead confirms nothing, even if connected, so such writes are refused unsent."""
    records = Records(4)
    one, *others, entry = records.nodes
    records.make("t", firsts=1, holders=lambda _: [one, *others])
    for other, state, is_reached in zip(others, states, reached, strict=True):
        other.state, other.hangs = state, True
        if is_reached:
            reach(one, other)
    one.replicas.is_up = lambda uuid: records.node(uuid).state is not MemberState.DEAD
    route, (copy,) = one.methods.routing.route("t"), one.replicas.by_partition.values()
    shown = SimpleNamespace(replicas=one.replicas, digests=SimpleNamespace(differ={}))
    alive = {node.uuid for node in records.nodes if node.state is not MemberState.DEAD}
    why = TableReporter(one.deciding, one.methods.routing, {})._why_unwell(
        next(route.places()), shown, route.table, alive
    )
    can = sum(
        is_reached and other.state is not MemberState.DEAD for other, is_reached in zip(others, reached, strict=True)
    )
    assert (why is None) == (can > 0)
    for node in (one, entry):
        began, outcome = records.now, node.outcome("put", "t", b"k", b"v")
        is_sure = all(state is MemberState.DEAD for state in states)
        assert isinstance(outcome, Unavailable if is_sure else (Unavailable, Unknown))
        assert not is_sure or records.now == began
    dead = [other.asked for other in others if other.state is MemberState.DEAD]
    assert (copy.appended != copy.synced, *dead) == (False, *([] for _ in dead))
