"""All clients verify the node, and present their credentials."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import ssl
import time

import pytest
import trio

import gossipkv
from gossipkv.client._client import get_request
from gossipkv.client.credentials import Credentials
from gossipkv.client.reads import name_bytes, of_dataset
from gossipkv.errors import GossipKVError, Overloaded, Unauthorized, Unavailable, UnknownMethod, to_wire
from tests.unit.client.behaviours import RECORDS, hang_up, silent
from tests.unit.client.certificates import Authority
from tests.unit.client.fake_node import FakeNode, store
from tests.unit.client.test_processes_slow import run
from tests.unit.client.under_trio import LONG_MS

TOKEN = "gkv-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return the authority of all nodes in these tests."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["asyncio", "blocking", "trio"])
def asked(request):
    """Return a function that connects and runs `ask` with a client; but for the blocking one `ask` is asynchronous."""

    def blocking(*addresses, ask=lambda client: client.dataset("geo").get("key001"), timeout_ms=LONG_MS, **how):
        with gossipkv.blocking.connect(*addresses, timeout_ms=timeout_ms, **how) as client:
            return ask(client)

    def under_trio(*addresses, ask=lambda client: client.dataset("geo").get("key001"), timeout_ms=LONG_MS, **how):
        async def main():
            async with gossipkv.connect(*addresses, timeout_ms=timeout_ms, **how) as client:
                return await ask(client)

        return trio.run(main)

    def under_asyncio(*addresses, ask=lambda client: client.dataset("geo").get("key001"), timeout_ms=LONG_MS, **how):
        async def main():
            async with gossipkv.aio.connect(*addresses, timeout_ms=timeout_ms, **how) as client:
                return await ask(client)

        return asyncio.run(main())

    return {"asyncio": under_asyncio, "blocking": blocking, "trio": under_trio}[request.param]


def told(ask, *addresses, **how):
    try:
        return ask(*addresses, **how)
    except GossipKVError as error:
        return error


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_node_of_that_host(asked, authority, host):
    """The node may be addressed by address or by name."""
    with FakeNode(store(RECORDS), host="127.0.0.1" if host == "localhost" else host, tls=authority.node(host)) as node:
        assert asked(gossipkv.client.route.Address(host, node.port), tls=authority.client()) == b"value 1"


@pytest.mark.parametrize(("host", "of_pair", "why"), [
    ("127.0.0.2", {}, "its certificate is not valid for the host name 127.0.0.1"),
    ("node.example", {}, "its certificate is not valid for the host name 127.0.0.1"),
    ("127.0.0.1", {"days": (-2, -1)}, "its certificate has expired"),
    ("127.0.0.1", {"days": (1, 2)}, "its certificate is not valid yet; check the clocks of both machines"),
    ("127.0.0.1", {"itself": True},
     "its certificate is not signed by an authority that this client trusts; add that authority's certificate"),
])  # fmt: skip
def test_a_node_that_is_not_who_it_should_be(asked, authority, host, of_pair, why):
    """The node is refused in one sentence before anything is asked."""
    with FakeNode(store(RECORDS), tls=authority.node(host, **of_pair)) as node:
        error = told(asked, node.address, tls=authority.client())
    assert str(error) == f"no node could be reached: {node.address}: {why}"


def test_the_name_that_was_written_is_looked_for(asked, authority):
    """The certificate must have the name that the user wrote, not its address."""
    node = FakeNode(store(RECORDS), tls=authority.node("127.0.0.1"))
    with node, pytest.raises(Unavailable, match="not valid for the host name localhost"):
        asked(f"localhost:{node.port}", tls=authority.client())


def test_the_authorities_of_the_system(asked, authority, monkeypatch, tmp_path):
    """With `tls=True` only the system's authorities are trusted."""
    with FakeNode(store(RECORDS), tls=authority.node("127.0.0.1")) as node:
        for file, is_trusted in ((authority.file, True), (Authority(tmp_path, "other").file, False)):
            monkeypatch.setenv("SSL_CERT_FILE", str(file))
            if is_trusted:
                assert asked(node.address, tls=True) == b"value 1"
            else:
                with pytest.raises(Unavailable, match="not signed by an authority that this client trusts"):
                    asked(node.address, tls=True)


def test_a_context_is_taken_as_it_is(asked, authority):
    """A context without host name checks stays without them."""
    context = authority.client()
    context.check_hostname = False
    with FakeNode(store(RECORDS), tls=authority.node("node.example")) as node:
        assert asked(node.address, tls=context) == b"value 1"


