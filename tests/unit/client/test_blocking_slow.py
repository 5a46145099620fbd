"""The blocking client against nodes that answer, lie, stall and die."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import threading

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossipkv
from gossipkv.client import blocking
from gossipkv.errors import BadRequest, NotReady, ProtocolError, TimedOut, Unavailable, Unknown
from tests.unit.client.behaviours import (
    GARBAGE,
    RECORDS,
    hang_up,
    hang_up_amid_an_answer,
    hang_up_on_request,
    one_answer,
    refused_address,
    silent,
    twice,
)
from tests.unit.client.fake_node import Connection, FakeNode, answering, store
from tests.unit.client.under_trio import LONG_MS


def connect(*addresses: str) -> blocking.Client:
    """Return a client with a deadline that never matters."""
    return gossipkv.blocking.connect(*addresses, timeout_ms=LONG_MS)


@pytest.fixture
def hanging_name(monkeypatch):
    """Let the resolution of `hangs` block until the end of the test; yield the names that were asked for."""
    goes_on, asked, real = threading.Event(), [], socket.getaddrinfo

    def hang(host, port, flags=0, **named):
        if host == "hangs" and not flags & socket.AI_NUMERICHOST:
            asked.append(host)
            goes_on.wait(60)
        return real(host, port, flags=flags, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield asked
    goes_on.set()


def test_a_name_that_is_not_answered_counts_against_the_time(hanging_name):
    """Another address is tried in time; repeated requests leave one waiting thread."""
    with FakeNode(store(RECORDS)) as node, blocking.connect("hangs:1", node.address, timeout_ms=6_000) as client:
        assert client.dataset("geo").get(b"key001") == b"value 1"
    for _ in range(3):
        with pytest.raises(Unavailable, match="hangs:1: the name service has not answered in time"):
            gossipkv.blocking.connect("hangs:1", timeout_ms=200)
    assert hanging_name == ["hangs"]
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "gossipkv-names"] == [True]


def test_a_name_that_nobody_knows_is_told_and_asked_again(monkeypatch):
    """Failures are not cached, since a name's addresses may change."""
    real, unknown = socket.getaddrinfo, [socket.gaierror(socket.EAI_NONAME, "nobody knows")]

    def answer(host, port, flags=0, **named):
        if host == "name" and not flags & socket.AI_NUMERICHOST:
            if unknown:
                raise unknown.pop()
            host = "127.0.0.1"
        return real(host, port, flags=flags, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with FakeNode(store(RECORDS)) as node:
        address = f"name:{node.address.rpartition(':')[2]}"
        with pytest.raises(Unavailable, match="nobody knows"):
            connect(address)
        with connect(address) as client:
            client.ping()


def test_reads():
    """Keys may be bytes or text; absent and empty values differ."""
    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        data = client.dataset("geo")
        assert data.get(b"key001") == data.get("key001") == b"value 1"
        assert data.get(b"nope") is None
        assert data.get(b"") == b""
        assert data.get_with_version(b"\xff\x00") == (b"\x00", "v1")
        assert data.get_many([b"key002", "nope", ""]) == [b"value 2", None, b""]
        assert data.get_many([]) == []
        assert data.get_many_with_version([b"key002"]) == ([b"value 2"], "v1")
        client.ping()
        assert node.accepted == 1


def test_ipv6_in_brackets():
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with FakeNode(store(RECORDS), host="::1") as node, connect(node.address) as client:
        assert client.dataset("geo").get("key001") == b"value 1"


@pytest.mark.parametrize("options", [
    {}, {"start": "key010", "end": b"key020"}, {"prefix": "key04"}, {"reverse": True}, {"limit": 0}, {"limit": 1},
    {"limit": 7, "reverse": True, "prefix": b"key"}, {"limit": 1000},
])  # fmt: skip
def test_scan_follows_the_cursor(options):
    """A scan gives exactly the requested records, whatever the size of a page."""
    keys = sorted(RECORDS)
    start, end, prefix = (blocking.reads.key_bytes(options.get(name, b"")) for name in ("start", "end", "prefix"))
    wanted = [(k, RECORDS[k]) for k in keys if k >= start and (not end or k < end) and k.startswith(prefix)]
    wanted = (wanted[::-1] if options.get("reverse") else wanted)[: options.get("limit")]
    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        assert list(client.dataset("geo").scan(**options)) == wanted


def test_a_scan_asks_for_pages_as_they_are_taken():
    """No page is requested before the first record is taken, and later pages follow the loop."""
    asked = []

    def serve(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            message_id, _, params = request
            asked.append(params[-1])
            connection.answer(message_id, [[[b"k", b"v"]], b"next", "v7"])

    with FakeNode(serve) as node, connect(node.address) as client:
        records = client.dataset("geo").scan()
        assert asked == []
        next(records), next(records)
        assert asked == ["geo", {"version": "v7", "cursor": b"next"}]


@pytest.mark.parametrize("in_flight", [1, 2, 7, 100])
def test_iter_get_is_in_order(in_flight):
    """Answers come in the order of the keys, and keys come back unchanged."""
    keys = [key for _ in range(9) for key in [*RECORDS, "absent", "key001"]]
    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        found = list(client.dataset("geo").iter_get(keys, in_flight))
    assert [key for key, _, _ in found] == keys
    assert [value for _, value, _ in found] == [RECORDS.get(blocking.reads.key_bytes(key)) for key in keys]
    assert {version for _, _, version in found} == {"v1"}


def test_iter_get_keeps_its_window():
    """At most `in_flight` requests are open, and keys are taken accordingly."""
    taken = 0
    most = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield b"key001"

    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        for count, _ in enumerate(client.dataset("geo").iter_get(endless(), in_flight=10)):
            most = max(most, taken - count)
            if count == 500:
                break
        assert most == 10
        assert client.dataset("geo").get("key002") == b"value 2"  # The open requests do not disturb.
        assert node.accepted == 1


def test_a_get_inside_the_loop():
    """A pipeline keeps its connection, and a request during it uses another one."""
    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        data = client.dataset("geo")
        for key, value, _ in data.iter_get(list(RECORDS), in_flight=8):
            assert data.get(key) == value
        assert node.accepted == 2


def test_iter_get_with_more_data_than_the_sockets_hold():
    """Large keys and large values at once do not deadlock."""
    big = {bytes([number]) * 60_000: bytes([number]) * 200_000 for number in range(20)}
    with FakeNode(store(big)) as node, connect(node.address) as client:
        # These are 18 MB of requests at once; the node reads a request only after the previous answer is sent.
        keys = list(big) * 15
        found = client.dataset("geo").iter_get(keys, in_flight=300)
        assert all(value == big[key] for key, (_, value, _) in zip(keys, found, strict=True))


def test_a_name_with_several_addresses():
    """Each address of a name is tried: `localhost` may be IPv6 first, without a listener."""
    with FakeNode(store(RECORDS)) as node, connect(f"localhost:{node.port}") as client:
        assert client.dataset("geo").get("key001") == b"value 1"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".b", "..", "xn--a"])
