"""Plain writes that the loop gathers get the answers and records that Python gives them one by one."""

from __future__ import annotations

import random

import msgpack
import pytest

from gossipkv.errors import LimitExceeded, Overloaded, StorageError
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.settings.tables import MAX_EXPIRES_MS, MAX_TTL_MS, MIN_EXPIRES_MS
from gossipkv.storage.engine.shell import Batch
from gossipkv.table.calm import HELD_S
from gossipkv.table.records.forward import LOOK_S
from gossipkv.table.session.token import TableSeen, decode, decode_body, encode
from tests.oracle import token as oracle
from tests.unit.table.gathering_nodes import GatheringNode
from tests.unit.table.record_nodes import CLUSTER, CONFIG, FOREIGN_KEYS, TOKEN_KEYS, Records

SEEDS = 12
BURSTS = 12
KEYS = [b"%s%02d" % (letter, number) for letter in (b"a", b"h", b"q") for number in range(3)]
TABLES = ("hashed", "ranges")


def made_node(hosts=3, *, gathers=True):
    records = Records(hosts)
    records.make("hashed", firsts=4, holders=lambda _: records.nodes)
    records.make("ranges", RANGE, firsts=[b"", b"g", b"p"], holders=lambda _: records.nodes, ttl_ms=3_600_000)
    records.make("timed", RANGE, firsts=[b""], holders=lambda _: records.nodes, time_key=TimeKey(0, 8, "ms"))
    return GatheringNode(records, records.nodes[0], gathers=gathers)


@pytest.fixture
def node():
    return made_node()


def replica_of(node, key, table="ranges"):
    id_ = node.records.tables()[table].id
    return node.node.replicas.by_partition[id_, node.node.methods.routing.route(table).place(key).partition]


def asked(node, method="put", key=b"a01", value=b"v", *, table="ranges", **options):
    return node.client.ask(method, table, key, *([] if method == "delete" else [value]), options)


def outcome(node, msgid):
    node.client.take()
    return node.client.outcome(msgid)


def counter_of(node, key):
    data = node.node.spaces[replica_of(node, key).space][RECORD + key]
    return record.decode(data).counter


def entries_of(node, token):
    return dict(clock.entries(decode(token, TOKEN_KEYS)[node.records.tables()["ranges"].id].clock))


# Both ways ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
def test_drawn_writes_get_the_same_answers_and_records_both_ways(seed):
    assert drawn(seed, BURSTS) > 0


def drawn(seed, bursts):
    """Compare both ways over drawn bursts; return how many rows were gathered."""
    draw = random.Random(seed)
    hosts = draw.choice((1, 2, 3))
    one, other = made_node(hosts), made_node(hosts, gathers=False)
    for _ in range(bursts):
        burst = [drawn_write(draw, one) for _ in range(draw.randrange(1, 9))]
        slots = draw.choice((0, 1, 2, 2, 2))
        leaves = draw.choice(KEYS) if draw.random() < 0.1 else None
        refuses = draw.choice((Overloaded("full"), LimitExceeded("long"), StorageError("bad")))
        for node in (one, other):
            node.node.refuses = refuses if hosts == 1 and leaves else None  # Others are chosen by lot.
            if leaves:  # Its loop hears of no further confirmation, so no write may wait: its token would keep the dot.
                node.records.pass_s(9.0)
                node.settle()
                replica_of(node, leaves).leave_fast_path()
            for request in burst:
                node.client.ask(*request)
            node.round()
            node.settle()
            for replica in [*node.node.replicas.by_partition.values()]:
                node.confirm(replica, hosts=slots)
            node.settle()
            node.records.pass_s(draw_s(seed, node.client.sent))
            node.settle()
            node.look()
        assert one.client.answers == other.client.answers
        assert timeless(one.node.spaces) == timeless(other.node.spaces)
        assert one.requests() == other.requests()
    for node in (one, other):
        node.records.pass_s(9.0)
        node.settle()
        assert (node.node.waiting.bytes, node.node.waiting.waiting) == (0, 0)
    assert one.client.answers == other.client.answers
    assert len(one.client.answers) == one.client.sent
    assert other.begun == []
    return sum(one.begun)


def timeless(spaces):
    """Return rows without hybrid times: writes to different replicas may take them in another order."""
    return {
        space: {key[:1] + key[9:] if key[0] == 2 else key: value[8:] for key, value in rows.items()}
        for space, rows in spaces.items()
    }


def draw_s(seed, number):
    return random.Random(seed << 20 | number).choice((0.001, 0.06, 1.2))