def test_a_node_that_asks_for_a_certificate(asked, authority):
    """The client shows its certificate, or reports that the node requires one."""
    with FakeNode(store(RECORDS), tls=authority.node("127.0.0.1", asks=True)) as node:
        assert asked(node.address, tls=authority.client(authority.pair("ana"))) == b"value 1"
        with pytest.raises(Unavailable, match=r"the node ended TLS: .*certificate required"):
            asked(node.address, tls=authority.client())


def closing_behind_data(connection):
    connection.socket.recv(1 << 16)
    connection.raw(b"\x94\x01\x00\xc0\xa4pong" * 4)
    connection.socket.recv(1)


def alerting(connection):
    """Send the fatal protocol_version alert of a port without TLS."""
    connection.raw(b"\x15\x03\x01\x00\x02\x02\x46")


@pytest.mark.parametrize(("behaviour", "why"), [
    (hang_up, "during the TLS handshake"),
    (closing_behind_data, r"the TLS handshake failed: .*; check that its port speaks TLS"),
    (alerting, r"the node ended TLS: .*alert protocol version; check that its port speaks TLS"),
])  # fmt: skip
def test_a_node_that_speaks_plain(asked, authority, behaviour, why):
    """One sentence explains the likely mistake, whatever the node does with the handshake."""
    with FakeNode(behaviour) as node, pytest.raises(Unavailable, match=why):
        asked(node.address, tls=authority.client())


def test_a_handshake_ends_within_the_time(asked, authority):
    """The handshake with a silent node ends at the deadline."""
    began = time.monotonic()
    with (
        FakeNode(lambda connection: connection.socket.recv(1 << 16, socket.MSG_WAITALL)) as node,
        pytest.raises(Unavailable, match="no answer to the TLS handshake in time"),
    ):
        asked(node.address, tls=authority.client(), timeout_ms=4000)
    assert time.monotonic() - began < LONG_MS / 1000


def test_large_requests_and_answers(asked, authority):
    """Requests and answers take many records each way."""
    large = {b"k" * 60_000: b"v" * 3_000_000}
    with FakeNode(store(large), tls=authority.node("127.0.0.1")) as node:
        assert [len(value) for value in asked(
            node.address, tls=authority.client(), ask=lambda client: client.dataset("geo").get_many([b"k" * 60_000] * 3)
        )] == [3_000_000] * 3  # fmt: skip


def test_many_requests_at_once(authority):
    """The requests of a pipeline and of many tasks share records."""
    keys = [f"key{number:03}".encode() for number in range(50)] * 20
    with FakeNode(store(RECORDS), tls=authority.node("127.0.0.1")) as node:
        with gossipkv.blocking.connect(node.address, timeout_ms=LONG_MS, tls=authority.client()) as client:
            assert [value for _, value, _ in client.dataset("geo").iter_get(keys)] == [RECORDS[key] for key in keys]

        async def main():
            async with gossipkv.connect(node.address, timeout_ms=LONG_MS, tls=authority.client()) as client:
                found = {}

                async def get(number, key):
                    found[number] = await client.dataset("geo").get(key)

                async with trio.open_nursery() as nursery:
                    for number, key in enumerate(keys):
                        nursery.start_soon(get, number, key)
                assert [found[number] for number in range(len(keys))] == [RECORDS[key] for key in keys]

        trio.run(main)
        assert node.accepted == 2


def saying_the_last_word(said):
    """Return a behaviour that answers once, sends close_notify and reports the method; the socket stays open."""

    def behaviour(connection):
        message_id, method, _ = connection.next_request()
        connection.answer(message_id, "pong" if method == "ping" else "done")
        connection.socket.settimeout(0)
        with contextlib.suppress(ssl.SSLWantReadError):  # The client may send its close_notify at once.
            connection.socket.unwrap()
        said.put(method)
        connection.socket.settimeout(None)
        with contextlib.suppress(ssl.SSLZeroReturnError):
            assert connection.socket.recv(1) == b""

    return behaviour


def test_the_last_word_of_a_node_ends_the_connection(authority):
    """The next request uses a new connection, also a write, which was not sent."""
    said = queue.SimpleQueue()
    with FakeNode(saying_the_last_word(said), tls=authority.node("127.0.0.1")) as node:
        with gossipkv.blocking.connect(node.address, timeout_ms=LONG_MS, tls=authority.client()) as client:
            client.ping()
            assert said.get(timeout=LONG_MS / 1000) == "ping"
            assert client.call("write") == "done"
            assert said.get(timeout=LONG_MS / 1000) == "write"

        async def main():
            async with gossipkv.connect(node.address, timeout_ms=LONG_MS, tls=authority.client()) as client:
                await client.ping()
                while client.address is not None:  # It notices the end in its own time.
                    await trio.sleep(0.001)
                assert await client.call("write") == "done"

        trio.run(main)
        assert node.accepted == 4


