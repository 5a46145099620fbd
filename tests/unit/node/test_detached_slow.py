"""Connections on their way to the gateway's child are passed or answered, whatever happens to the child."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gossipkv.http.answers import text
from gossipkv.http.order import GatewayPeer
from gossipkv.node import detached
from gossipkv.node.detached import PATIENCE_S, DetachedConnections
from gossipkv.processes import passing
from tests.unit.http.asking import read_answers
from tests.unit.processes.test_passing import no_descriptor_free
from tests.world.logs import capture_logs

PEER = GatewayPeer("10.0.0.1", "ana")
GET = b"GET /db/k HTTP/1.1\r\nHost: h\r\n\r\n"


class Clients:
    """TCP connections, each with a client's end and a detached one."""

    def __init__(self, stack):
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._detached: set[int] = set()

    def connect(self):
        """Return a client, and the other end's descriptor, which the callee must close."""
        client = self._stack.enter_context(socket.create_connection(self._listener.getsockname()))
        client.settimeout(5)
        descriptor = self._listener.accept()[0].detach()
        self._detached.add(os.fstat(descriptor).st_ino)
        return client, descriptor

    def are_open(self):
        """Return True if this process still has one of the descriptors."""
        open_here = set()
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # The descriptor of the directory itself.
                open_here.add(os.fstat(int(descriptor)).st_ino)
        return bool(self._detached & open_here)

    def detach(self, way, begun):
        """Return a client of which `begun` was read already."""
        client, descriptor = self.connect()
        way.take(descriptor, begun, PEER)
        return client


@pytest.fixture
def clients():
    """Close the clients after the test, and check that no other end stayed open."""
    with contextlib.ExitStack() as stack:
        clients = Clients(stack)
        yield clients
        assert not clients.are_open()


def received(receiver):
    """Return the bytes already read of each connection that the child received, and close all."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            descriptor, passed = passing.receive(receiver)
            os.close(descriptor)
            found.append(GatewayPeer.of(passed)[1])
    return found


@contextlib.contextmanager
def child_of(way):
    """Yield the socket of a child."""
    with way.to_child() as descriptor, socket.socket(fileno=os.dup(descriptor)) as receiver:
        yield receiver


def heard(client):
    """Return all bytes until the other end closes."""
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


@pytest.fixture
async def way(nursery):
    """Yield connections whose task runs until the test ends."""
    way = DetachedConnections()
    nursery.start_soon(way.run)
    yield way
    nursery.cancel_scope.cancel()


async def test_they_go_to_the_child_in_their_order(autojump_clock, clients, way):
    """The child gets the bytes read so far, up to the longest, and no descriptor stays here."""
    begun = [b"", GET, b"x" * (72 << 10)]
    clients.detach(way, begun[0])
    await wait_all_tasks_blocked()
    with child_of(way) as receiver:
        for each in begun[1:]:
            clients.detach(way, each)
        await wait_all_tasks_blocked()
        assert received(receiver) == begun
    assert way.counters() == {"http_detached": 3, "http_unserved": 0}


async def test_who_waits_too_long_is_told(autojump_clock, clients, way):
    """The answer has the usual form; the log has the number once a minute."""
    with capture_logs() as lines:
        first = clients.detach(way, GET)
        await trio.sleep(PATIENCE_S - 1)
        second = clients.detach(way, b"HEAD" + GET[3:])
        await trio.sleep(1.5)
        with child_of(way) as receiver:
            await wait_all_tasks_blocked()
            assert received(receiver) == [b"HEAD" + GET[3:]]
        assert second.recv(1) == b""
        third = clients.detach(way, b"HEAD" + GET[3:])
        await trio.sleep(70)
    ((status, headers, body),) = read_answers(heard(first), ["GET"])
    like = text(503, body.decode(), "NOT_READY")
    said = {name: value for name, value in headers.items() if name not in {b"content-length", b"connection"}}
    assert (status, body, headers[b"connection"]) == (503, like.body, b"close")
    assert said == {**{name.lower(): value for name, value in like.headers}, b"retry-after": b"1"}
    ((status, headers, body),) = read_answers(heard(third), ["HEAD"])
    assert (status, int(headers[b"content-length"]), body) == (503, len(like.body), b"")
    (line,) = lines
    assert (line["event"], line["reason"], line["count"]) == ("http_trouble", "unserved_waited", 2)
    assert way.counters() == {"http_detached": 3, "http_unserved": 2}


async def test_what_a_child_left_is_the_next_one_s(autojump_clock, clients, way):
    """Returned connections come before later ones, within each one's own time limit."""
    with child_of(way) as receiver:
        for number in range(4):
            clients.detach(way, b"%d" % number)
            await trio.sleep(1)
        os.close(passing.receive(receiver).descriptor)
    clients.detach(way, b"4")
    await trio.sleep(PATIENCE_S - 2.5)
    with child_of(way) as receiver:
        await wait_all_tasks_blocked()
        assert received(receiver) == [b"2", b"3", b"4"]
    assert way.counters() == {"http_detached": 5, "http_unserved": 1}