def drawn_write(draw, node):
    """Return a write: mostly plain."""
    table = draw.choice(TABLES * 9 + ("timed", "none"))
    kind = draw.choice(("put", "put", "delete", "put_many", "get"))
    options = drawn_options(draw, node, table)
    if kind == "put_many":
        keys = draw.choices(KEYS, k=draw.choice((0, 1, 2, 5)))
        keys = [key for key in keys if draw.random() < 0.5 or key[:1] == keys[0][:1]]
        return kind, table, [[drawn_text(draw, key), drawn_text(draw, drawn_value(draw))] for key in keys], *options
    key = draw.choice((draw.choice(KEYS), draw.choice(KEYS), draw.choice(KEYS), b"k" * 251, b"k" * 252, b"k" * 65536))
    values = [drawn_text(draw, drawn_value(draw))] if kind == "put" else []
    return kind, table, drawn_text(draw, key), *values, *options


def drawn_text(draw, data):
    return data.decode() if draw.random() < 0.3 else data


def drawn_value(draw):
    return b"v%d" % draw.randrange(99) * (20_000 if draw.random() < 0.03 else 1)


def drawn_options(draw, node, table):
    if draw.random() < 0.2:
        return []
    options = {}
    if draw.random() < 0.7:
        options["level"] = draw.choice(("one", "one", "majority", "all", None, "most"))
    if draw.random() < 0.4:
        options["timeout_ms"] = draw.choice((1, 50, 1000, 4000, None, 0, -1))
    if draw.random() < 0.3:
        options["token"] = drawn_token(draw, node, table)
    if draw.random() < 0.2:
        options["config"] = draw.choice((0, CONFIG, CONFIG, CONFIG - 1, CONFIG + 1, None))
    expiries = (0, 1, MIN_EXPIRES_MS - 1, MIN_EXPIRES_MS, MAX_TTL_MS, MAX_TTL_MS + 1, -1, None, MAX_EXPIRES_MS + 1)
    of_expiry = (("ttl_ms", expiries), ("expires_at", expiries))
    for name, values in (("wait_ms", (0, 5, None)), ("smear", (True, False)), ("odd", (1,)), *of_expiry):
        if draw.random() < 0.05:
            options[name] = draw.choice(values)
    return [options]


def drawn_token(draw, node, table):
    """Return a token of the client's session, or a made up one."""
    given = [msgpack.unpackb(data)[3] for data in node.client.answers.values()]
    given = [token for token in given if isinstance(token, bytes)][-6:]
    chance = draw.random()
    if chance < 0.5 and given:
        token = b"".join(draw.choices(given, k=draw.choice((1, 1, 2))))
        return token if draw.random() < 0.9 or not token else token[:-1] + bytes([token[-1] ^ 1])
    replica = replica_of(node, draw.choice(KEYS))
    entries = clock.of((origin, draw.randrange(count + 2)) for origin, count in clock.entries(replica.synced))
    seen = {replica.partition[0]: TableSeen(CONFIG + draw.choice((-1, 0, 0, 0, 1)), entries)}
    if draw.random() < 0.1:
        seen[bytes([9]) * 16] = TableSeen(CONFIG, b"")  # A dropped table.
    return encode(seen, TOKEN_KEYS if draw.random() < 0.9 else FOREIGN_KEYS)


# Each is answered once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "hosts"), [("one", 0), ("majority", 1), ("all", 2)])
def test_a_write_is_answered_once_its_level_is_reached(node, level, hosts):
    node.node.syncs = False
    msgid = asked(node, level=level)
    node.round()
    assert node.begun == [1]
    assert outcome(node, msgid) is None, "it is not synced"
    node.node.sync()
    node.round()
    for number in range(hosts):
        assert outcome(node, msgid) is None
        node.confirm(replica_of(node, b"a01"), hosts=number + 1)
        node.round()
    assert outcome(node, msgid) == "ok"
    assert entries_of(node, node.client.token(msgid)).get(replica_of(node, b"a01").assignment, 1) == 1
    assert node.node.waiting.bytes == 0


def test_each_write_waits_for_its_own_level(node):
    msgids = [asked(node, level=level) for level in ("one", "all", "majority")]
    node.round()
    node.settle()
    assert node.begun == [3]
    assert [outcome(node, msgid) for msgid in msgids] == ["ok", None, None]
    node.confirm(replica_of(node, b"a01"), hosts=1)
    node.settle()
    assert [outcome(node, msgid) for msgid in msgids] == ["ok", None, "ok"]


def test_each_write_has_its_own_deadline_and_is_applied(node):
    msgids = [asked(node, level="all", timeout_ms=number) for number in (300, 100, 200)]
    node.round()
    for waits in ([None, "UNKNOWN", None], [None, "UNKNOWN", "UNKNOWN"], ["UNKNOWN"] * 3):
        node.records.pass_s(0.1)
        node.settle()
        assert [outcome(node, msgid) for msgid in msgids] == waits
    assert counter_of(node, b"a01") == 3
    assert node.node.waiting.bytes == 0


