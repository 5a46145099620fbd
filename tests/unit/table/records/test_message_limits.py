"""Messages between nodes at their largest: senders cut lists by the measure by which receivers refuse."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, Unknown
from gossipkv.replication.replica.hlc import COUNT_BITS
from gossipkv.table.controllers.smear_schedule import SmearedPut
from gossipkv.table.records.forward import UNDER_WAY_BYTES
from gossipkv.table.records.write import MAX_ROWS
from gossipkv.wire.arguments import MAX_MESSAGE_BYTES, MAX_MESSAGE_ROWS, ROW_BYTES
from tests.oracle import msgpack_scanner
from tests.unit.table.record_nodes import TOKEN, Records
from tests.unit.table.rpc.test_node_admin import made as made_of
from tests.world.nodes.whole_cluster import USUAL, simulated

ONE = {"level": "one"}
FRAME = {"max_depth": 4, "max_elements": 1024, "max_size": 17 << 20}  # A node refuses more of a request (handoff.pyx).
COUNTS = st.sampled_from([0, 1, 2, 330, MAX_MESSAGE_ROWS, MAX_MESSAGE_ROWS + 1, 3 * MAX_MESSAGE_ROWS])
AT_LIMIT = MAX_MESSAGE_BYTES // 2 - ROW_BYTES - 5  # Two records of this size, with keys of five bytes, fit.
SIZES = st.sampled_from([0, 1, AT_LIMIT, AT_LIMIT + 1, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1])
OPTIONS = st.sampled_from([{}, {"ttl_ms": 1 << 41}, {"expires_at": 1 << 47}])


@pytest.fixture
def nodes():
    """Return a host of the table `t`, and a node that holds nothing; each message between them is checked."""
    return made()


def made():
    records = Records(2)
    host, other = records.nodes
    records.make("t", firsts=2, holders=lambda _: [host], ttl_ms=1 << 40)
    ask = other.ask

    def checked(node, method, params, complete, timeout_s=None):
        frame = msgpack.packb([0, 1 << 31, method, params])
        assert isinstance(msgpack_scanner.scan(frame, **FRAME), int), method
        assert not any(isinstance(param, list) for param in params), "a list is packed, and bounded by its sender"
        ask(node, method, params, complete, timeout_s)

    other.ask = checked
    return host, other


@settings(max_examples=40, deadline=None)
@given(count=COUNTS, size=SIZES, options=OPTIONS)
def test_what_a_host_takes_is_taken_elsewhere(count, size, options):
    """put_many, get_many and delete_many of none, one, a message's limit, and more: whole, wherever they are sent."""
    count = min(count, max(3, (8 << 20) // (size + 1)))
    rows = [[b"%05d" % number, bytes([number % 256]) * size] for number in range(count)]
    keys = [key for key, _ in rows]
    for place in (0, 1):
        nodes = made()
        nodes[place].call("put_many", "t", rows, {**ONE, **options})
        for node in nodes:
            assert node.call("get_many", "t", keys)[0] == [value for _, value in rows]
        nodes[place].call("delete_many", "t", keys, ONE)
        assert nodes[0].call("get_many", "t", keys)[0] == [None] * count


@settings(max_examples=40, deadline=None)
@given(size=st.sampled_from([1, 100, 4_000, 65_000]), count=COUNTS)
def test_keys_of_any_size_are_asked_for(size, count):
    host, other = made()
    count = min(count, (8 << 20) // size)
    keys = [b"%05d" % number + bytes(size) for number in range(count)]
    other.call("put_many", "t", [[key, b"v"] for key in keys], ONE)
    assert other.call("get_many", "t", keys)[0] == host.call("get_many", "t", keys)[0] == [b"v"] * count


def test_accepted_puts_are_cut(nodes):
    host, other = nodes
    at, told = host.now_ms() << COUNT_BITS, []
    table = host.methods.routing.route("t").table.id
    keys = [b"%05d" % number for number in range(2 * MAX_MESSAGE_ROWS)]
    puts = [SmearedPut(b"", table, key, b"v", at + number, 1 << 47) for number, key in enumerate(keys)]
    other.methods.forward(table, puts, lambda some, error: told.append((len(some), error)))
    other.records.until(lambda: sum(count for count, _ in told) == len(puts))
    assert {error for _, error in told} == {None}
    assert host.call("get_many", "t", [puts[0].key, puts[-1].key])[0] == [b"v", b"v"]


@pytest.mark.parametrize(("method", "row", "more"), [
    ("table_write", [b"12345", b"v"], ["one"]), ("table_accepted", [b"12345", b"v", 1 << 40], []),
    ("table_get", [b"12345"], []),
])  # fmt: skip
def test_a_receiver_takes_one_message_and_not_one_row_more(nodes, method, row, more):
    host, _ = nodes
    place = host.methods.routing.route("t").place(b"12345")
    table = host.methods.routing.route("t").table.id

    def outcome(count, row=row):
        ids = place.partition.to_bytes(8, "big") * count if method == "table_get" else place.partition
        rest = [] if method == "table_get" else [1 << 62]
        return host.outcome(method, table, ids, *more, msgpack.packb(row * count), *rest)

    assert not isinstance(outcome(1), Exception)
    assert not isinstance(outcome(MAX_MESSAGE_ROWS), Exception)
    with pytest.raises(BadRequest, match=rf"are {(MAX_MESSAGE_ROWS + 1) * len(row)}, more than the"):
        raise outcome(MAX_MESSAGE_ROWS + 1)
    with pytest.raises(BadRequest, match="not 0 elements"):
        raise outcome(0)
    long = [bytes(60_000), *row[1:]]
    assert not isinstance(outcome(4, long), BadRequest)
    with pytest.raises(BadRequest, match=f"bytes, more than the {MAX_MESSAGE_BYTES} that a message may have"):
        raise outcome(5, long)


@pytest.mark.parametrize(("method", "row"), [("put_many", [b"k", b"v"]), ("delete_many", b"k"), ("get_many", b"k")])
def test_a_request_of_too_many_rows_names_limit_and_number(nodes, method, row):
    for node in nodes:
        with pytest.raises(BadRequest, match=f"are {MAX_ROWS + 1}, more than the {MAX_ROWS}"):
            node.call(method, "t", [row] * (MAX_ROWS + 1))
    assert nodes[1].call(method, "t", [row] * MAX_ROWS, {} if method == "get_many" else ONE) is not None


def test_a_large_request_waits_for_its_first_parts(nodes):
    """Hosts and queues get little at once: else they refuse the rest, and the request is applied in part."""
    host, other = nodes
    rows = [[b"%d" % number, bytes(60_000)] for number in range(270)]
    host.held = []
    told = other.begin("put_many", "t", rows, {**ONE, "timeout_ms": 5000})
    most = 0
    while not told:
        other.records.run()
        most = max(most, len(host.held))
        other.records.soon.append(host.held.pop(0))
        other.records.run()
    assert most == UNDER_WAY_BYTES // MAX_MESSAGE_BYTES + 1
    assert told == [TOKEN]


def test_parts_that_cannot_begin_any_more_are_reported(nodes):
    """The time is over before the last parts have begun; the error says that some are written."""
    host, other = nodes
    rows = [[b"%d" % number, bytes(60_000)] for number in range(270)]
    host.held = []
    told = other.begin("put_many", "t", rows, {**ONE, "timeout_ms": 500})
    other.records.run()
    other.records.soon.append(host.held.pop(0))
    other.records.pass_s(1)
    (error,) = told
    assert isinstance(error, Unknown)
    assert "parts are written" in str(error)


@simulated(4, config=replace(USUAL, max_frame=64 << 10, max_elements=12_288))
async def test_nodes_send_each_other_more_than_clients_may_send(cluster):
    """The least limits for clients stop neither replication nor writes that an entry node forwards."""
    await made_of(cluster, {"kind": "hash", "partitions": 1, "replication": 3})
    for number, machine in enumerate(cluster.machines):
        rows = [[b"%d-%03d" % (number, row), bytes(182)] for row in range(335)]
        options = {"level": "all", "ttl_ms": 1 << 40, "timeout_ms": 5000}
        await cluster.ask(machine, "put_many", "t", rows, options, timeout_s=10)
        found, _ = await cluster.ask(cluster.machines[number - 1], "get_many", "t", [key for key, _ in rows[:300]])
        assert found == [bytes(182)] * 300