def test_the_last_word_of_a_node_in_place_of_an_answer(asked, authority):
    """The client stops waiting for the token's answer, though the socket stays open."""

    def serve(connection):
        connection.next_request()
        connection.socket.settimeout(0)
        with contextlib.suppress(ssl.SSLWantReadError):
            connection.socket.unwrap()
        connection.socket.settimeout(None)
        with contextlib.suppress(ssl.SSLError, OSError):
            connection.socket.recv(1)

    with (
        FakeNode(serve, tls=authority.node("127.0.0.1")) as node,
        pytest.raises(Unavailable, match="the node closed the connection"),
    ):
        asked(node.address, tls=authority.client(), token=TOKEN, ask=lambda client: client.ping())


def test_a_client_says_that_it_goes(asked, authority):
    """The client sends close_notify, so that the node sees no truncation."""
    ends = []

    def serve(connection):
        connection.socket.suppress_ragged_eofs = False
        connection.answer(connection.next_request()[0], "pong")
        try:
            ends.append(connection.socket.recv(1))
        except ssl.SSLEOFError:
            ends.append("cut off")

    with FakeNode(serve, tls=authority.node("127.0.0.1")) as node:
        asked(node.address, tls=authority.client(), ask=lambda client: client.ping())
    assert ends == [b""]


def test_a_child_of_fork_leaves_its_parents_connection_alone(authority):
    """A forked child neither asks nor says goodbye on the inherited connection."""
    program = f"""
        import ssl
        client = gossipkv.blocking.connect(
            address, timeout_ms=60_000, tls=ssl.create_default_context(cafile={str(authority.file)!r})
        )
        data = client.dataset("geo")
        assert data.get("key001") == b"value 1"
        in_child(lambda: data.get("key002"))
        in_child(client.close)
        assert data.get("key004") == b"value 4"
        client.close()
        """
    with FakeNode(store(RECORDS), tls=authority.node("127.0.0.1")) as node:
        run(program, node.address)
        assert node.accepted == 2


def knowing(*tokens, once=False):
    """Return a behaviour that serves clients with one of these tokens; `once`: for one request only."""
    serve = store(RECORDS)

    def behaviour(connection):
        message_id, method, params = connection.next_request()
        if method != "auth" or params[0] not in tokens:
            error = Unauthorized("not known, or not allowed")
            return connection.answer(message_id, None, to_wire(error))
        connection.answer(message_id, "ana")
        if not once:
            return serve(connection)
        return connection.answer(connection.next_request()[0], [b"value 1", "v1"])

    return behaviour


def test_a_token_comes_first_on_each_connection(asked):
    """A new connection shows the token again."""
    with FakeNode(knowing(TOKEN)) as node:
        assert asked(node.address, token=TOKEN) == b"value 1"
    with FakeNode(knowing(TOKEN, once=True)) as node:
        with gossipkv.blocking.connect(node.address, timeout_ms=LONG_MS, token=TOKEN) as client:
            assert [client.dataset("geo").get("key001") for _ in range(3)] == [b"value 1"] * 3

        async def main():
            async with gossipkv.connect(node.address, timeout_ms=LONG_MS, token=TOKEN) as client:
                assert [await client.dataset("geo").get("key001") for _ in range(3)] == [b"value 1"] * 3

        trio.run(main)
        assert node.accepted == 6


def test_a_token_that_is_not_known_is_said_at_once(asked):
    """No other node is asked."""
    with FakeNode(knowing("other")) as node, FakeNode(knowing(TOKEN)) as second:
        assert isinstance(told(asked, node.address, second.address, token=TOKEN), Unauthorized)
        assert (node.accepted, second.accepted) == (1, 0)


