"""Deletion of a range: exact counts, page by page, whatever hosts know of splits and of each other's writes."""

from __future__ import annotations

import msgpack
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, GossipKVError, TimedOut, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.metadata.partitions import HASH, RANGE
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records.range_deletion import MAX_PARTS, MAX_ROUNDS
from gossipkv.wire.arguments import MAX_MESSAGE_BYTES
from tests.unit.table.record_nodes import TOKEN, Records
from tests.unit.table.rpc.test_node_admin import made
from tests.world.nodes.whole_cluster import simulated

KEYS = st.binary(max_size=3).map(lambda key: bytes(byte % 4 for byte in key))
ALL = {"start": b"", "end": b"\xff"}
ONE = {"level": "one"}


def limit(records, rows):
    for node in records.nodes:
        node.methods._services.scan_limit = rows


def pages(node, bounds=ALL, cursor=None, **options):
    """Delete a range; return the number that each page deleted."""
    counts = []
    while not counts or cursor is not None:
        assert len(counts) < 500
        deleted, cursor, token = node.call("delete_range", "t", bounds, {**options, "cursor": cursor})
        assert token == TOKEN
        counts.append(deleted)
    return counts


@pytest.fixture
def range_table():
    """Return nodes of which the first three share a range table, and the fourth holds nothing."""
    records = Records(4)
    records.make("t", RANGE, firsts=[b"", b"m"], holders=lambda _: records.nodes[:3])
    limit(records, 4)
    return records


@settings(max_examples=60, deadline=None)
@given(
    data=st.sets(KEYS), deleted=st.sets(KEYS), place=st.tuples(st.booleans(), st.integers(0, 1), st.integers(1, 4)),
    bounds=st.fixed_dictionaries({"end": KEYS}, optional={"start": KEYS, "prefix": KEYS}),
)  # fmt: skip
def test_a_deletion_is_what_a_set_says(data, deleted, bounds, place):
    """From a host and from another node the count is exact, what is outside stays, and a repetition finds nothing."""
    records, (is_hash, node, rows) = Records(2), place
    firsts = 11 if is_hash else [b"", b"\1", b"\1\2", b"\2\0\3", b"\3"]
    records.make("t", HASH if is_hash else RANGE, firsts=firsts, holders=lambda _: records.nodes[:1])
    limit(records, rows)
    asked, prefix = records.nodes[node], bounds.get("prefix", b"")
    for key in data:
        asked.call("put", "t", key, b"v", ONE)
    if deleted:
        asked.call("delete_many", "t", [*deleted], ONE)
    ends = [bounds["end"], *([] if (end := prefix_end(prefix)) is None else [end])]
    within = {key for key in data - deleted if max(bounds.get("start", b""), prefix) <= key < min(ends)}
    assert sum(pages(asked, bounds)) == len(within)
    limit(records, 1000)
    assert {key for key, _ in asked.call("scan", "t")[0]} == data - deleted - within
    assert sum(pages(asked, bounds)) == 0


def test_records_that_are_not_synced_count():
    """A put that is under way is deleted, and a delete that is under way is not counted again."""
    records = Records(1)
    (node,) = records.nodes
    records.make("t", RANGE, firsts=[b""], holders=lambda _: [node])
    for key in (b"a", b"b", b"c"):
        node.call("put", "t", key, b"v")
    node.syncs = False
    answers = node.begin("put", "t", b"bb", b"v") + node.begin("put", "t", b"c", b"w") + node.begin("delete", "t", b"b")
    answers += node.begin("put", "t", b"e", b"outside")
    assert answers == []
    told = node.begin("delete_range", "t", {"end": b"e"})
    node.sync()
    assert told == [[3, None, TOKEN]]
    assert node.call("scan", "t")[0] == [[b"e", b"outside"]]


