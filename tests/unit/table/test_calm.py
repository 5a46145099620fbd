"""Calm replicas: the serving loop answers their gets as Python does, byte by byte, or leaves them to Python."""

from __future__ import annotations

import random

import msgpack
import pytest

from gossipkv.placement.partition import LEFT_OUT
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.record import MAX_TOMBSTONES
from gossipkv.replication.replica.replica import AssignedReplica, AssignmentRole, PartitionRules
from gossipkv.storage.engine._engine import Batch, Memtable
from gossipkv.table.calm import is_calm
from gossipkv.table.session.token import TableSeen, decode, encode, encode_body
from gossipkv.wire import rpc
from tests.oracle import token as oracle
from tests.unit.table.calm_nodes import CalmNode, made_node, put
from tests.unit.table.record_nodes import CLUSTER, CONFIG, FOREIGN_KEYS, MEMTABLE_BYTES, TOKEN_KEYS, Records

SEEDS = 40
REQUESTS = 30
KEYS = [b"%s%02d" % (letter, number) for letter in (b"a", b"h", b"q") for number in range(8)] + [b"", b"k" * 251]
TABLES = ("hashed", "ranges")


@pytest.fixture
def calm():
    return made_node(3)


def confirm(calm, replica, at):
    """Let all other hosts confirm a clock of a replica."""
    for host in replica.hosts:
        if host.assignment != replica.assignment:
            theirs = AssignedReplica(*host)
            calm.node.hears(replica, _Status(theirs.assignment, replica.config), at)


class _Status:
    def __init__(self, assignment, config):
        self.assignment, self.config = assignment, config


def replicas_of(calm, table):
    found = [copy for copy in calm.node.replicas.by_partition.values() if copy.partition[0] == table_id(calm, table)]
    return sorted(found, key=lambda copy: copy.partition)


def table_id(calm, table):
    return calm.records.tables()[table].id


def replica_of(calm, table, key):
    place = calm.node.methods.routing.route(table).place(key)
    return calm.node.replicas.by_partition[table_id(calm, table), place.partition]


# Answers in the loop --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_gets_of_values_absent_keys_and_tombstones_are_answered_in_the_loop(calm, table):
    put(calm, table, b"a01", b"one")
    put(calm, table, b"q01", b"two")
    calm.node.call("delete", table, b"q01", {"level": "one"})
    calm.look()
    for key in (b"a01", b"q01", b"h07"):
        assert calm.is_alike("get", table, key)
        assert calm.is_alike("get", table, key, {"explain": True})
    assert calm.is_alike("get_many", table, [b"a01", b"h07", b"q01", b"a01"])


def test_a_settled_record_has_the_token_without_its_dot(calm):
    put(calm, "hashed", b"a01", b"one")
    replica = replica_of(calm, "hashed", b"a01")
    dot, left_out = {replica.assignment: 1}, {LEFT_OUT: LEFT_OUT - CONFIG}
    assert calm.token_of("get", "hashed", b"a01") == oracle.encoded({replica.partition[0]: (CONFIG, dot)}, CLUSTER)
    assert calm.is_alike("get", "hashed", b"a01")
    confirm(calm, replica, replica.synced)
    assert calm.token_of("get", "hashed", b"a01") == oracle.encoded({replica.partition[0]: (CONFIG, left_out)}, CLUSTER)
    assert calm.is_alike("get", "hashed", b"a01")
    put(calm, "hashed", b"a01", b"two")
    assert calm.is_alike("get", "hashed", b"a01")


def test_gets_by_resp_are_answered_in_the_loop(calm):
    put(calm, "hashed", b"a01", b"one")
    driver = calm.peer.driver
    handle = driver.open(1, listener=1)
    answer, hand_offs = driver.receive(handle, b"GET hashed:a01\r\nGET hashed:a02\r\nMGET hashed:a01 hashed:q01\r\n", 1)
    assert (answer, hand_offs) == (b"$3\r\none\r\n$-1\r\n*2\r\n$3\r\none\r\n$-1\r\n", [])
    replica_of(calm, "hashed", b"a01").leave_fast_path()
    answer, hand_offs = driver.receive(handle, b"GET hashed:a01\r\n", 1)
    assert (answer, len(hand_offs)) == (b"", 1)
    driver.close(handle)


