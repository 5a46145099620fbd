"""Tunnels: another process serves the plain bytes of a TLS connection."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import TYPE_CHECKING

import pytest

from tests.oracle import http
from tests.unit.serving.secured import Client, Secured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.serving.loop import Caller

PLAIN = b"GET /db/key007 HTTP/1.1\r\nHost: a\r\n\r\n"
STRANGE = b"PUT /db/key007 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
LARGE = random.Random(5).randbytes(3 << 20)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Secured]:
    served = Secured(tmp_path)
    yield served
    served.close()


def detached(served: Secured, said: bytes, *, receive_buffer: int | None = None) -> tuple[Client, socket.socket, bytes]:
    """Return a detached client, the socket that serves it, and the bytes received so far."""
    client = served.meet(to=served.http, receive_buffer=receive_buffer)
    client.send(said)
    taken: list[tuple[int, Caller, bytes]] = []

    def done() -> bool:
        taken.extend(served.loop.take_detached())
        return bool(taken)

    served.advance(client, done)
    ((descriptor, _, begun),) = taken
    server = socket.socket(fileno=descriptor)
    server.settimeout(0)
    served.clients.append(server)
    return client, server, begun


class Server:
    """A server that sends and receives what it can between steps."""

    def __init__(self, server: socket.socket, begun: bytes, to_send: bytes = b"") -> None:
        self.socket, self.heard, self.to_send = server, bytearray(begun), memoryview(to_send)
        self.has_ended = False

    def advance(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.socket.recv(1 << 16)
            self.heard += data
            self.has_ended = not data
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            self.to_send = self.to_send[self.socket.send(self.to_send) :]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_what_goes_through_is_the_oracle_s(served: Secured, before: int) -> None:
    """Plain requests are answered here; the tunnel gets all from the first strange request on."""
    said = PLAIN * before + STRANGE
    client, server, begun = detached(served, said)
    more = PLAIN + LARGE
    client.tls.write(more)
    other = Server(server, begun, b"HTTP/1.1 200 OK\r\n\r\n" + LARGE)

    def done() -> bool:
        client.advance()
        other.advance()
        return client.received.endswith(LARGE[-1000:]) and other.heard.endswith(LARGE[-1000:])

    served.until(done)
    assert other.heard == said[http.read(said).at :] + more
    answers, _, rest = bytes(client.received).partition(b"HTTP/1.1 200 OK\r\n\r\n")
    assert answers.count(b"\r\n\r\nvalue7") == before
    assert rest == LARGE
    assert served.counters("connections") == 0
    assert served.loop.connection_count == 1
    server.close()


def test_who_reads_slowly_slows_down_who_writes(served: Secured) -> None:
    """Neither side is read while the other takes nothing, so only the sockets' buffers fill."""
    client, server, begun = detached(served, STRANGE, receive_buffer=4096)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sent = [0, 0]

    def stuck() -> bool:
        before = sum(sent)
        with contextlib.suppress(BlockingIOError):
            sent[0] += server.send(LARGE)
        client.tls.write(LARGE[:16_000])
        client.flush()
        sent[1] += 16_000
        return sum(sent) == before + 16_000 and len(client.unsent) > 1 << 20

    served.until(stuck)
    other = Server(server, begun)

    def done() -> bool:
        client.advance()
        other.advance()
        return len(client.received) == sent[0] and len(other.heard) == len(STRANGE) + sent[1]

    served.until(done)
    server.close()


@pytest.mark.parametrize("first", ["client", "server"])
def test_the_ends_are_passed_on(served: Secured, first: str) -> None:
    """Each side may continue after the other's end; after both ends nothing is left."""
    client, server, begun = detached(served, STRANGE)
    other = Server(server, begun)
    if first == "client":
        with contextlib.suppress(Exception):
            client.tls.unwrap()
        client.flush()
        served.until(lambda: other.advance() or other.has_ended)
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)
        served.until(lambda: served.loop.connection_count == 0)
        client.hear()
        assert client.tls.read(100) == b"answer"
        client.tls.unwrap()
    else:
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)
        served.advance(client, lambda: client.has_ended)
        assert client.received == b"answer"
        client.send(b"more")
        served.until(lambda: other.advance() or other.heard.endswith(b"more"))
        client.socket.close()
        served.until(lambda: served.loop.connection_count == 0)
    server.close()


def test_a_server_that_closes(served: Secured) -> None:
    """A slow client gets all of the server's bytes and then the end, though it sent more."""
    client, server, _ = detached(served, STRANGE, receive_buffer=4096)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    size = server.send(LARGE)
    assert size > 1 << 17
    client.send(b"in vain")
    server.close()
    for _ in range(10):
        served.step()
    served.advance(client, lambda: client.has_ended)
    assert client.received == LARGE[:size]
    client.socket.close()
    served.until(lambda: served.loop.connection_count == 0)


@pytest.mark.parametrize("way", ["closes", "resets"])
def test_a_client_that_is_gone(served: Secured, way: str) -> None:
    """The server sees the end, and nothing is left."""
    client, server, begun = detached(served, STRANGE)
    if way == "resets":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.socket.close()
    other = Server(server, begun)
    served.until(lambda: other.advance() or other.has_ended)
    server.close()
    served.until(lambda: served.loop.connection_count == 0)


def test_a_drain_waits_for_it(served: Secured) -> None:
    """Bytes on their way arrive; a tunnel that does not end is cut with the loop."""
    client, server, _ = detached(served, STRANGE)
    server.sendall(b"answer")
    served.loop.drain()
    served.step()
    assert served.loop.connection_count == 1
    server.close()
    served.until(lambda: served.loop.connection_count == 0)
    client.hear()
    assert client.tls.read(100) == b"answer"


def test_it_ends_with_the_loop(served: Secured) -> None:
    """Both sides see the end."""
    client, server, begun = detached(served, STRANGE)
    served.loop.close()
    client.hear()
    with contextlib.suppress(OSError):
        client.tls.read(100)
    other = Server(server, begun)
    other.advance()
    assert other.has_ended
    server.close()
