"""Tables in both clients: requests, writes that are sent once, and the errors of failed writes."""

from __future__ import annotations

import re
import socket
import struct
import threading

import pytest
import trio

import gossipkv
from gossipkv.client import blocking, parts
from gossipkv.errors import (
    WRITES_ARE,
    BadRequest,
    NotReady,
    Overloaded,
    ProtocolError,
    TimedOut,
    TooLarge,
    Unavailable,
    Unknown,
    UnknownDatabase,
)
from tests.unit.client.behaviours import hang_up_amid_an_answer, hang_up_on_request, one_answer, refused_address, silent
from tests.unit.client.fake_node import Connection, FakeNode, store
from tests.unit.client.table_node import TableNode

TIMEOUT_MS = 20_000
WAITS = {"timeout_ms": 18_000}  # The part of the timeout that the node is told.
WRITE = {"level": "majority", **WAITS}


def by_threads(addresses: list[str], *calls: tuple[object, ...]) -> list[object]:
    """Return the results of calls (method, arguments) on one blocking client."""
    with blocking.connect(addresses, timeout_ms=TIMEOUT_MS) as client:
        table = client.table("carts")
        found = []
        for method, options, *given in map(_with_options, calls):
            answer = getattr(table, method)(*given, **options)
            found.append(list(answer) if method == "scan" else answer)
        return found


def by_tasks(addresses: list[str], *calls: tuple[object, ...]) -> list[object]:
    async def ask() -> list[object]:
        async with gossipkv.connect(addresses, timeout_ms=TIMEOUT_MS) as client:
            table = client.table("carts")
            found = []
            for method, options, *given in map(_with_options, calls):
                asked = getattr(table, method)(*given, **options)
                found.append([record async for record in asked] if method == "scan" else await asked)
            return found

    return trio.run(ask)


def _with_options(call: tuple[object, ...]) -> list[object]:
    method, *given = call
    options = given.pop() if given and isinstance(given[-1], dict) else {}
    return [method, options, *given]


both = pytest.mark.parametrize("ask", [by_threads, by_tasks])


@both
def test_what_is_put_is_read_and_what_is_deleted_is_not(ask):
    """Keys may be bytes or text; an absent value is None, and an empty one is empty."""
    node = TableNode()
    with FakeNode(node) as listening:
        assert ask(
            [listening.address],
            ("put", "ä", b""), ("put", b"k", memoryview(b"v")), ("put_many", [("a", b"1"), (b"b", b"2")]),
            ("delete", "k"), ("delete", b"none"), ("get", "ä"), ("get", "k"), ("get_many", ["b", "k", b"a"]),
            ("get_many", []), ("scan",), ("scan", {"start": "b", "limit": 1}),
        ) == [
            None, None, None, None, None, b"", None, [b"2", None, b"1"], [],
            [(b"a", b"1"), (b"b", b"2"), ("ä".encode(), b"")], [(b"b", b"2")],
        ]  # fmt: skip


@both
def test_what_a_node_is_told(ask):
    """A write states its level, unless it may be smeared, and its time limit; a read does if it waits."""
    node = TableNode()
    asked = {"level": "all", "wait_ms": 5, "timeout_ms": 60_000}
    patient = {"wait_ms": 7}
    with FakeNode(node) as listening:
        ask(
            [listening.address],
            ("put", "k", b"v"), ("put", "k", b"v", {"smear": False}), ("put", "k", b"v", asked), ("delete", "k"),
            ("put_many", [("k", b"v")], {"level": "one"}), ("get", "k"), ("get", "k", patient),
            ("get_many", ["k"], patient), ("scan", patient), ("scan", {"limit": 2}),
        )  # fmt: skip
    assert node.asked == [
        ("put", [b"k", b"v", WAITS]), ("put", [b"k", b"v", WRITE]),
        ("put", [b"k", b"v", {**asked, "timeout_ms": 54_000}]), ("delete", [b"k", WRITE]),
        ("put_many", [[[b"k", b"v"]], {"level": "one", **WAITS}]), ("get", [b"k"]),
        ("get", [b"k", {**patient, **WAITS}]), ("get_many", [[b"k"], {**patient, **WAITS}]),
        ("scan", [{**patient, **WAITS}]), ("scan", [{"limit": 2}]),
    ]  # fmt: skip