def test_gets_of_one_burst_are_answered_each_in_its_way(calm):
    """Calm and other replicas, and a dataset's name that is none, in one burst of gathered gets."""
    put(calm, "hashed", b"a01", b"one")
    replica_of(calm, "ranges", b"a01").leave_fast_path()
    asked = [("hashed", b"a01"), ("ranges", b"a01"), ("none", b"a01"), ("ranges", b"q01"), ("hashed", b"a01")] * 13
    frames = b"".join(rpc.request(number, "get", [*params]) for number, params in enumerate(asked))
    hand_offs = calm.peer.send(frames)
    calm.peer.take()
    answered = {number: result for _, number, _, result in calm.peer.answers()}
    assert {number for _, number, _, _ in hand_offs} == {
        number for number, params in enumerate(asked) if params in {("ranges", b"a01"), ("none", b"a01")}
    }
    assert {asked[number][0]: result[0] for number, result in answered.items()} == {"hashed": b"one", "ranges": None}
    assert len(answered) + len(hand_offs) == len(asked)


def scanned(calm, table, **options):
    """Return the keys of each page of a scan, all answered in the loop as by Python."""
    pages, cursor = [], None
    while True:
        page = {**options, "cursor": cursor}
        assert calm.is_alike("scan", table, page), page
        rows, cursor, _ = calm.node.call("scan", table, page)
        pages.append([key for key, _ in rows])
        if cursor is None:
            return pages


def test_pages_are_answered_in_the_loop(calm):
    for key in (b"a01", b"h02", b"q03", b"a04"):
        put(calm, "hashed", key, b"value of " + key)
    calm.node.call("delete", "hashed", b"q03", {"level": "one"})
    calm.look()
    assert scanned(calm, "hashed") == [[b"a01", b"a04", b"h02"]]
    assert scanned(calm, "hashed", limit=2) == [[b"a01", b"a04"], [b"h02"]]
    assert scanned(calm, "hashed", limit=1, reverse=True) == [[b"h02"], [b"a04"], [b"a01"]]
    assert scanned(calm, "hashed", prefix=b"a", limit=1) == [[b"a01"], [b"a04"]]
    assert scanned(calm, "hashed", start=b"a02", end=b"h02") == [[b"a04"]]


def test_a_page_of_many_records_has_a_longer_head(calm):
    for number in range(40):
        put(calm, "hashed", b"%02d" % number, b"v")
    assert [*map(len, scanned(calm, "hashed", limit=16))] == [16, 16, 8]
    assert [*map(len, scanned(calm, "hashed", limit=15, reverse=True))] == [15, 15, 10]


def test_a_page_of_a_range_is_answered_in_the_loop(calm):
    for key in (b"a01", b"a02", b"h01", b"h02"):
        put(calm, "ranges", key, b"v")
    assert scanned(calm, "ranges", end=b"g", limit=1) == [[b"a01"], [b"a02"]]
    assert scanned(calm, "ranges", start=b"g", end=b"p", reverse=True) == [[b"h02", b"h01"]]
    assert scanned(calm, "ranges", start=b"p") == [[]]
    assert scanned(calm, "ranges", start=b"h", end=b"k", limit=2, reverse=True) == [[b"h02", b"h01"]]
    assert calm.is_alike("scan", "ranges", {"limit": 2}), "the limit is reached where the range ends"
    assert calm.is_alike("scan", "ranges", {"limit": 2, "start": b"", "end": b"p", "reverse": True})
    for options in ({}, {"limit": 3}, {"reverse": True}):
        assert calm.from_core("scan", "ranges", options) is None, "the page goes on in the next range"