def test_a_level_that_the_living_hosts_cannot_reach_is_not_waited_for(node):
    msgids = [asked(node, level=level, timeout_ms=30_000) for level in ("all", "majority")]
    node.round()
    dead = node.records.nodes[1].uuid
    node.node.replicas.is_up = lambda other: other != dead
    node.records.pass_s(LOOK_S)
    node.settle()
    assert [outcome(node, msgid) for msgid in msgids] == ["UNKNOWN", None]
    node.confirm(replica_of(node, b"a01"), hosts=1)
    node.settle()
    assert outcome(node, msgids[1]) == "ok"
    assert node.node.waiting.bytes == 0


@pytest.mark.parametrize("option", ["ttl_ms", "expires_at"])
def test_a_delete_has_no_expiry_not_even_nil(node, option):
    msgid = asked(node, "delete", **{option: None})
    node.settle()
    assert outcome(node, msgid) == "BAD_REQUEST"


@pytest.mark.parametrize("error", [Overloaded("full"), LimitExceeded("long"), StorageError("bad")])
def test_a_refused_batch_answers_each_of_its_writes(error):
    node = made_node(1)
    node.node.refuses = error
    msgids = [asked(node, level="one"), asked(node, key=b"h01", level="one")]
    node.round()
    node.settle()
    assert node.begun == []
    assert {outcome(node, msgid) for msgid in msgids} <= {"OVERLOADED", "TOO_LARGE", "UNAVAILABLE"}
    assert node.node.waiting.bytes == 0
    assert RECORD + b"a01" not in node.node.spaces[replica_of(node, b"a01").space]


def test_writes_of_a_replica_that_leaves_before_they_begin_are_answered_one_by_one(node):
    node.node.is_writing = True
    msgid = asked(node, level="one")
    node.round()
    replica_of(node, b"a01").leave_fast_path()
    replica_of(node, b"a01").is_frozen = True
    node.records.pass_s(2 * HELD_S)
    node.settle()
    assert node.begun == []
    assert outcome(node, msgid) == "ok", "another host has taken it"
    assert node.records.nodes[1].asked + node.records.nodes[2].asked == ["table_write"]
    assert RECORD + b"a01" not in node.node.spaces[replica_of(node, b"a01").space]


def test_a_replica_that_leaves_after_the_begin_answers_its_writes(node):
    msgid = asked(node, level="majority")
    node.round()
    replica_of(node, b"a01").leave_fast_path()
    node.settle()
    node.confirm(replica_of(node, b"a01"))
    node.settle()
    assert outcome(node, msgid) == "ok"


def test_a_client_that_is_gone_costs_nothing(node):
    asked(node, level="majority")
    node.round()
    node.client.stream.is_broken = True
    node.round()
    node.settle()
    node.confirm(replica_of(node, b"a01"))
    node.settle()
    assert node.client.answers == {}
    assert (node.node.waiting.bytes, node.loop_core.counters()["in_flight"]) == (0, 0)


def test_held_writes_of_a_client_that_is_gone_are_forgotten(node):
    node.node.is_writing = True
    asked(node, level="one")
    node.round()
    node.client.stream.is_broken = True
    node.round()
    replica_of(node, b"a01").leave_fast_path()
    node.store.on_written()
    node.settle()
    assert node.begun == []
    assert RECORD + b"a01" not in node.node.spaces[replica_of(node, b"a01").space]


def test_a_closed_loop_drops_what_it_holds(node):
    node.node.is_writing = True
    asked(node, level="one")
    node.round()
    node.loop.close()
    node.records.pass_s(2 * HELD_S)
    assert node.begun == []
    assert node.node.waiting.bytes == 0


# Held writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["group", "time"])
def test_held_writes_are_begun_once_when_the_group_ends_or_after_a_while(node, ends):
    node.node.is_writing = True
    msgids = [asked(node, level="one")]
    node.round()
    msgids.append(asked(node, level="one"))
    node.round()
    assert node.begun == []
    if ends == "group":
        node.node.is_writing = False
        node.store.on_written()
    node.records.pass_s(2 * HELD_S)
    node.store.on_written()
    node.settle()
    assert node.begun == [2]
    assert [outcome(node, msgid) for msgid in msgids] == ["ok", "ok"]
    assert counter_of(node, b"a01") == 2


def test_no_held_write_is_lost_if_its_replica_leaves_and_comes_back(node):
    node.node.is_writing = True
    msgids = [asked(node, level="one")]
    node.round()
    replica_of(node, b"a01").leave_fast_path()
    node.look()
    msgids.append(asked(node, key=b"a02", level="one"))
    node.round()
    node.store.on_written()
    node.settle()
    assert [outcome(node, msgid) for msgid in msgids] == ["ok", "ok"]
    assert [counter_of(node, key) for key in (b"a01", b"a02")] == [1, 2]