@both
def test_a_put_tells_its_expiry_and_a_get_asks_for_it(ask):
    """A lifetime of 0 means never, so it is sent; a record without an expiry has None."""
    node = TableNode()
    with FakeNode(node) as listening:
        assert ask(
            [listening.address],
            ("put", "k", b"v", {"expires_at": 1_800_000_000_000}), ("put_many", [("n", b"w")], {"ttl_ms": 0}),
            ("get_with_expiry", "k"), ("get_with_expiry", "n", {"wait_ms": 7}), ("get_with_expiry", "none"),
        ) == [None, None, (b"v", 1_800_000_000_000), (b"w", None), (None, None)]  # fmt: skip
    assert node.asked == [
        ("put", [b"k", b"v", {**WAITS, "expires_at": 1_800_000_000_000}]),
        ("put_many", [[[b"n", b"w"]], {**WRITE, "ttl_ms": 0}]),
        ("get", [b"k", {"explain": True}]),
        ("get", [b"n", {"wait_ms": 7, **WAITS, "explain": True}]),
        ("get", [b"none", {"explain": True}]),
    ]


@both
def test_records_with_expiries_of_their_own(ask):
    """They are longer, so a part has fewer of them."""
    node, at = TableNode(), 1_800_000_000_000
    records = [(b"%d" % number, b"v", at + number) for number in range(parts.PART_RECORDS)]
    with FakeNode(node) as listening:
        ask([listening.address], ("put_many", [*records, ("x", b"v")], {"ttl_ms": 0}))
    assert [len(rows) for _, (rows, _) in node.asked] == [parts.PART_EXPIRING, 61]
    assert node.asked[1][1][0][-2:] == [[b"299", b"v", at + 299], [b"x", b"v"]]


@both
def test_an_expiry_that_no_node_tells(ask):
    """An answer of another form is refused; so is a dataset."""
    node = TableNode()
    node.records, node.expiries = {b"k": b"v"}, {b"k": {"expires_at": "soon"}}
    with FakeNode(node) as listening, pytest.raises(ProtocolError, match="perhaps expires_at"):
        ask([listening.address], ("get_with_expiry", "k"))


@both
@pytest.mark.parametrize("behaviour", [hang_up_on_request, hang_up_amid_an_answer, silent])
@pytest.mark.parametrize("call", [("put", "k", b"v"), ("delete", "k"), ("put_many", [("k", b"v")])])
def test_a_write_that_was_sent_is_never_sent_again(ask, behaviour, call):
    """A lost or unanswered write is `Unknown`, though another node would accept it."""
    other = TableNode()
    with FakeNode(behaviour) as lost, FakeNode(other) as living:
        with pytest.raises(Unknown, match=f"{call[0]} may or may not have been done"):
            ask([lost.address, living.address], (*call, {"timeout_ms": 100 if behaviour is silent else TIMEOUT_MS}))
        assert other.asked == []


@both
def test_a_read_that_was_sent_is_asked_elsewhere(ask):
    """A read continues at the next address."""
    other = TableNode()
    with FakeNode(hang_up_on_request) as lost, FakeNode(other) as living:
        assert ask([lost.address, living.address], ("get", "k"), ("get_many", ["k"]), ("scan",)) == [None, [None], []]
    assert [method for method, _ in other.asked] == ["get", "get_many", "scan"]


@both
def test_a_write_that_was_not_sent_goes_elsewhere(ask):
    """A write to an address without a listener is not unknown."""
    node = TableNode()
    with FakeNode(node) as listening:
        ask([refused_address(), listening.address], ("put", "k", b"v"))
    assert node.records == {b"k": b"v"}


@both
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", Unavailable), ("OVERLOADED", Overloaded), ("NOT_READY", NotReady), ("UNKNOWN", Unknown),
        ("TOO_LARGE", TooLarge), ("UNKNOWN_DATABASE", UnknownDatabase), ("TIMEOUT", TimedOut),
    ],
)  # fmt: skip
def test_what_the_node_says_of_a_write_is_passed_on(ask, code, kind):
    """No node is asked a second time."""
    node, other = TableNode({1: [code, "why", {"level": "majority"}]}), TableNode()
    with FakeNode(node) as listening, FakeNode(other) as living:
        with pytest.raises(kind, match=r"^why$") as caught:
            ask([listening.address, living.address], ("put", "k", b"v"))
        assert caught.value.details == {"level": "majority"}
        assert (len(node.asked), other.asked) == (1, [])