def test_a_page_shows_what_its_tombstones_show(calm):
    token = calm.node.call("delete", "hashed", b"a01", {"level": "one"})
    calm.look()
    assert calm.is_alike("scan", "hashed")
    _, _, error, (rows, cursor, seen) = msgpack.unpackb(calm.from_core("scan", "hashed"))
    assert (error, rows, cursor) == (None, [], None)
    table, replica = table_id(calm, "hashed"), replica_of(calm, "hashed", b"a01")
    (entry,) = clock.entries(decode(token, TOKEN_KEYS)[table].clock)
    assert entry in clock.entries(decode(seen, TOKEN_KEYS)[table].clock)
    confirm(calm, replica, replica.synced)
    assert calm.is_alike("scan", "hashed", {"token": token})


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_ends_after_many_tombstones(calm, reverse):
    replica = replica_of(calm, "hashed", b"a01")
    calm.node.call("delete", "hashed", b"a01", {"level": "one"})
    data = record.encode(1, replica.assignment, 1, record.DELETED, b"", b"")
    for number in range(MAX_TOMBSTONES + 3):
        calm.node.spaces[replica.space][RECORD + b"a%05d" % number] = data
    calm.look()
    assert scanned(calm, "hashed", reverse=reverse) == [[], []]


def test_a_page_ends_when_it_has_passed_many_deleted_keys(calm):
    """It would hold up the loop, and the thread that changes records; the keys are those of several shards."""
    put(calm, "hashed", b"a01", b"v")
    spaces = [replica_of(calm, "hashed", key).space for key in (b"a01", b"a02", b"a03", b"a04")]
    assert len({*spaces}) > 1
    memtable, batch = Memtable(MEMTABLE_BYTES), Batch()
    for number in range(9000):
        batch.delete(spaces[number % len(spaces)], RECORD + b"%05d" % number)
    calm.gate.apply(memtable, batch)
    calm.gate.show([memtable], [])
    rows, cursor, _ = msgpack.unpackb(calm.from_core("scan", "hashed"))[3]
    assert rows == []
    assert b"00000" < msgpack.unpackb(cursor)[0] < b"05000"


def test_a_page_that_is_not_plain_is_left_to_python(calm):
    put(calm, "hashed", b"a01", b"v")
    cursor = msgpack.packb([b"a", b""])
    assert calm.is_alike("scan", "hashed", {"cursor": cursor})
    assert calm.is_alike("scan", "hashed", {"limit": 1024, "start": None, "local": True, "version": None})
    for options in (
        {"limit": 0}, {"version": "v"}, {"min_version": "v"}, {"explain": True}, {"cursor": cursor + b"0"},
        {"cursor": msgpack.packb([b"a", b"made up"])}, {"start": b"b", "end": b"b"}, {"config": CONFIG + 1}, {"odd": 1},
        {"cursor": msgpack.packb([b"a"])}, {"cursor": msgpack.packb(["a", b""])},
    ):  # fmt: skip
        assert calm.from_core("scan", "hashed", options) is None, options
    replica_of(calm, "hashed", b"a01").leave_fast_path()
    assert calm.from_core("scan", "hashed") is None


def test_a_page_of_shards_with_other_hosts_is_left_to_python():
    records = Records(3)
    one, two, three = records.nodes
    records.make("apart", firsts=4, holders=lambda number: [one, two if number else three])
    calm = CalmNode(records, one)
    assert calm.is_alike("get", "apart", b"a01")
    assert calm.from_core("scan", "apart") is None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_drawn_requests_get_the_same_bytes_from_both(seed):
    assert drawn(seed, REQUESTS) > 0


def drawn(seed, requests):
    """Compare both ways over drawn states and requests; return how many the loop answered."""
    draw = random.Random(seed)
    calm = made_node(draw.choice((1, 2, 3)))
    tokens, cursors, answered = [b""], [], 0
    for _ in range(requests):
        table = draw.choice(TABLES)
        change_state(draw, calm, table, tokens)
        calm.look()
        options = drawn_options(draw, calm, table, tokens)
        chance = draw.random()
        if chance < 0.4:
            is_answered = calm.is_alike("get", table, draw.choice(KEYS), *options)
        elif chance < 0.7:
            page = {name: value for option in options for name, value in option.items()} | drawn_page(draw, cursors)
            is_answered = calm.is_alike("scan", table, page)
            found = calm.node.outcome("scan", table, {name: page[name] for name in page if name != "config"})
            if isinstance(found, list) and found[1] is not None:
                cursors[:] = [*cursors[-3:], found[1]]
        else:
            count = draw.choice((0, 1, 3, 40))
            is_answered = calm.is_alike("get_many", table, draw.choices(KEYS, k=count), *options)
        answered += is_answered
    return answered


