"""Users in the serving loop: it answers reads that a bit allows, and hands off all else with the user."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.serving.loop import ProvenResult, Refusal
from gossipkv.serving.published import publish
from gossipkv.wire import rpc
from tests.unit.serving.driven import make_version
from tests.unit.serving.test_serving_slow import Served

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.wire.rpc import Value

NAMES = [f"db{number}" for number in range(11)]
RECORDS = {b"k%03d" % number: b"v" * 100 for number in range(300)}
ANONYMOUS, PROVEN, ODD = 0, 1, 2


def bits(*places: int) -> bytes:
    """Return a bitmap of all databases with these bits."""
    return sum(1 << place for place in places).to_bytes(2, "little")


BITMAPS = [bits(0), None, bits(*range(1, 11, 2))]
MAY = [{0}, {*range(11)}, {*range(1, 11, 2)}, set()]  # The last user is no longer known.


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a loop that serves all databases to users."""
    made = Served(tmp_path)
    versions = [(make_version(tmp_path, name, "v1", RECORDS), True) for name in NAMES]
    made.core.publish(publish(versions).table())
    made.core.let_read(BITMAPS)
    yield made
    made.close()


def request(client: socket.socket, method: str, *params: Value) -> None:
    client.sendall(rpc.request(1, method, [*params]))


def said(served: Served, client: socket.socket) -> list[Value] | bytes | None:
    """Return the result, or the method that was handed off."""
    received = msgpack.Unpacker(strict_map_key=False)
    found: list[list[Value]] = []

    def done() -> bool:
        with contextlib.suppress(BlockingIOError):
            received.feed(client.recv(1 << 20))
        found.extend(received)
        return bool(found or served.hand_offs)

    served.until(done)
    if not found:
        return served.hand_offs[-1].waiting.method
    assert found[0][2] is None, found
    return found[0][3]


def become(served: Served, client: socket.socket, user: int) -> None:
    """Let Python confirm that the client is this user."""
    client.sendall(rpc.request(0, "auth", [b"token"]))
    served.until(lambda: bool(served.hand_offs))
    served.loop.complete(served.hand_offs.pop(), ProvenResult(user, msgpack.packb("somebody")))
    assert served.receive(client, 13) == msgpack.packb([1, 0, None, "somebody"])


@pytest.mark.parametrize("user", [ANONYMOUS, PROVEN, ODD, 3])
def test_what_a_bit_allows_is_answered_here(served, user):
    """Gets, batches and scans are answered by bit; others are handed off with the user and address."""
    client = served.connect()
    if user != ANONYMOUS:
        become(served, client, user)
    reads = [("get", b"k001"), ("get_many", [b"k001"]), ("get_many", [*RECORDS]), ("scan", {"limit": 2})]
    for method, asked in reads:
        for place, name in enumerate(NAMES):
            request(client, method, name, asked)
            told = said(served, client)
            if place in MAY[user]:
                assert isinstance(told, list), (method, name)
            else:
                assert told == method.encode(), name
                pending = served.hand_offs.pop()
                assert pending.waiting.caller.user == user
                assert pending.waiting.caller.address == 0x7F000001
                served.loop.complete(pending, msgpack.packb([]))
                assert said(served, client) == []
    counted = served.core.counters()
    assert counted["gets"] == len(MAY[user])  # A refused read is not counted as served.


def test_requests_of_one_turn_are_of_one_user_each(served):
    """One user's right does not help another whose request is in the same turn."""
    clients = [served.connect() for _ in range(3)]
    for user, client in enumerate(clients):
        if user:
            become(served, client, user)
    for place, name in enumerate(NAMES):
        for user, client in enumerate(clients):
            client.sendall(rpc.request(user, "get", [name, b"k001"]))
        refused = {user for user in range(3) if place not in MAY[user]}
        served.until(lambda expected=refused: len(served.hand_offs) == len(expected))
        assert {pending.waiting.caller.user for pending in served.hand_offs} == refused
        while served.hand_offs:
            served.loop.complete(served.hand_offs.pop(), Refusal(msgpack.packb(["UNAUTHORIZED"])))
        for user, client in enumerate(clients):
            right = [1, user, ["UNAUTHORIZED"], None] if user in refused else [1, user, None, [b"v" * 100, "v1"]]
            assert served.receive(client, len(msgpack.packb(right))) == msgpack.packb(right)


