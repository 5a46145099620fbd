"""TLS over real sockets, stepped by hand: Python's `ssl` on the other side."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from gossipkv.serving._tls import Tls
from gossipkv.wire import rpc
from tests.unit.serving.secured import ALL, Authority, Client
from tests.unit.serving.test_serving import PING, PONG, RECORDS, Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GET = rpc.request(7, "get", ["db", b"key007"])
GOT = rpc.response(7, [RECORDS[b"key007"], "v1"])
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whom clients trust."""
    return Authority(tmp_path)


@pytest.fixture
def served(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    """A loop that speaks TLS at each of its listeners."""
    served = Served(tmp_path)
    served.loop.use_tls(Tls(*authority.pair("node"), listeners=ALL))
    yield served
    served.close()


def until(served: Served, client: Client, size: int) -> bytes:
    """The next so many bytes that the client receives."""

    def done() -> bool:
        client.advance()
        return len(client.received) >= size

    served.until(done)
    received = bytes(client.received[:size])
    del client.received[:size]
    return received


def shaken(served: Served, context: ssl.SSLContext, *, resp: bool = False, receive_buffer: int | None = None) -> Client:
    """A client whose handshake is done."""
    client = Client(served.connect(to=served.resp if resp else None, receive_buffer=receive_buffer), context)

    def done() -> bool:
        client.advance()
        return client.is_shaken

    served.until(done)
    return client


@pytest.mark.parametrize("version", VERSIONS)
def test_a_get_by_each_listener(served: Served, authority: Authority, version: ssl.TLSVersion) -> None:
    """MessagePack-RPC and RESP, by both versions."""
    client = shaken(served, authority.trusting(version=version))
    client.send(PING + GET)
    assert until(served, client, len(PONG + GOT)) == PONG + GOT
    client = shaken(served, authority.trusting(version=version), resp=True)
    client.send(b"GET db:key007\r\n")
    assert until(served, client, 12) == b"$6\r\nvalue7\r\n"
    assert served.counters("tls_handshakes") == 2