def test_a_name_that_nobody_knows(host):
    """A host that does not resolve is `Unavailable` with the reason."""
    with pytest.raises(Unavailable, match="no node could be reached: "):
        blocking.connect(f"{host}:7070")


def test_refused_everywhere_lists_each_address():
    addresses = [refused_address(), refused_address()]
    with pytest.raises(Unavailable) as caught:
        blocking.connect(*addresses)
    assert set(caught.value.details) == set(addresses)
    assert str(caught.value).count("refused") == 2


@pytest.mark.parametrize("first", [hang_up, hang_up_on_request, hang_up_amid_an_answer])
def test_a_broken_connection_is_repeated_elsewhere(first):
    """A read from a dying node is answered by the next address."""
    with FakeNode(first) as dying, FakeNode(store(RECORDS)) as living:
        with connect(dying.address, living.address) as client:
            assert client.dataset("geo").get("key001") == b"value 1"
            assert client.dataset("geo").get("key002") == b"value 2"
        assert (dying.accepted, living.accepted) == (1, 1)


def test_an_idle_connection_that_was_closed_is_dialled_again():
    with FakeNode(one_answer) as node, connect(node.address) as client:
        for _ in range(3):
            assert client.dataset("geo").get("k") == b"v"
        assert node.accepted == 3


def test_a_node_that_always_hangs_up_is_given_up():
    """Each address is dialled once for a request; then the error has the reason."""
    with FakeNode(hang_up_on_request) as node, connect(node.address) as client:
        with pytest.raises(Unavailable, match="closed the connection"):
            client.dataset("geo").get("k")
        assert node.accepted == 2  # The earlier link, and one for the request.


