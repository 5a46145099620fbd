"""Scans of tables: pages in key order, from every node, with bounded work."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, NotServed, Unavailable, UnknownDatabase
from gossipkv.register.metadata.partitions import HASH, RANGE
from gossipkv.replication.replica import record
from gossipkv.replication.replica.record import MAX_TOMBSTONES, PAGE_BYTES, join_pages
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records.scan import MAX_STEPS
from gossipkv.wire.arguments import MAX_MESSAGE_ROWS
from tests.unit.table.record_nodes import TOKEN, Records

KEYS = st.binary(max_size=3).map(lambda key: bytes(byte % 4 for byte in key))


def pages(node, table="t", **options):
    """Return all records of a scan, and the number of pages."""
    found, cursor, count = [], None, 0
    while True:
        page = node.outcome("scan", table, {**options, **({} if cursor is None else {"cursor": cursor})})
        assert isinstance(page, list), page
        rows, cursor, token = page
        assert token == TOKEN
        found += [(key, value) for key, value in rows]
        count += 1
        if cursor is None:
            return found, count
        assert count < 300


def two_holders(records):
    """Place each partition on two of four nodes; the last node holds nothing."""
    one, two, three, _ = records.nodes
    return lambda number: [[one, two], [two, three], [three, one]][number % 3]


OPTIONS = st.fixed_dictionaries(
    {"reverse": st.booleans(), "limit": st.integers(1, 4)}, optional={"start": KEYS, "end": KEYS, "prefix": KEYS}
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.dictionaries(KEYS, st.binary(max_size=2)), deleted=st.sets(KEYS), options=OPTIONS,
    is_hash=st.booleans(), node=st.integers(0, 3),
)  # fmt: skip
def test_a_scan_is_what_a_dictionary_says(data, deleted, options, is_hash, node):
    """From any node, in both directions, with bounds and prefix, each live record comes once and in order."""
    records = Records(4)
    firsts = 5 if is_hash else [b"", b"\1", b"\1\2", b"\2\0\3", b"\3"]
    records.make("t", HASH if is_hash else RANGE, firsts=firsts, holders=two_holders(records))
    for writer in records.nodes[:3]:  # No feed runs, so each replica is written at its own node.
        for key, value in data.items():
            write_all(records, writer, key, value)
        for key in deleted:
            write_all(records, writer, key, None)
    live = {key: value for key, value in data.items() if key not in deleted}
    prefix = options.get("prefix")
    low = max(options.get("start", b""), prefix or b"")
    highs = [one for one in (options.get("end"), None if prefix is None else prefix_end(prefix)) if one is not None]
    wanted = sorted((key, value) for key, value in live.items() if key >= low and (not highs or key < min(highs)))
    found, count = pages(records.nodes[node], **options)
    assert found == (wanted[::-1] if options["reverse"] else wanted)
    assert count >= -(-len(wanted) // options["limit"])


def write_all(records, node, key, value):
    """Write to the node's own replica, if it holds the key's partition."""
    place = node.methods.routing.route("t").place(key)
    if node.uuid in place.hosts:
        node.call(
            "table_write",
            node.methods.routing.route("t").table.id,
            place.partition,
            "one",
            msgpack.packb([key, value]),
            1 << 62,
        )


@pytest.fixture
def alone():
    """Return a node with a hash table of 64 partitions and a range table of 40, and a node without."""
    records = Records(2)
    node, _ = records.nodes
    records.make("hash", firsts=64, holders=lambda _: [node])
    records.make("range", RANGE, firsts=[b"", *(b"%03d" % number for number in range(1, 40))], holders=lambda _: [node])
    return records


def test_a_page_of_tombstones_ends(alone):
    """Deletes yield empty pages of bounded work, and the records behind them are found."""
    node, _ = alone.nodes
    rows = [part for number in range(2 * MAX_TOMBSTONES) for part in (b"000%05d" % number, None)]
    rows += [b"000z", b"live"]
    place = node.methods.routing.route("range").place(b"000")
    table = node.methods.routing.route("range").table.id
    for at in range(0, len(rows), 2 * MAX_MESSAGE_ROWS):
        some = msgpack.packb(rows[at : at + 2 * MAX_MESSAGE_ROWS])
        node.call("table_write", table, place.partition, "one", some, 1 << 62)
    answered, cursor, _ = node.call("scan", "range", {"end": b"001", "limit": 10})
    assert answered == []
    assert msgpack.unpackb(cursor)[0] == b"000%05d" % MAX_TOMBSTONES
    assert pages(node, "range", end=b"001") == ([(b"000z", b"live")], 3)
    assert pages(node, "range", end=b"001", reverse=True) == ([(b"000z", b"live")], 2)


def test_a_page_of_all_shards_has_its_limit(alone):
    """A page of 64 partitions at one node has as many records as asked for, in order."""
    node, _ = alone.nodes
    node.call("put_many", "hash", [[b"%05d" % number, b"v"] for number in range(3000)])
    for limit in (10, 100, 640):
        rows, _, _ = node.call("scan", "hash", {"limit": limit})
        assert [key for key, _ in rows] == [b"%05d" % number for number in range(limit)]


def test_few_ranges_are_read_for_a_page(alone):
    """A page reads only the ranges it needs; after a few empty ranges it returns a cursor."""
    node, _ = alone.nodes
    node.call("put_many", "range", [[b"%03d%02d" % (at, number), b"v"] for at in range(3) for number in range(50)])
    node.call("put", "range", b"039", b"last")
    node.viewed = 0
    rows, cursor, _ = node.call("scan", "range", {"limit": 60})
    assert len(rows) == 60
    assert cursor is not None
    assert node.viewed == 2
    found, count = pages(node, "range", start=b"003")
    assert found == [(b"039", b"last")]
    assert count == -(-37 // MAX_STEPS)


def test_a_page_has_a_mebibyte(alone):
    """A page holds at least one record, however large."""
    node, _ = alone.nodes
    for number in range(4):
        node.call("put", "hash", b"%d" % number, bytes(PAGE_BYTES - 100))
    rows, cursor, _ = node.call("scan", "hash")
    assert len(rows) == 2
    assert cursor is not None
    assert pages(node, "hash")[1] == 2


def test_what_a_cursor_is_not(alone):
    """Invalid cursors, limits, options and versions are refused with one clear error each."""
    node, _ = alone.nodes
    for options, words in (
        ({"cursor": b"xx"}, "the cursor was not returned by this method"),
        ({"cursor": msgpack.packb([bytes(70_000)])}, "the cursor was not returned"),
        ({"cursor": msgpack.packb(["a"])}, "the cursor was not returned"),
        ({"cursor": msgpack.packb([b"a", b"made up"])}, "the token was not given"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"starts": b""}, "did you mean start"),
        ({"version": "7"}, "a table has no versions"),
        ({"start": bytes(70_000)}, "more than the"),
        ({"token": b"x"}, "the token was not given"),
    ):
        with pytest.raises(BadRequest, match=words):
            node.call("scan", "hash", options)


def test_a_scan_of_what_is_elsewhere(alone):
    """A scan asks a host once for all its partitions; `local` asks no host, and a lost host fails the scan."""
    holder, other = alone.nodes
    holder.call("put", "hash", b"a", b"1")
    assert pages(other, "hash")[0] == [(b"a", b"1")]
    assert holder.asked.count("table_scan") == 1
    with pytest.raises(NotServed):
        other.call("scan", "hash", {"local": True})
    holder.is_lost = True
    with pytest.raises(Unavailable, match="n1 is not reached"):
        other.call("scan", "hash")


@pytest.mark.parametrize("kind", [HASH, RANGE])
@pytest.mark.parametrize("limit", [2, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_partial_scan_names_what_it_leaves_out(kind, limit, reverse):
    """Each lost partition is named once, ranges with the keys that were to be read."""
    records = Records(3)
    one, two, asked = records.nodes
    firsts = 5 if kind == HASH else [b"", b"2", b"4", b"6", b"8"]
    records.make("t", kind, firsts=firsts, holders=lambda number: [two if number in {1, 3} else one])
    put = [b"%d%d" % (number // 10, number % 10) for number in range(100)]
    asked.call("put_many", "t", [[key, b"v"] for key in put])
    two.is_lost = True
    with pytest.raises(Unavailable):
        asked.call("scan", "t", {"reverse": reverse})
    places, found, missing, cursor = asked.methods.routing.route("t"), [], [], b""
    while cursor is not None:
        options = {"start": b"3", "limit": limit, "reverse": reverse, "partial": True}
        rows, cursor, _, left_out = asked.call("scan", "t", options | ({"cursor": cursor} if cursor else {}))
        found += [key for key, _ in rows]
        missing += left_out
    readable = [key for key in put if key >= b"3" and places.place(key).hosts == (one.uuid,)]
    assert found == sorted(readable, reverse=reverse)
    lost = (
        [{"shard": 1}, {"shard": 3}] if kind == HASH else [{"start": b"3", "end": b"4"}, {"start": b"6", "end": b"8"}]
    )
    assert sorted((part for part, _ in missing), key=str) == lost
    assert all("n2 is not reached" in why for _, why in missing)


def test_a_partial_scan_of_a_whole_table(alone):
    node, _ = alone.nodes
    node.call("put", "hash", b"a", b"1")
    assert node.call("scan", "hash", {"partial": True}) == [[[b"a", b"1"]], None, TOKEN, []]


def test_a_table_that_is_dropped_amid_a_scan():
    """A page does not continue in another table of the same name."""
    records = Records(2)
    holder, other = records.nodes
    records.make("t", RANGE, firsts=[b"", b"m"], holders=lambda _: [holder])
    answers = other.begin("scan", "t")
    records.drop("t")
    records.make("t", RANGE, firsts=[b"", b"m"], holders=lambda _: [holder])
    assert isinstance(answers[0], UnknownDatabase)


def test_pages_are_one_up_to_the_least_bound():
    """Beyond the least bound of several pages, records of another page may be missing."""
    one, two, far = page_of(b"a", b"d"), page_of(b"b"), page_of(b"c")
    rows = msgpack.packb([b"a", b"v"]) + msgpack.packb([b"b", b"v"])
    assert join_pages([one, two, far], b"c", reverse=False, limit=10) == (rows, 2, 4, b"c")
    rows = msgpack.packb([b"d", b"v"]) + msgpack.packb([b"b", b"v"])
    assert join_pages([page_of(b"d", b"a"), two], b"b", reverse=True, limit=10) == (rows, 2, 4, b"b")


def page_of(*keys):
    return msgpack.packb([part for key in keys for part in (key, record.encode(1, 1, 1, record.PUT, b"", b"v"))])


def test_an_answer_that_is_no_page(alone):
    holder, other = alone.nodes
    for answer in (
        None,
        [],
        [[b"a"], None, b""],
        [[b"a", b"no record"], None, b""],
        [[b"a", 1], None, b""],
        [[], 7, b""],
        [[], None, b"x"],
    ):
        holder.methods.methods[b"table_scan"] = lambda _, answer=answer: answer
        with pytest.raises(Unavailable):
            other.call("scan", "hash")


@pytest.mark.parametrize("method", ["scan", "delete_range"])
def test_a_cursor_of_millions_of_elements_is_refused_before_it_is_decoded(method):
    records = Records(1)
    records.make("t", RANGE, firsts=[b""], holders=lambda _: records.nodes)
    node, count = records.nodes[0], 3_000_000
    for item in (b"\x90", b"\x80", b"\xc0"):
        cursor = b"\x92\xdd" + count.to_bytes(4, "big") + item * count + b"\xc4\0"
        calls = {"scan": ("t", {"cursor": cursor}), "delete_range": ("t", {"prefix": b"a"}, {"cursor": cursor})}
        tracemalloc.start()
        try:
            with pytest.raises(BadRequest, match="the cursor was not returned"):
                node.call(method, *calls[method])
            assert tracemalloc.get_traced_memory()[1] < 4 * len(cursor)
        finally:
            tracemalloc.stop()
