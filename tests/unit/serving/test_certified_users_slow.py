"""Client certificates that name users: the connection is that user's from the start, in every protocol."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING
from uuid import uuid4

import msgpack
import pytest

from gossipkv.serving.loop import ProvenResult, Refusal
from gossipkv.wire import rpc
from tests.unit.serving.secured import Authority, Client, Intermediate, Secured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANA, BOB = 2, 3
USERS = {"ana": ANA, "bob": BOB}
GET = rpc.request(7, "get", ["db", b"key007"])
PLAIN = b"GET /db/key007 HTTP/1.1\r\nHost: a\r\n\r\n"
STRANGE = b"PUT /db/key007 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


class Named(Secured):
    """A loop that knows users by certificates; only `ana` may read."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.core.let_read([b"\0", None, b"\1", b"\0"])
        self.clients_authority = Authority(directory, "clients")
        self.know()

    def know(self, peers: Path | None = None, **users: int) -> None:
        named = users or USERS
        self.use(self.pair, self.clients_authority.path, peers, user_named=lambda name: named.get(name, 0))

    def context(self, name: str, by: Authority | None = None, **more: object) -> ssl.SSLContext:
        return self.authority.trusting((by or self.clients_authority).pair(name, **more))

    def asks_as(self, client: Client) -> int | None:
        """Return the user of a hand-off for a forbidden read, or None if the read is allowed."""
        client.send(GET)
        self.advance(client, lambda: self.hand_offs or client.received)
        if client.received:
            client.received.clear()
            return None
        pending = self.hand_offs.pop()
        self.loop.complete(pending, msgpack.packb("done"))
        self.take(client, len(rpc.response(7, "done")))
        return pending.waiting.caller.user


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Named]:
    served = Named(tmp_path)
    yield served
    served.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_shows_a_certificate_is_its_user(served: Named, version: ssl.TLSVersion) -> None:
    """The user holds without `auth`, also for a resumed session; an unknown name is nobody."""
    for name, user in (("ana", None), ("bob", BOB), ("carol", 0), ("anonymous", 0)):
        context = served.context(name)
        context.minimum_version = context.maximum_version = version
        client = served.meet(context)
        assert served.asks_as(client) == user
        again = served.meet(context, ticket=client.tls.session)
        assert served.asks_as(again) == user
        assert again.tls.session_reused
    assert served.asks_as(served.meet()) == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_under_an_intermediate_authority(served: Named, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A resumed session still knows the issuer: only the users' authority counts."""
    between, strange = Intermediate(tmp_path, "between"), Intermediate(tmp_path, "strange")
    served.clients_authority = between
    served.know(strange.path)
    for name, by, user in (("ana", between, None), ("bob", between, BOB), ("ana", strange, 0)):
        context = served.context(name, by)
        context.minimum_version = context.maximum_version = version
        ticket = None
        for is_again in (False, True, True):
            client = served.meet(context, ticket=ticket)
            assert served.asks_as(client) == user
            assert client.tls.session_reused is is_again
            ticket = client.tls.session


def test_who_may_sign_for_users(served: Named, tmp_path: Path) -> None:
    """The nodes' authority cannot sign for users, and a node's certificate is not a user's."""
    peers = Authority(tmp_path, "peers")
    served.know(peers.path)
    assert served.asks_as(served.meet(served.context("bob", peers, uuid=uuid4()))) == 0
    assert served.asks_as(served.meet(served.context("bob", uuid=uuid4()))) == 0
    assert served.asks_as(served.meet(served.context("bob", peers))) == 0
    assert served.asks_as(served.meet(served.context("bob"))) == BOB


def test_a_token_counts_before_the_certificate(served: Named) -> None:
    """A token overrides the certificate; RESET in RESP restores the certificate's user."""
    client = served.meet(served.context("bob"))
    client.send(rpc.request(1, "auth", [b"token"]))
    served.advance(client, lambda: bool(served.hand_offs))
    served.loop.complete(served.hand_offs.pop(), ProvenResult(ANA, msgpack.packb("ana")))
    served.take(client, len(rpc.response(1, "ana")))
    assert served.asks_as(client) is None
    client = served.meet(served.context("ana"), to=served.resp)
    client.send(b"GET db:no\r\nAUTH token\r\n")
    served.advance(client, lambda: bool(served.hand_offs))
    served.loop.complete(served.hand_offs.pop(), ProvenResult(BOB, msgpack.packb(b"+OK\r\n")))
    assert served.take(client, 10) == b"$-1\r\n+OK\r\n"
    client.send(b"GET db:no\r\n")
    served.advance(client, lambda: bool(served.hand_offs))
    assert served.hand_offs[0].waiting.caller.user == BOB
    served.loop.complete(served.hand_offs.pop(), Refusal(msgpack.packb(["UNAUTHORIZED", "no", {}])))
    client.send(b"RESET\r\nGET db:no\r\n")
    refused = b"-NOPERM No permissions to access a key or to run this command\r\n"
    assert served.take(client, len(refused) + 13) == refused + b"+RESET\r\n$-1\r\n"


def test_by_http(served: Named) -> None:
    """A plain read is judged as that user's, and the gateway learns user and address."""
    for name, user in (("ana", ANA), ("bob", BOB), ("carol", 0)):
        client = served.meet(served.context(name), to=served.http)
        client.send(PLAIN)
        if user == ANA:
            assert served.take(client, 15) == b"HTTP/1.1 200 OK"
        else:
            served.advance(client, lambda: bool(served.hand_offs))
            assert served.hand_offs[0].waiting.caller.user == user
            served.loop.complete(served.hand_offs.pop(), Refusal(msgpack.packb(["UNAUTHORIZED", "no", {}])))
        client.send(STRANGE)
        taken = []

        def done(taken: list[object] = taken) -> bool:
            taken.extend(served.loop.take_detached())
            return bool(taken)

        served.advance(client, done)
        ((descriptor, caller, begun),) = taken
        os.close(descriptor)
        assert (caller.user, caller.address, begun) == (user, 0x7F000001, STRANGE)


def test_a_user_who_is_gone_has_no_connection(served: Named) -> None:
    """All connections of the removed user end; a connection with another user's token stays."""
    gone, other = (served.meet(served.context("bob")) for _ in range(2))
    other.send(rpc.request(1, "auth", [b"token"]))
    served.advance(other, lambda: bool(served.hand_offs))
    served.loop.complete(served.hand_offs.pop(), ProvenResult(ANA, msgpack.packb("ana")))
    served.take(other, len(rpc.response(1, "ana")))
    served.loop.end_those_of(BOB)
    served.advance(gone, lambda: gone.has_ended)
    assert served.asks_as(other) is None