def change_state(draw, calm, table, tokens):
    """Write, hear of other hosts, or restart a replica's part on the fast path."""
    key, chance = draw.choice(KEYS[:-2]), draw.random()
    replica = replica_of(calm, table, key)
    if chance < 0.4:
        token = draw.choice(tokens) if draw.random() < 0.2 else b""
        tokens.append(
            calm.node.outcome("put", table, key, b"v%d" % draw.randrange(99), {"token": token, "level": "one"})
        )
        tokens[:] = [token for token in tokens if isinstance(token, bytes)][-4:]
    elif chance < 0.5:
        calm.node.call("delete", table, key, {"level": "one"})
    elif chance < 0.7:
        reached = [(origin, draw.randrange(count + 1)) for origin, count in clock.entries(replica.synced)]
        confirm(calm, replica, replica.synced if draw.random() < 0.6 else clock.of(reached))
    elif chance < 0.75:
        data = record.encode(1, draw.choice((77, replica.assignment)), draw.randrange(1, 9), record.PUT, b"", b"old")
        calm.node.spaces[replica.space][RECORD + key] = data
    elif chance < 0.8:
        replica.taken_config = replica.config - 1
        replica.leave_fast_path()
    elif chance < 0.83:
        calm.calm.note_reports(table_id(calm, table))


def drawn_options(draw, calm, table, tokens):
    """Return the options of a request, if any: mostly sound."""
    if draw.random() < 0.4:
        return []
    options = {}
    if draw.random() < 0.6:
        options["token"] = drawn_token(draw, calm, table, tokens)
    if draw.random() < 0.2:
        options["config"] = draw.choice((0, CONFIG, CONFIG, CONFIG - 1, CONFIG + 1))
    for name, values in (("wait_ms", (0, 5, None, -1)), ("timeout_ms", (100, None)), ("local", (True, False, None))):
        if draw.random() < 0.2:
            options[name] = draw.choice(values)
    if draw.random() < 0.05:
        options["odd"] = 1
    return [options]


def drawn_page(draw, cursors):
    """Return the options of a scan's page."""
    page = {"reverse": draw.choice((True, False, None))} if draw.random() < 0.6 else {}
    for name in ("start", "end", "prefix"):
        if draw.random() < 0.3:
            page[name] = draw.choice([draw.choice(KEYS), draw.choice(KEYS)[:1], None])
    if draw.random() < 0.7:
        page["limit"] = draw.choice((1, 2, 5, 9, 40, None))
    if cursors and draw.random() < 0.5:
        page["cursor"] = draw.choice(cursors)
    return page


def drawn_token(draw, calm, table, tokens):
    """Return a token: of a client's session, or made up, and seldom one that is refused."""
    chance = draw.random()
    if chance < 0.4:
        return draw.choice(tokens)
    replica = draw.choice(replicas_of(calm, table))
    entries = [(origin, draw.randrange(count + 2)) for origin, count in clock.entries(replica.synced)]
    entries = draw.sample(entries, draw.randrange(len(entries) + 1))
    if draw.random() < 0.3:
        entries.append((LEFT_OUT, LEFT_OUT - CONFIG))
    if draw.random() < 0.3:
        other = draw.choice(replicas_of(calm, table))
        entries = [*dict([*entries, (other.assignment, draw.randrange(4))]).items()]
    seen = {table_id(calm, table): TableSeen(CONFIG + draw.choice((-1, 0, 0, 0, 1)), clock.of(entries))}
    if draw.random() < 0.1:
        seen[bytes([9]) * 16] = TableSeen(CONFIG, b"")
    token = encode(seen, TOKEN_KEYS if draw.random() < 0.9 else FOREIGN_KEYS)
    if draw.random() < 0.1:
        return token[:-1] + bytes([token[-1] ^ 1])
    return token * 2 if draw.random() < 0.1 else token


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_a_covered_token_is_answered_with_what_it_and_the_record_show(calm):
    token = put(calm, "hashed", b"a01", b"one")
    assert calm.is_alike("get", "hashed", b"a01", {"token": token})
    assert calm.is_alike("get", "hashed", b"a01", {"token": token, "wait_ms": 5})
    replica = replica_of(calm, "hashed", b"a01")
    confirm(calm, replica, replica.synced)
    answer = calm.node.call("get", "hashed", b"a01", {"token": token})
    assert calm.is_alike("get", "hashed", b"a01", {"token": token})
    assert calm.is_alike("get", "hashed", b"a01", {"token": answer[1]})
    assert calm.is_alike("get_many", "hashed", [b"a01", b"q02"], {"token": answer[1]})