@pytest.mark.parametrize("follows", [True, False])
def test_a_client_of_one_node(follows, monkeypatch):
    """It does not ask for the members of the cluster, so it never goes on with another node; other clients do."""
    monkeypatch.setattr("gossipkv.client.dispatcher.LEARN_AFTER_S", 0)
    asked = []
    answers = ("get", [[b"v", "v1"]]), ("members", lambda: asked.append("members"))
    with (
        FakeNode(answering(*answers)) as node,
        blocking.Client([node.address], timeout_ms=LONG_MS, follows=follows) as client,
    ):
        assert [client.dataset("geo").get(b"k") for _ in range(3)] == [b"v"] * 3
    assert bool(asked) is follows


def test_what_may_not_be_repeated_is_not():
    """A request with an unknown method may be a write, and is not sent twice."""
    with FakeNode(hang_up_on_request) as dying, FakeNode(store(RECORDS)) as living:
        with (
            connect(dying.address, living.address) as client,
            pytest.raises(Unknown, match="may or may not have been done"),
        ):
            client.call("put", "t", b"k", b"v")
        assert living.accepted == 0


@pytest.mark.parametrize("answers", [0, 1, 5, 17])
def test_a_pipeline_goes_on_elsewhere(answers):
    """Every key is answered in order when the node dies during a pipeline."""

    def dies(connection: Connection) -> None:
        for _ in range(answers):
            message_id, _, params = connection.next_request()
            connection.answer(message_id, [RECORDS.get(params[1]), "v1"])
        connection.raw(b"\x94\x01")  # Half an answer.

    with FakeNode(dies) as dying, FakeNode(store(RECORDS)) as living:
        with connect(dying.address, living.address) as client:
            found = list(client.dataset("geo").iter_get(list(RECORDS), in_flight=10))
        assert [(key, value) for key, value, _ in found] == list(RECORDS.items())
        assert (dying.accepted, living.accepted) == (1, 1)


def test_silence_times_out_and_the_next_request_goes_elsewhere():
    """A silent node costs one request its deadline; the next request uses another address."""
    with (
        FakeNode(silent) as frozen,
        FakeNode(store(RECORDS)) as living,
        connect(frozen.address, living.address) as client,
    ):
        with pytest.raises(TimedOut, match=frozen.address):
            client.dataset("geo").get("key001", timeout_ms=20)
        assert client.dataset("geo").get("key001") == b"value 1"


def test_a_dribbling_node_meets_the_deadline():
    """Arriving bytes do not extend the deadline."""
    stop = threading.Event()

    def dribble(connection: Connection) -> None:
        connection.next_request()
        connection.raw(b"\x94\x01\x00\xc0\xc5\xff\xff")
        while not stop.wait(0.005):
            connection.raw(b"x")

    with FakeNode(dribble) as node, connect(node.address) as client:
        try:
            with pytest.raises(TimedOut):
                client.dataset("geo").get("key001", timeout_ms=100)
        finally:
            stop.set()


def test_a_pipeline_times_out():
    with (
        FakeNode(silent) as node,
        blocking.connect(node.address, timeout_ms=1000) as client,
        pytest.raises(TimedOut),
    ):
        list(client.dataset("geo").iter_get(["a", "b"]))


@pytest.mark.parametrize("raw", GARBAGE)
def test_garbage_is_one_clear_error(raw):
    """The client raises `ProtocolError` with the address, and closes the connection."""

    def garbage(connection: Connection) -> None:
        connection.next_request()
        connection.raw(raw)
        connection.next_request()

    with FakeNode(garbage) as node, connect(node.address) as client:
        with pytest.raises(ProtocolError, match=node.address):
            client.dataset("geo").get("k")
        assert "not connected" in repr(client)


def test_an_answer_that_comes_twice():
    """The first of two answers counts, and the second ends the connection; the next request dials again."""
    with FakeNode(twice) as node, connect(node.address) as client:
        for _ in range(3):
            assert client.dataset("geo").get("k") == b"v"
            assert "not connected" in repr(client)
        assert node.accepted == 3