def test_a_token_that_was_taken_away(asked):
    """Each waiting request fails with an error of its own, and the client stays usable."""
    tokens = [TOKEN]

    def behaviour(connection):
        knowing(*tokens, once=True)(connection)

    with FakeNode(behaviour) as node:
        with gossipkv.blocking.connect(node.address, timeout_ms=LONG_MS, token=TOKEN) as client:
            client.dataset("geo").get("key001")
            tokens.clear()
            with pytest.raises(Unauthorized):
                client.dataset("geo").get("key001")
            tokens.append(TOKEN)
            assert client.dataset("geo").get("key001") == b"value 1"

        async def main():
            async with gossipkv.connect(node.address, timeout_ms=LONG_MS, token=TOKEN) as client:
                await client.dataset("geo").get("key001")
                tokens.clear()
                errors = []

                async def get():
                    try:
                        await client.dataset("geo").get("key001")
                    except Unauthorized as error:
                        errors.append(error)

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(get)
                    nursery.start_soon(get)
                assert len({id(error) for error in errors}) == 2
                tokens.append(TOKEN)
                assert await client.dataset("geo").get("key001") == b"value 1"

        trio.run(main)


def refusing(error):
    def behaviour(connection):
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], None, to_wire(error))

    return behaviour


def test_a_node_that_knows_no_users(asked):
    """The node refuses, instead of answering without a check."""
    with FakeNode(refusing(UnknownMethod("no method auth"))) as node, pytest.raises(UnknownMethod):
        asked(node.address, token=TOKEN)


@pytest.mark.parametrize("behaviour", [refusing(Overloaded("too much")), hang_up, lambda each: each.raw(b"\xc1")])
def test_a_node_that_cannot_look_at_a_token(asked, behaviour):
    """Another node is asked; without one the error has the reason."""
    with FakeNode(behaviour) as bad:
        with FakeNode(knowing(TOKEN)) as good:
            assert asked(bad.address, good.address, token=TOKEN) == b"value 1"
        with pytest.raises(Unavailable) as failed:
            asked(bad.address, token=TOKEN)
        assert list(failed.value.details) == [bad.address]


def test_a_node_that_is_silent_about_a_token(asked):
    """Each address has its share of the time."""
    with FakeNode(silent) as bad, FakeNode(knowing(TOKEN)) as good:
        assert asked(bad.address, good.address, token=TOKEN, timeout_ms=2000) == b"value 1"


def test_clients_of_one_node_show_the_same(authority):
    """Clients for addresses of a map use the same TLS and token."""
    with FakeNode(knowing(TOKEN), tls=authority.node("127.0.0.1")) as node:
        address = gossipkv.client.route.Address("127.0.0.1", node.port)
        how = {"timeout_ms": LONG_MS, "token": TOKEN, "tls": authority.client()}
        with gossipkv.blocking.connect(node.address, **how) as client:
            request = get_request(name_bytes("geo"), "key001")
            request.at = address
            assert client.ask(request, None, of_dataset) == b"value 1"

        async def main():
            async with gossipkv.connect(node.address, **how) as client:
                request = get_request(name_bytes("geo"), "key001")
                request.at = address
                assert await client.ask(request, None, of_dataset) == b"value 1"

        trio.run(main)
        assert node.accepted == 2  # The address has the connection that is there.


@pytest.mark.parametrize(("how", "kind"), [
    ({"tls": "yes"}, TypeError),
    ({"tls": None}, TypeError),
    ({"tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, ValueError),
    ({"token": b"gkv-secret"}, TypeError),
    ({"token": ""}, ValueError),
    ({"token": "gkv-secret\n"}, ValueError),
    ({"token": "gkv-sécret"}, ValueError),
])  # fmt: skip
def test_what_is_wrong_use(how, kind):
    """The error comes before anything is sent, and does not contain the token."""
    for connect in (gossipkv.connect, gossipkv.blocking.connect):
        with pytest.raises(kind, match=r"^(tls|a token) (is|must be) ") as refused:
            connect("127.0.0.1:1", **how)
        assert "gkv-s" not in str(refused.value)


def test_a_token_is_nowhere_to_be_read(asked):
    """Neither representations of a client nor errors contain the token."""
    said = [repr(Credentials(token=TOKEN)), repr(Credentials(tls=True, token=TOKEN))]
    for behaviour in (knowing("other"), hang_up, silent, lambda each: each.raw(b"\xc1")):
        with FakeNode(behaviour) as node, pytest.raises(GossipKVError) as failed:
            asked(node.address, token=TOKEN, timeout_ms=300)
        said.append(repr(failed.value) + str(failed.value.details))
    with (
        FakeNode(knowing(TOKEN)) as node,
        gossipkv.blocking.connect(node.address, token=TOKEN, timeout_ms=LONG_MS) as client,
    ):
        said += [repr(client), repr(client.dataset("geo"))]
    assert TOKEN not in "".join(said)
    assert said[:2] == ["<credentials: plain, a token>", "<credentials: TLS, a token>"]