@both
def test_an_answer_that_is_none(ask):
    """A write without a token in its answer, and a dataset that is read as a table, are errors."""
    with (
        FakeNode(one_answer) as node,
        pytest.raises(ProtocolError, match=r"the node answered put with .*; expected a token"),
    ):
        ask([node.address], ("put", "k", b"v"))
    with FakeNode(store({b"k": b"v"})) as node:
        for call in ("get", "k"), ("get_many", ["k"]), ("scan",):
            with pytest.raises(BadRequest, match=r"a dataset, not a table; read it with `client\.dataset`"):
                ask([node.address], call)


def test_a_table_that_is_read_as_a_dataset():
    """Every read refuses, and names the right method."""
    node = TableNode()
    node.records[b"k"] = b"v"
    with FakeNode(node) as listening, blocking.connect(listening.address, timeout_ms=TIMEOUT_MS) as client:
        data = client.dataset("carts")
        for read in (lambda: data.get("k"), lambda: data.get_many(["k"]), lambda: list(data.iter_get(["k"]))):
            with pytest.raises(BadRequest, match=r"a table, not a dataset; read it with `client\.table`"):
                read()
        with pytest.raises(BadRequest, match="a table, not a dataset"):
            list(data.scan(limit=1))


@both
def test_what_is_no_record_is_refused_before_anything_is_sent(ask):
    """A value must be bytes; one invalid record prevents the whole put."""
    node = TableNode()
    with FakeNode(node) as listening:
        for call in ("put", "k", "v"), ("put", 1.5, b"v"), ("put_many", [("k", b"v"), ("k", "v")]), ("get_many", "key"):
            with pytest.raises(TypeError):
                ask([listening.address], call)
        for call in ("put", "k", b"v", {"level": object()}), ("get", "k", {"wait_ms": 1 << 64}):
            with pytest.raises(BadRequest, match="cannot be encoded"):
                ask([listening.address], call)
    assert node.asked == []


@both
def test_many_records_are_put_in_parts(ask):
    """Parts are limited in number and size, and keep their order; no records still make one request."""
    node = TableNode()
    small = [(b"%d" % number, b"v") for number in range(2 * parts.PART_RECORDS + 1)]
    large = [(b"a", bytes(700_000)), (b"b", bytes(700_000)), (b"c", bytes(parts.PART_BYTES + 1)), (b"d", b"")]
    with FakeNode(node) as listening:
        ask([listening.address], ("put_many", iter(small)), ("put_many", large), ("put_many", []))
    sent = [[tuple(record) for record in params[0]] for _, params in node.asked]
    assert list(map(len, sent)) == [parts.PART_RECORDS, parts.PART_RECORDS, 1, 1, 1, 1, 1, 0]
    assert [record for part in sent for record in part] == small + large


@both
def test_what_is_known_when_a_part_fails(ask):
    """The error states how many records were put and not sent; a single part has the node's error alone."""
    records = [(b"%d" % number, b"v") for number in range(2 * parts.PART_RECORDS + 5)]
    known = {"put": parts.PART_RECORDS, "unsent": 5}
    node = TableNode({2: ["UNKNOWN", "short of its level", {"acks": 1}]})
    with (
        FakeNode(node) as listening,
        pytest.raises(Unknown, match="the first 300 were put and the last 5 not sent") as caught,
    ):
        ask([listening.address], ("put_many", records))
    assert caught.value.details == {"acks": 1, **known}
    assert len(node.asked) == 2
    node = TableNode({1: ["UNAVAILABLE", "why", {}]})
    with FakeNode(node) as listening, pytest.raises(Unavailable, match=r"^why$") as caught:
        ask([listening.address], ("put_many", records[:3]))
    assert caught.value.details == {}


@both
def test_many_keys_are_deleted_in_parts(ask):
    """Parts keep their order, and the error of one of them states how many keys were deleted and not sent."""
    node, keys = TableNode(), [b"%d" % number for number in range(2 * parts.PART_DELETES + 1)]
    with FakeNode(node) as listening:
        assert (
            ask([listening.address], ("delete_many", iter(keys)), ("delete_many", ["k"], {"level": "all"}))
            == [None] * 2
        )
        with pytest.raises(TypeError, match="keys must be an iterable"):
            ask([listening.address], ("delete_many", "key"))
    assert [key for _, params in node.asked[:3] for key in params[0]] == keys
    assert [method for method, _ in node.asked] == ["delete_many"] * 4
    assert node.asked[3][1] == [[b"k"], {"level": "all", **WAITS}]
    node = TableNode({2: ["UNKNOWN", "short of its level", {}]})
    with FakeNode(node) as listening, pytest.raises(Unknown, match="900 were deleted and the last 1 not") as caught:
        ask([listening.address], ("delete_many", keys))
    assert caught.value.details == {"deleted": parts.PART_DELETES, "unsent": 1}