async def test_a_child_that_is_busy(autojump_clock, clients, way):
    """The child gets as much as its socket takes; the rest waits in order and is refused after its time."""
    sent = [b"%2d" % number * (36 << 10) for number in range(30)]
    with child_of(way) as receiver:
        for each in sent:
            clients.detach(way, each)
        await trio.sleep(1)
        come = received(receiver)
        assert 0 < len(come) < 15
        await trio.sleep(1)
        come += received(receiver)
        assert come == sent[: len(come)]
        await trio.sleep(PATIENCE_S)
        come += received(receiver)
        assert come == sent[: len(come)]
    assert way.counters()["http_unserved"] == len(sent) - len(come) > 0


async def test_too_many(autojump_clock, clients, way, monkeypatch):
    """Only the one beyond the limit is refused at once."""
    monkeypatch.setattr(detached, "MAX_WAITING", 2)
    waiting = [clients.detach(way, GET) for _ in range(2)]
    assert heard(clients.detach(way, GET)).startswith(b"HTTP/1.1 503 ")
    with child_of(way) as receiver:
        await wait_all_tasks_blocked()
        assert len(received(receiver)) == len(waiting)


async def test_the_end(autojump_clock, clients, nursery):
    """Connections that no child received are refused, and so are later ones."""
    way = DetachedConnections()
    with capture_logs() as lines:
        async with trio.open_nursery() as running:
            running.start_soon(way.run)
            with child_of(way) as receiver:
                sent = clients.detach(way, GET)
                await wait_all_tasks_blocked()
                way.end()
                later = clients.detach(way, GET)
                assert received(receiver) == []
            running.cancel_scope.cancel()
    for client in (sent, later, clients.detach(way, GET)):
        assert heard(client).startswith(b"HTTP/1.1 503 ")
    assert [(line["reason"], line["count"]) for line in lines] == [("unserved_at_the_end", 2)]
    assert way.counters() == {"http_detached": 3, "http_unserved": 3}


async def test_a_refusal_waits_for_nobody(autojump_clock, clients):
    """A blocked client gets nothing, a sending one its refusal, and a closed one does no harm."""
    way = DetachedConnections()
    way.end()
    _, full = clients.connect()
    with socket.socket(fileno=os.dup(full)) as filling, contextlib.suppress(BlockingIOError):
        filling.settimeout(0)
        while True:
            filling.send(b"x" * (1 << 20))
    way.take(full, GET, PEER)
    sending, descriptor = clients.connect()
    sending.sendall(b"x" * 200_000)
    way.take(descriptor, b"POST ", PEER)
    assert heard(sending).startswith(b"HTTP/1.1 503 ")
    gone, descriptor = clients.connect()
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    gone.close()
    way.take(descriptor, GET, PEER)
    await trio.lowlevel.checkpoint()


async def test_without_a_free_descriptor(autojump_clock, clients, way):
    """A connection that cannot be taken back from the child is closed and counted."""
    with contextlib.ExitStack() as stack:
        with way.to_child():
            client = clients.detach(way, GET)
            await wait_all_tasks_blocked()
            stack.enter_context(no_descriptor_free())
        assert client.recv(1) == b""
    assert way.counters() == {"http_detached": 1, "http_unserved": 1}