def test_a_record_is_never_shown_with_an_older_config_than_that_of_its_acceptance(calm):
    """Further loops read a synced record a moment before its replica hears of the sync."""
    replica = replica_of(calm, "hashed", b"a01")
    replica.taken_config = CONFIG - 1
    replica.leave_fast_path()
    calm.look()
    table = table_id(calm, "hashed")
    assert decode(calm.token_of("get", "hashed", b"a01"), TOKEN_KEYS)[table].config == CONFIG - 1
    calm.node.syncs = False
    calm.node.begin("put", "hashed", b"a01", b"one", {"level": "one"})
    assert decode(calm.token_of("get", "hashed", b"a01"), TOKEN_KEYS)[table].config == CONFIG


def test_what_a_session_has_seen_of_other_partitions_does_not_matter_to_a_get(calm):
    """Its answer still has that, until it is settled; a batch compares all."""
    replica, other = replica_of(calm, "hashed", b"a01"), replica_of(calm, "hashed", b"q02")
    assert replica is not other
    tokens = [put(calm, "hashed", key, b"one") for key in (b"a01", b"q02")]
    table = table_id(calm, "hashed")
    ahead = encode({table: TableSeen(CONFIG, clock.of([(other.assignment, 9)]))}, TOKEN_KEYS)
    for token in (tokens[1], b"".join(tokens), ahead, tokens[0] + ahead, tokens[0] * 3):
        assert calm.is_alike("get", "hashed", b"a01", {"token": token})
    assert calm.from_core("get", "hashed", b"q02", {"token": ahead}) is None
    confirm(calm, other, other.synced)
    assert calm.is_alike("get", "hashed", b"a01", {"token": b"".join(tokens)})


@pytest.mark.parametrize("change", [
    "uncovered", "config", "other table", "other cluster", "damaged", "cut",
    "two, the second cut", "of no replica here",
])  # fmt: skip
def test_any_other_token_is_left_to_python(calm, change):
    replica = replica_of(calm, "hashed", b"a01")
    table, seen = table_id(calm, "hashed"), TableSeen(CONFIG, clock.of([(replica.assignment, 0)]))
    good = encode({table: seen}, TOKEN_KEYS)
    assert calm.is_alike("get", "hashed", b"a01", {"token": good})
    token = {
        "uncovered": encode({table: TableSeen(CONFIG, clock.of([(replica.assignment, 1)]))}, TOKEN_KEYS),
        "config": encode({table: TableSeen(CONFIG + 1, b"")}, TOKEN_KEYS),
        "other table": encode({table: seen, bytes([9]) * 16: seen}, TOKEN_KEYS),
        "other cluster": encode({table: seen}, FOREIGN_KEYS),
        "damaged": good[:-1] + bytes([good[-1] ^ 1]),
        "cut": good[:-1],
        "two, the second cut": good + good[:-1],
        "of no replica here": encode({table: TableSeen(CONFIG, clock.of([(1 << 60, 1)]))}, TOKEN_KEYS),
    }[change]
    assert calm.from_core("get", "hashed", b"a01", {"token": token}) is None
    assert calm.from_core("get_many", "hashed", [b"a01"], {"token": token}) is None