@both
def test_a_range_is_deleted_page_by_page(ask):
    """The number is that of all pages, and an error has the number of those that were answered, and more if known."""
    node = TableNode()
    node.records = dict.fromkeys([b"a", b"b", b"ba", b"bb", b"bc", b"bd", b"c"], b"v")
    with FakeNode(node) as listening:
        assert ask(
            [listening.address],
            ("delete_range", {"prefix": "b", "level": "one"}), ("delete_range", {"start": b"b", "end": "z"}),
            ("delete_range", {"start": b"b"}),
        ) == [5, 1, 0]  # fmt: skip
    told = {"level": "one", "timeout_ms": 9_000}
    assert node.asked[:2] == [
        ("delete_range", [{"prefix": b"b"}, told]), ("delete_range", [{"prefix": b"b"}, {**told, "cursor": b"bb"}]),
    ]  # fmt: skip
    for details, deleted in ({"deleted": 1, "cursor": b"bb"}, 3), ({}, 2):
        node = TableNode({2: ["UNKNOWN", "short of its level", details]})
        node.records = dict.fromkeys([b"a", b"b", b"c"], b"v")
        with FakeNode(node) as listening, pytest.raises(Unknown, match="short of its level") as caught:
            ask([listening.address], ("delete_range", {"start": "a"}))
        assert caught.value.details["deleted"] == deleted


@both
def test_many_keys_are_read_in_parts(ask):
    """Parts of a table demand no version, and are halved when an answer is too large."""
    node = TableNode(most=40)
    node.records = {b"%d" % number: b"v%d" % number for number in range(0, 100, 2)}
    keys = [b"%d" % number for number in range(100)]
    with FakeNode(node) as listening:
        assert ask([listening.address], ("get_many", keys)) == [[node.records.get(key) for key in keys]]
    assert [len(params) for _, params in node.asked] == [1] * len(node.asked)
    assert [len(params[0]) for _, params in node.asked][:3] == [100, 50, 25]


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_write_after_the_node_has_ended_an_idle_connection(is_reset):
    """A connection that the node closes between two writes makes neither unknown."""
    node = TableNode()
    taken, closed = threading.Event(), threading.Event()

    def answers_once(connection: Connection) -> None:
        message_id, *_ = connection.next_request()
        connection.answer(message_id, b"")
        assert taken.wait(30)
        if is_reset:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.socket.close()
            closed.set()
            return
        connection.socket.shutdown(socket.SHUT_WR)
        closed.set()
        assert connection.next_request() is None  # The client noticed the end before it sent anything.

    with (
        FakeNode(answers_once) as ending,
        FakeNode(node) as living,
        blocking.connect(ending.address, living.address, timeout_ms=TIMEOUT_MS) as client,
    ):
        client.table("carts").put("a", b"1")
        taken.set()
        assert closed.wait(30)
        ending.listener.shutdown(socket.SHUT_RDWR)
        client.table("carts").put("b", b"2")
    assert node.records == {b"b": b"2"}


async def test_a_write_of_a_task_that_is_cancelled_already():
    node = TableNode()
    with FakeNode(node) as listening:
        async with gossipkv.connect(listening.address, timeout_ms=TIMEOUT_MS) as client:
            table = client.table("carts")
            for write in (
                lambda: table.put("k", b"v"),
                lambda: table.delete("k"),
                lambda: table.put_many([("k", b"v")]),
            ):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await write()
                assert scope.cancelled_caught
            await table.get("k")
    assert [method for method, _ in node.asked] == ["get"]


@pytest.mark.parametrize("method", ["put", "put_many", "set", "delete"])
async def test_a_dataset_has_no_writes(method):
    """The error explains how datasets are written, and nothing is sent."""
    said = f"has no method {method}: {re.escape(WRITES_ARE)}$"
    node = TableNode()
    with FakeNode(node) as listening:
        with (
            blocking.connect(listening.address, timeout_ms=TIMEOUT_MS) as client,
            pytest.raises(AttributeError, match=said),
        ):
            getattr(client.dataset("geo"), method)
        async with gossipkv.connect(listening.address, timeout_ms=TIMEOUT_MS) as client:
            with pytest.raises(AttributeError, match=said):
                getattr(client.dataset("geo"), method)
            with pytest.raises(AttributeError, match=r"'Dataset' object has no attribute 'scna'$"):
                _ = client.dataset("geo").scna
    assert node.asked == []