def test_long_keys_are_deleted_in_small_batches(range_table):
    node, *_ = range_table.nodes
    keys = [b"%03d" % number + bytes(60_000) for number in range(10)]
    for key in keys:
        node.call("put", "t", key, b"", ONE)
    limit(range_table, 100)
    at = next(node.positions)
    assert sum(pages(node, level="one")) == len(keys)
    assert next(node.positions) - at - 1 == -(-len(keys) // (MAX_MESSAGE_BYTES // 60_000))


def test_many_ranges_are_deleted_in_few_pages():
    """A page passes over empty ranges, within its rounds."""
    records = Records(1)
    (node,) = records.nodes
    count = MAX_PARTS * MAX_ROUNDS + 5
    records.make("t", RANGE, firsts=[b"", *(b"%04d" % at for at in range(1, count))], holders=lambda _: [node])
    for key in (b"0000x", b"0100x", b"%04dx" % (count - 1)):
        node.call("put", "t", key, b"v")
    assert pages(node) == [2, 1]


@pytest.mark.parametrize("adopted", [0, 1, 3])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_range_that_is_split_is_deleted_to_its_end(adopted, is_known, is_begun):
    """Hosts that know of the split delete the keys of one child each time; the other child is not left out."""
    records = Records(4)
    *three, other = records.nodes
    records.make("t", RANGE, firsts=[b""], holders=lambda _: three)
    limit(records, 3)
    keys = [b"%c" % letter for letter in range(ord("a"), ord("z") + 1)]
    for host in three:  # No feed runs, so each replica is written at its own node.
        for key in keys:
            host.call("put", "t", key, b"v", ONE)
    bounds, deleted, cursor = {"start": b"b", "end": b"y"}, 0, None
    if is_begun:  # The cursor has a part that the split divides.
        deleted, cursor, _ = three[0].call("delete_range", "t", bounds, ONE)
    before = records.divide("t", b"m")
    for host in three[:adopted]:
        trio.run(host.holding().look)
    records.run()
    if not is_known:
        records.forget("t", before)
    for host in three[1:]:
        host.is_lost = True
    assert deleted + sum(pages(other, bounds, cursor=cursor, level="one")) == len(keys) - 3
    found = [three[0].call("scan", "t", {"start": start})[0] for start in (b"", b"m")]
    assert {key for rows in found for key, _ in rows} == {b"a", b"y", b"z"}


def test_no_record_counts_twice_at_hosts_that_differ():
    """A part is not taken up before its rest, so a host without the first tombstones does not count them again."""
    records = Records(4)
    *three, other = records.nodes
    records.make("t", firsts=5, holders=lambda _: three)
    limit(records, 7)
    for host in three:
        host.call("put_many", "t", [[b"%03d" % number, b"v"] for number in range(200)], ONE)
    counts = pages(other, level="one")
    assert {host.name for host in three if "table_delete_range" in host.asked} == {"n1", "n2", "n3"}
    assert (sum(counts), len(counts) > 5) == (200, True)


def test_what_is_refused_keeps_its_place():
    """The count of other parts is answered, and the cursor has the part that was refused; then the error comes."""
    records = Records(3)
    one, two, other = records.nodes
    records.make("t", RANGE, firsts=[b"", b"m"], holders=lambda number: [[one], [two]][number])
    for key in (b"a", b"b", b"x"):
        other.call("put", "t", key, b"v")
    two.refuses = Unavailable("the disk is full")
    deleted, cursor, _ = other.call("delete_range", "t", ALL)
    assert deleted == 2
    with pytest.raises(Unavailable, match="the disk is full"):
        other.call("delete_range", "t", ALL, {"cursor": cursor})
    two.refuses = None
    assert other.call("delete_range", "t", ALL, {"cursor": cursor})[:2] == [1, None]


def test_an_unknown_outcome_says_what_is_known():
    """The error has the count of the other parts, and a cursor behind them."""
    records = Records(3)
    one, two, other = records.nodes
    records.make("t", RANGE, firsts=[b"", b"m"], holders=lambda number: [[one], [two]][number])
    for key in (b"a", b"b", b"x"):
        other.call("put", "t", key, b"v")
    two.hangs = True
    error = other.outcome("delete_range", "t", ALL)
    assert isinstance(error, Unknown)
    assert (error.details["deleted"], "2 records are deleted, and more may be" in error.message) == (2, True)
    two.hangs = False
    assert other.call("delete_range", "t", ALL, {"cursor": error.details["cursor"]})[:2] == [1, None]


def test_a_page_ends_in_half_of_its_time():
    """No round begins late, since its outcome might be unknown; a request that is late already deletes nothing."""
    records = Records(1)
    (node,) = records.nodes
    records.make("t", RANGE, firsts=[b""], holders=lambda _: [node])
    limit(records, 2)
    for number in range(6):
        node.call("put", "t", b"%d" % number, b"v")
    sync = node.sync
    node.sync = lambda: (records.pass_s(0.6), sync())
    deleted, cursor, _ = node.call("delete_range", "t", ALL, {"timeout_ms": 1000})
    assert (deleted, cursor is None) == (2, False)
    table = node.methods.routing.route("t").table.id
    with pytest.raises(TimedOut):
        node.call("table_delete_range", table, 0, b"", None, 9, "one", 1, b"", 0)
    node.sync = sync
    assert pages(node) == [2, 2]


def test_a_cursor_is_of_its_table(range_table):
    """The cursor of a dropped table, of another kind of table, or of nothing is refused."""
    node, *_ = range_table.nodes
    range_table.make("h", firsts=3, holders=lambda _: [node])
    for number in range(9):
        node.call("put", "t", b"%d" % number, b"v", ONE)
    _, cursor, _ = node.call("delete_range", "t", ALL, ONE)
    with pytest.raises(UnknownDatabase, match="was dropped"):
        node.call("delete_range", "h", ALL, {"cursor": cursor})
    table = node.methods.routing.route("h").table.id
    for wrong in (b"", b"\xc1", [table, [], b"a"], [table, [], 3], [table, [[0, b"a"]], 0], [table, [[0, 1, b""]], 0]):
        packed = wrong if isinstance(wrong, bytes) else msgpack.packb(wrong)
        with pytest.raises(BadRequest, match="cursor"):
            node.call("delete_range", "h", ALL, {"cursor": packed})


def test_a_cursor_deletes_nothing_out_of_the_bounds(range_table):
    """A cursor of another range is refused, and so is a shard that the table lacks: nothing is deleted."""
    node, *_ = range_table.nodes
    range_table.make("h", firsts=3, holders=lambda _: [node])
    node.call("put", "t", b"a", b"v", ONE)
    node.call("put", "h", b"a", b"v", ONE)
    bounds = {"start": b"x", "end": b"y"}
    of_range, of_hash = (node.methods.routing.route(name).table.id for name in ("t", "h"))
    for name, cursor in (
        ("t", [of_range, [[0, b"a", b"b"]], None]),
        ("t", [of_range, [[0, b"x", None]], None]),
        ("t", [of_range, [], b"a"]),
        ("t", [of_range, [], b"y"]),
        ("h", [of_hash, [[0, b"", None]], None]),
        ("h", [of_hash, [[3, b"x", b"y"]], None]),
        ("h", [of_hash, [[-1, b"x", b"y"]], None]),
    ):
        with pytest.raises(BadRequest, match="cursor"):
            node.call("delete_range", name, bounds, {**ONE, "cursor": msgpack.packb(cursor)})
    for name in ("t", "h"):
        assert node.call("get", name, b"a")[0] == b"v"


@pytest.mark.parametrize(("params", "words"), [
    (["t", {}], "would delete all records of t"),
    (["t", {"start": b"", "prefix": b""}], "would delete all records of t"),
    (["t", {"strat": b"a"}], "did you mean start"), (["t", [b"a", b"b"]], "the bounds must be a map"),
    (["t"], "the bounds is missing"), (["t", {"start": 5}], "start must be bytes"),
    (["t", ALL, {"level": "two"}], "the level must be one of"), (["t", ALL, {"limit": 5}], "unknown option limit"),
])  # fmt: skip
def test_wrong_requests(range_table, params, words):
    error = range_table.nodes[0].outcome("delete_range", *params)
    assert isinstance(error, BadRequest)
    assert words in error.message
    assert range_table.nodes[0].call("delete_range", "t", {"start": b"b", "end": b"a"}) == [0, None, TOKEN]


@simulated(4)
async def test_counts_are_exact_amid_puts_a_split_and_a_move(cluster):
    """Every key is put once, so what was put is what was deleted and what is left."""
    one = await made(cluster, {"kind": "range", "bounds": [b"k5"], "replication": 3})
    *_, four = cluster.machines
    put = [b"k%04d" % (7 * number) for number in range(1400)]
    for at in range(0, len(put), 200):
        await cluster.ask(one, "put_many", "t", [[key, b"v"] for key in put[at : at + 200]], {"level": "all"})
    later, counts = [b"k%04dx" % (70 * number) for number in range(140)], []

    async def puts():
        for key in later:
            await cluster.ask(four, "put", "t", key, b"v", {"timeout_ms": 5000})
            put.append(key)
            await trio.sleep(0.001)

    async def deletes():
        cursor = None
        while not counts or cursor is not None:
            options = {"cursor": cursor, "timeout_ms": 5000}
            try:
                deleted, cursor, _ = await cluster.ask(four, "delete_range", "t", {"end": b"l"}, options)
            except GossipKVError as error:
                assert not isinstance(error, Unknown), error
                await trio.sleep(0.1)
                continue
            counts.append(deleted)
            if len(counts) == 1:
                await cluster.ask(one, "split", "t", b"k3")
                hosts = await cluster.ask(one, "partition_map", "t")
                names = {host["node"] for host in hosts["partitions"][1]["assignments"]}
                (comer,) = {machine.name for machine in cluster.machines} - names
                await cluster.ask(one, "join", "t", b"k4", comer, timeout_s=60)

    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(puts)
            nursery.start_soon(deletes)
        await trio.sleep(60)
    left = (await cluster.ask(one, "scan", "t"))[0]
    assert len(put) == 1540
    assert sum(counts) == len(put) - len(left)
    assert {key for key, _ in left} <= {*later}