@pytest.mark.parametrize(("method", "result"), [
    ("get", b"v"), ("get", [1, "v1"]), ("get", [b"v", 1]), ("get", ["text", "v1"]), ("get_many", [[b"v"], "v1"]),
    ("get_many", [[b"v", 3], "v1"]), ("scan", [[[b"k"]], None, "v1"]), ("scan", [[["k", b"v"]], None, "v1"]),
    ("scan", None), ("ping", None), ("info", []), ("databases", [1]), ("status", "x" * 500),
])  # fmt: skip
def test_an_answer_of_another_shape_is_a_protocol_error(method, result):
    def odd(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], result)

    with FakeNode(odd) as node, connect(node.address) as client:
        data = client.dataset("geo")
        calls = {"get": (data.get, "k"), "get_many": (data.get_many, ["a", "b"]), "scan": (lambda: list(data.scan()),)}
        call, *arguments = calls.get(method) or (getattr(client, method),)
        with pytest.raises(ProtocolError, match=f"the node answered {method} with") as caught:
            call(*arguments)
        assert len(str(caught.value)) < 250


def test_the_nodes_own_error_is_raised():
    """The error has its class, and the connection stays."""

    def busy(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], None, ["NOT_READY", "building", {"progress": 0.25}])

    with FakeNode(busy) as node, connect(node.address) as client:
        for _ in range(2):
            with pytest.raises(NotReady, match="building") as caught:
                client.dataset("geo").get("k")
            assert caught.value.details == {"progress": 0.25}
        with pytest.raises(NotReady):
            list(client.dataset("geo").iter_get(["a", "b", "c"]))
        with pytest.raises(NotReady):
            client.ping()
        assert node.accepted == 1


def test_wrong_use():
    """Mistakes of the caller are reported before anything is sent."""
    with FakeNode(store(RECORDS)) as node, connect(node.address) as client:
        data = client.dataset("geo")
        with pytest.raises(TypeError, match="bytes, str or int, not float"):
            data.get(1.5)
        with pytest.raises(BadRequest, match="UTF-8"):
            data.get("\ud800")
        with pytest.raises(TypeError, match="such as a list"):
            data.get_many(b"key")
        with pytest.raises(TypeError, match="such as a list"):
            list(data.iter_get("key"))
        with pytest.raises(ValueError, match="in_flight"):
            next(data.iter_get(["a"], 0))
        with pytest.raises(ValueError, match="timeout_ms"):
            data.get("k", timeout_ms=0)
        with pytest.raises(ValueError, match="cannot be pipelined"):
            client.pipeline("put", [])
        with pytest.raises(BadRequest, match="limit"):
            data.scan(limit=-1)
        assert data.get("key001") == b"value 1"
        assert node.accepted == 1
    with pytest.raises(ValueError, match="at least one address"):
        blocking.connect()
    with pytest.raises(ValueError, match="HOST:PORT"):
        blocking.connect("localhost")
    with pytest.raises(Unavailable, match="closed"):
        data.get("k")


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 60), max_size=5), junk=st.binary(max_size=12))
def test_answers_in_pieces_then_junk(cuts, junk):
    """Answers cut anywhere are complete; junk after them is a protocol error or an end."""
    whole = msgpack.packb([1, 0, None, [b"value", "v1"]])
    edges = [0, *sorted(cut % len(whole) for cut in cuts), len(whole)]

    def pieces(connection: Connection) -> None:
        connection.next_request()
        for begin, end in itertools.pairwise(edges):
            connection.raw(whole[begin:end])
        connection.next_request()
        connection.raw(junk)

    with FakeNode(pieces) as node, connect(node.address) as client:
        assert client.dataset("geo").get("k") == b"value"
        with pytest.raises((ProtocolError, Unknown)):
            client.call("one-way")


def test_the_client_loads_no_event_loop():
    """`import gossipkv` and a read load neither Trio nor the node, nor modules that only Linux has."""
    program = (
        "import sys, gossipkv\n"
        "try: gossipkv.blocking.connect('127.0.0.1:1', timeout_ms=1000)\n"
        "except gossipkv.errors.Unavailable: pass\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "gossipkv.client.blocking" in loaded
    assert not loaded & {
        "trio", "asyncio", "fcntl", "click", "rich", "logging", "gossipkv.environment", "gossipkv.settings",
        "gossipkv.node", "gossipkv.storage", "gossipkv.dataset", "platformdirs",
    }  # fmt: skip
