"""Requests during a split: client node and host may know different maps, and no request waits for that."""

from functools import reduce

import msgpack
import pytest
import trio

from gossipkv.errors import NotServed
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica import clock
from gossipkv.table.records.forward import held
from gossipkv.table.session.token import decode_body
from tests.unit.table.record_nodes import Records

MIDDLE = b"m"
ROWS = [(b"%c" % letter, b"%d" % letter) for letter in range(ord("a"), ord("z") + 1)]


def adopt(records, *nodes):
    for node in nodes:
        trio.run(node.holding().look)
    records.run()


@pytest.fixture(params=["all know it", "hosts know it first", "hosts know it later", "one host knows it"])
def node(request):
    """Return a node without replicas of a split table, which knows of the split before or after the hosts."""
    records = Records(4)
    *three, other = records.nodes
    records.make("t", RANGE, firsts=[b""], holders=lambda _: three)
    for key, value in ROWS:
        other.call("put", "t", key, value, {"level": "one"})
    before = records.divide("t", MIDDLE)
    adopted = {"hosts know it later": [], "one host knows it": three[:1]}.get(request.param, three)
    adopt(records, *adopted)
    if request.param == "hosts know it first":
        records.forget("t", before)
    copies = [copy for one in three for copy in one.replicas.by_partition.values()]
    assert len(copies) == 3 + len(adopted)
    return other


def spread(node):
    """Copy the records to all replicas, since no feed runs here."""
    found = {}
    for one in node.records.nodes:
        for rows in one.spaces.values():
            for key, data in rows.items():
                if key[:1] == b"\1":
                    found[key] = max(data, found.get(key, b""), key=lambda record: record[:24])
    copies = [copy for one in node.records.nodes for copy in one.replicas.by_partition.values()]
    joined, time = reduce(clock.merge, (copy.synced for copy in copies)), max(copy.time for copy in copies)
    for copy in copies:
        copy.synced = copy.appended = clock.merge(copy.synced, clock.named(joined, copy.named))
        copy.time = max(copy.time, time)
    for one in node.records.nodes:
        for space in one.spaces:
            one.spaces[space] |= found


def test_reads(node):
    spread(node)
    answers = [node.outcome("get", "t", key) for key, _ in ROWS]
    assert [answer[0] if isinstance(answer, list) else answer for answer in answers] == [value for _, value in ROWS]
    assert node.call("get_many", "t", [key for key, _ in ROWS])[0] == [value for _, value in ROWS]


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_page_is_of_the_keys_of_its_copy(node, reverse):
    """The answer names the next position, even if the request covers more than the replica."""
    spread(node)
    host = node.records.nodes[0]
    copy = held(host.replicas, bytes(16), 0, b"z" if reverse else b"a")
    flat, bound, _ = host.call("table_scan", bytes(16), copy.partition[1].to_bytes(8, "big"), b"", None, reverse, 100)
    has = [key for key, _ in ROWS if copy.bounds.has(key)]
    assert flat[::2] == (has[::-1] if reverse else has)
    assert bound == (None if len(has) == len(ROWS) else MIDDLE)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize(("start", "end"), [(b"", None), (b"c", b"x"), (b"l", b"n"), (b"m", b"z"), (b"a", b"m")])
def test_scans(node, reverse, limit, start, end):
    """Each key comes once and in order, whatever a page ends with."""
    spread(node)
    options = {"reverse": reverse, "limit": limit, "start": start} | ({} if end is None else {"end": end})
    found, cursor = [], None
    while True:
        rows, cursor, _ = node.call("scan", "t", options | ({} if cursor is None else {"cursor": cursor}))
        found += rows
        assert len(rows) <= limit
        if cursor is None:
            break
    due = [[key, value] for key, value in ROWS if start <= key and (end is None or key < end)]
    assert found == (due[::-1] if reverse else due)


def test_writes(node):
    """Writes of one key, and of several in one or two ranges, are applied in the current range."""
    spread(node)
    node.call("put", "t", b"a", b"new", {"level": "one"})
    node.call("delete", "t", b"z", {"level": "one"})
    token = node.call(
        "put_many", "t", [[b"b", b"new"], [b"l", b"new"], [b"m", b"new"], [b"y", b"new"]], {"level": "one"}
    )
    spread(node)
    values = node.call("get_many", "t", [b"a", b"b", b"c", b"l", b"m", b"y", b"z"])[0]
    assert values == [b"new", b"new", b"99", b"new", b"new", b"new", None]
    assert node.outcome("get", "t", b"b", {"token": token}) != []


def test_a_write_of_two_ranges_is_one_batch_at_its_host(node):
    """The token names both children, so the session sees both records."""
    host = node.records.nodes[0]
    (table,) = {copy.identity.table for copy in host.replicas.by_partition.values()}
    copies = {held(host.replicas, table, 0, key) for key in (b"a", b"z")}
    before = {copy.assignment: clock.counter(copy.synced, copy.assignment) for copy in copies}
    at = next(host.positions)
    flat = [b"a", b"1", b"z", b"2"]
    body = host.call("table_write", table, 0, "one", msgpack.packb(flat), 1 << 62, b"", 0)
    assert next(host.positions) == at + 2
    seen = dict(clock.entries(decode_body(body)[table].clock))
    written = 1 if len(copies) == 2 else 2
    assert seen == {assignment: count + written for assignment, count in before.items()}


def test_what_is_not_here_is_refused(node):
    with pytest.raises(NotServed):
        held(node.replicas, b"t", 1, b"k")