def test_a_record_with_dependencies_is_left_to_python(calm):
    token = put(calm, "ranges", b"a01", b"one")
    put(calm, "hashed", b"a01", b"two", token=token)
    assert calm.from_core("get", "hashed", b"a01") is None
    assert calm.from_core("get_many", "hashed", [b"a01"]) is None
    assert calm.from_core("scan", "hashed") is None
    assert len(decode(calm.node.call("get", "hashed", b"a01")[1], TOKEN_KEYS)) == 2


def test_a_record_of_a_session_with_its_own_table_is_answered_in_the_loop(calm):
    """The record keeps the map of the session, which its readers see from then on."""
    calm.node.goes_by(table_id(calm, "hashed"), CONFIG)
    token = encode({table_id(calm, "hashed"): TableSeen(CONFIG, b"")}, TOKEN_KEYS)
    put(calm, "hashed", b"a01", b"one", token=token)
    replica = replica_of(calm, "hashed", b"a01")
    assert record.decode(calm.node.spaces[replica.space][RECORD + b"a01"]).dependencies
    assert calm.is_alike("get", "hashed", b"a01")
    assert calm.is_alike("get_many", "hashed", [b"a01", b"h01"])
    confirm(calm, replica, replica.synced)
    assert calm.is_alike("get", "hashed", b"a01")


@pytest.mark.parametrize("other", [False, True])
def test_the_map_of_a_record_s_session_is_newer_than_the_replica_s(calm, other):
    """The loop answers with that map, and leaves a map of another table to Python."""
    replica = replica_of(calm, "hashed", b"a01")
    depends = encode_body({table_id(calm, "ranges" if other else "hashed"): TableSeen(CONFIG + 5, b"")})
    data = record.encode(1, replica.assignment, 1, record.PUT, depends, b"one")
    calm.node.spaces[replica.space][RECORD + b"a01"] = data
    calm.look()
    assert calm.is_alike("get", "hashed", b"a01") is not other


@pytest.mark.parametrize("options", [{"odd": 1}, {"version": "v"}, {"config": CONFIG + 1}, {"config": CONFIG - 1}, []])
def test_odd_options_are_left_to_python(calm, options):
    assert calm.from_core("get", "hashed", b"a01", {"config": CONFIG, "timeout_ms": None}) is not None
    assert calm.from_core("get", "hashed", b"a01", options) is None


def test_a_long_key_is_left_to_python(calm):
    assert calm.from_core("get", "hashed", b"k" * 251) is not None
    assert calm.from_core("get", "hashed", b"k" * 252) is None


def test_a_record_of_an_ended_origin_is_left_to_python_once_settled_entries_were_reported(calm):
    replica = replica_of(calm, "hashed", b"a01")
    data = record.encode(1, 77, 5, record.PUT, b"", b"old")
    calm.node.spaces[replica.space][RECORD + b"a01"] = data
    calm.look()
    assert calm.is_alike("get", "hashed", b"a01")
    calm.reported.add(table_id(calm, "hashed"))
    calm.calm.note_reports(table_id(calm, "hashed"))
    assert calm.from_core("get", "hashed", b"a01") is None
    calm.calm.end()
    calm.look()
    assert calm.from_core("get", "hashed", b"a01") is None, "the report was before the table was served"
    assert calm.from_core("get", "hashed", b"a02") is not None


# Leaving the fast path ------------------------------------------------------------------------------------------------


LOADING = AssignmentRole(b"n", 0, counts=True, available=False)
NOT_CALM = {
    "joining": lambda _, replica: setattr(replica, "joining", object()),
    "synced joining": lambda _, replica: setattr(replica, "synced_joining", object()),
    "frozen": lambda _, replica: setattr(replica, "is_frozen", True),
    "split": lambda _, replica: setattr(replica, "lineage", replica.lineage._replace(children=(replica,))),
    "former": lambda _, replica: setattr(replica, "rules", PartitionRules(former=(5,))),
    "ends": lambda _, replica: setattr(replica, "rules", PartitionRules(ends=((5, 1),))),
    "loads": lambda _, replica: setattr(replica, "rules", PartitionRules(loads=True)),
    "departs": lambda _, replica: setattr(replica, "rules", PartitionRules(has_departed=True)),
    "departed": lambda node, replica: node.departed.update({replica: None}),
    "bulk load": lambda node, replica: node.replicas.loader.loads.update({replica: None}),
    "unplaced": lambda node, replica: node.replicas.loader.unplaced.update({replica: None}),
    "dropped": lambda node, replica: node.replicas.acks.pop(replica),
    "a host that loads": lambda _, replica: setattr(replica, "roles", (LOADING, *replica.roles[1:])),
    "a move": lambda _, replica: setattr(replica, "roles", (replica.roles[1], *replica.roles[1:])),
    "no placement": lambda _, replica: setattr(replica, "roles", ()),
    "a clock of others": lambda _, replica: setattr(replica, "named", (*replica.named, 1 << 40)),
}