def test_held_writes_stay_when_their_replica_comes_back_to_the_fast_path(node):
    replica = replica_of(node, b"a01")
    node.node.is_writing = True
    first = asked(node, key=b"a01", level="one")
    node.round()
    replica.leave_fast_path()
    node.calm.look()
    second = asked(node, key=b"a02", level="one")
    node.round()
    node.node.is_writing = False
    node.store.on_written()
    node.settle()
    assert [outcome(node, msgid) for msgid in (first, second)] == ["ok", "ok"]
    assert {RECORD + b"a01", RECORD + b"a02"} <= node.node.spaces[replica.space].keys()
    assert len({node.client.token(first), node.client.token(second)}) == 2


def test_held_writes_of_a_dropped_replica_are_answered_one_by_one_with_all_behind_them(node):
    dropped = replica_of(node, b"h02")
    node.node.is_writing = True
    before, gone, behind = (asked(node, key=key, level="one") for key in (b"a01", b"h02", b"q03"))
    node.round()
    node.node.replicas.drop(dropped, Batch())
    node.store.on_written()
    node.settle()
    assert [outcome(node, msgid) for msgid in (before, gone, behind)] == ["ok", "ok", "ok"]
    assert node.begun == [1], "after a split, the last one might be to a key of the dropped replica"
    assert node.records.nodes[1].asked + node.records.nodes[2].asked == ["table_write"]
    assert not node.handlers.errors


# Order ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [True, False])
def test_writes_to_a_key_take_counters_in_the_order_in_which_they_came(node, holds):
    """Python begins the other write after the round, so the plain one behind it is not begun in the round either."""
    node.node.is_writing = holds
    replica = replica_of(node, b"a01")
    plain = [asked(node, value=b"1", level="one"), asked(node, value=b"2", level="one")]
    rows = node.client.ask("put_many", "ranges", [[b"a01", b"3"], [b"a02", b"4"]], {"level": "one"})
    other = node.client.ask("put_many", "ranges", [[b"a01", b"5"], [b"a01", b"6"]], {"level": "one"})
    last = asked(node, value=b"7", level="one")
    node.round()
    assert node.begun == [4], "the other write begins them, and Python answers the last"
    node.store.on_written()
    node.settle()
    tokens = [node.client.token(msgid) for msgid in (*plain, rows, other, last)]
    assert [entries_of(node, token)[replica.assignment] for token in tokens] == [1, 2, 4, 5, 6]
    assert record.decode(node.node.spaces[replica.space][RECORD + b"a01"]).value == b"7"


def test_so_many_bytes_are_gathered_at_most(node):
    node.node.is_writing = True
    for _ in range(12):
        asked(node, value=b"v" * 60_000, level="one")
    node.round()
    assert node.begun == [5, 5], "the last two are held"


# Tokens and users -----------------------------------------------------------------------------------------------------


def test_the_token_has_the_clients_entries_and_the_dot(node):
    first = asked(node, key=b"h01", level="one")
    node.round()
    node.settle()
    msgid = asked(node, level="one", token=node.client.token(first))
    node.round()
    node.settle()
    one, other = replica_of(node, b"a01"), replica_of(node, b"h01")
    expected = {one.partition[0]: (CONFIG, {one.assignment: 1, other.assignment: 1})}
    assert node.client.token(msgid) == oracle.encoded(expected, CLUSTER)


@pytest.mark.parametrize("newer", [0, 1])
def test_a_record_keeps_the_map_of_its_session(node, newer):
    replica = replica_of(node, b"a01")
    node.node.goes_by(replica.partition[0], CONFIG + newer)
    token = encode({replica.partition[0]: TableSeen(CONFIG + newer, b"")}, TOKEN_KEYS)
    msgid = asked(node, level="one", token=token)
    node.round()
    node.settle()
    assert node.begun == [1] * (1 - newer)
    assert outcome(node, msgid) == "ok"
    kept = record.decode(node.node.spaces[replica.space][RECORD + b"a01"]).dependencies
    assert decode_body(kept) == {replica.partition[0]: TableSeen(CONFIG + newer, b"")}


def test_only_a_user_with_the_right_writes(node):
    node.forbid("ranges")
    refused, taken = asked(node, level="one"), asked(node, table="hashed", level="one")
    node.round()
    node.settle()
    assert node.begun == [1]
    assert (outcome(node, refused), outcome(node, taken)) == ("UNAUTHORIZED", "ok")
    assert RECORD + b"a01" not in node.node.spaces[replica_of(node, b"a01").space]
    node.forbid()
    again = asked(node, level="one")
    node.round()
    node.settle()
    assert outcome(node, again) == "ok"
    assert node.begun == [1, 1]