def test_rights_that_change_amid_a_scan(served):
    """The next page and waiting requests are judged by the new rights."""
    client = served.connect()
    request(client, "scan", "db0", {"limit": 10})
    page = said(served, client)
    assert isinstance(page, list)
    served.core.let_read([bits(), None])
    request(client, "scan", "db0", {"limit": 10, "cursor": page[1]})
    assert said(served, client) == b"scan"
    served.loop.complete(served.hand_offs.pop(), msgpack.packb([]))
    assert said(served, client) == []
    served.core.let_read([])
    request(client, "get", "db3", b"k001")
    assert isinstance(said(served, client), list)


def test_a_user_who_is_gone_has_no_connection(served):
    """The connection ends after the answers to its requests; others go on."""
    gone, stays, other = served.connect(), served.connect(), served.connect()
    become(served, gone, ODD)
    become(served, other, PROVEN)
    request(stays, "get", "db0", b"k001")
    assert isinstance(said(served, stays), list)
    request(gone, "info")
    served.until(lambda: bool(served.hand_offs))
    served.loop.end_those_of(ODD)
    served.step()
    assert served.loop.connection_count == 3
    served.loop.complete(served.hand_offs.pop(), msgpack.packb("last"))
    assert served.ends(gone) == msgpack.packb([1, 1, None, "last"])
    for client in (stays, other):
        request(client, "get", "db0", b"k001")
        assert isinstance(said(served, client), list)
    gone.close()
    served.until(lambda: served.loop.connection_count == 2)
    assert served.core.counters()["closed_unauthorized"] == 1


def test_by_resp(served):
    """Python judges AUTH, RESET removes the user, and refusals have Redis' words."""
    client = served.connect(to=served.resp)

    def told(line: bytes, answer: Refusal | ProvenResult | None = None) -> bytes:
        client.sendall(line + b"\r\n")
        received = b""

        def done() -> bool:
            nonlocal received
            if served.hand_offs:
                assert answer is not None, served.hand_offs[0].waiting
                served.loop.complete(served.hand_offs.pop(), answer)
            with contextlib.suppress(BlockingIOError):
                received += client.recv(1 << 16)
            return received.endswith(b"\r\n")

        served.until(done)
        return received

    nobody = Refusal(msgpack.packb(["UNAUTHORIZED", "no", {"auth": "missing"}]))
    not_you = Refusal(msgpack.packb(["UNAUTHORIZED", "no", {}]))
    assert told(b"GET db1:k001", nobody) == b"-NOAUTH Authentication required.\r\n"
    assert told(b"GET db0:no") == b"$-1\r\n"
    assert told(b"AUTH token", ProvenResult(ODD, msgpack.packb(b"+OK\r\n"))) == b"+OK\r\n"
    assert told(b"GET db1:no") == b"$-1\r\n"
    assert told(b"GET db0:no", not_you) == b"-NOPERM No permissions to access a key or to run this command\r\n"
    assert told(b"MGET db1:no db0:no", not_you).startswith(b"-NOPERM ")
    assert told(b"RESET") == b"+RESET\r\n"
    assert told(b"GET db1:no", nobody).startswith(b"-NOAUTH ")
    assert told(b"HELLO 3 AUTH default token", ProvenResult(ODD, msgpack.packb(b"+hello\r\n"))) == b"+hello\r\n"
    assert told(b"GET db1:no") == b"_\r\n"


def test_a_bitmap_has_a_bit_for_each_database(served):
    """A short bitmap is refused, and nothing changes."""
    with pytest.raises(ValueError, match="are too few bits for 11 databases"):
        served.core.let_read([b"\xff"])
    client = served.connect()
    request(client, "get", "db0", b"k001")
    assert isinstance(said(served, client), list)
    request(client, "get", "db1", b"k001")
    assert said(served, client) == b"get"