@pytest.mark.parametrize("why", NOT_CALM)
def test_a_replica_that_is_not_calm_is_left_to_python(calm, why):
    replica = replica_of(calm, "hashed", b"a01")
    assert is_calm(calm.node, replica)
    replica.leave_fast_path()
    NOT_CALM[why](calm.node, replica)
    assert not is_calm(calm.node, replica)
    calm.look()
    assert calm.from_core("get", "hashed", b"a01") is None


def test_a_replica_with_more_hosts_than_are_counted_is_never_calm():
    records = Records(9)
    records.make("hashed", firsts=1, holders=lambda _: records.nodes)
    calm = CalmNode(records, records.nodes[0])
    assert calm.from_core("get", "hashed", b"a01") is None


def test_a_replica_leaves_at_once_and_comes_back_after_a_look(calm):
    replica = replica_of(calm, "hashed", b"a01")
    for leave in (
        lambda: replica.adopts(replica.config, replica.hosts, replace_rules(replica)),
        replica.leave_fast_path,
    ):
        assert calm.from_core("get", "hashed", b"a01") is not None
        leave()
        assert calm.from_core("get", "hashed", b"a01") is None
        calm.look()


def replace_rules(replica):
    return replica.rules._replace(slots=replica.rules.slots)


def test_a_departing_or_dropped_replica_leaves(calm):
    one, other = replica_of(calm, "hashed", b"a01"), replica_of(calm, "ranges", b"a01")
    one.departs()
    assert calm.from_core("get", "hashed", b"a01") is None
    assert calm.from_core("get", "ranges", b"a01") is not None
    calm.node.replicas.forget(other, None)
    assert calm.from_core("get", "ranges", b"a01") is None
    calm.look()
    assert calm.from_core("get", "ranges", b"a01") is None
    assert calm.from_core("get", "ranges", b"h01") is not None


def test_a_table_stops_while_its_map_is_newer_than_its_replicas(calm):
    calm.records.renew("hashed", CONFIG + 1)
    calm.calm.map_changed(table_id(calm, "hashed"))
    calm.look()
    assert calm.from_core("get", "hashed", b"a01") is None
    assert calm.from_core("get", "ranges", b"a01") is not None
    calm.records.adopt("hashed")
    calm.look()
    assert calm.is_alike("get", "hashed", b"a01")


def test_a_table_comes_back_after_a_change_of_its_register_that_leaves_the_map_as_it_is(calm):
    """So it is when the register gets other acceptors."""
    calm.calm.map_changed(table_id(calm, "hashed"))
    assert calm.from_core("get", "hashed", b"a01") is None
    calm.look()
    assert calm.is_alike("get", "hashed", b"a01")


def test_a_dropped_table_stops_at_once(calm):
    calm.records.drop("hashed")
    calm.calm.map_changed(CLUSTER)
    assert calm.from_core("get", "hashed", b"a01") is None
    assert calm.from_core("get", "ranges", b"a01") is not None


def test_no_loop_reads_a_closed_store(calm):
    calm.gate.hide()
    assert calm.from_core("get", "hashed", b"a01") is None
    assert calm.from_core("get_many", "hashed", [b"a01"]) is None


def test_a_user_without_the_right_is_left_to_python(calm):
    calm.core.let_read([b"\x02"])
    assert calm.from_core("get", "hashed", b"a01") is None
