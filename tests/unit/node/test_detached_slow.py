"""Connections on their way to the gateway's child: none is lost in silence, whatever becomes of the child."""

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
    """Connections over TCP, each a client's end and one that is detached."""

    def __init__(self, stack):
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._detached: set[int] = set()

    def connect(self):
        """A client, and the descriptor of the other end, which somebody else is to close."""
        client = self._stack.enter_context(socket.create_connection(self._listener.getsockname()))
        client.settimeout(5)
        descriptor = self._listener.accept()[0].detach()
        self._detached.add(os.fstat(descriptor).st_ino)
        return client, descriptor

    def are_open(self):
        """Whether this process has one of those that were to be closed."""
        open_here = set()
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # That of the directory itself.
                open_here.add(os.fstat(int(descriptor)).st_ino)
        return bool(self._detached & open_here)

    def detach(self, way, begun):
        """A client of which so much was read."""
        client, descriptor = self.connect()
        way.take(descriptor, begun, PEER)
        return client


@pytest.fixture
def clients():
    """They are closed behind the test, which has left none of the other ends open."""
    with contextlib.ExitStack() as stack:
        clients = Clients(stack)
        yield clients
        assert not clients.are_open()


def received(receiver):
    """What the child has received by now, each closed."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            descriptor, passed = passing.receive(receiver)
            os.close(descriptor)
            found.append(GatewayPeer.of(passed)[1])
    return found


@contextlib.contextmanager
def child_of(way):
    """Where a child receives, as long as it lives."""
    with way.to_child() as descriptor, socket.socket(fileno=os.dup(descriptor)) as receiver:
        yield receiver


def heard(client):
    """All that comes until the other end closes."""
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


@pytest.fixture
async def way(nursery):
    """One that runs, until the test is over."""
    way = DetachedConnections()
    nursery.start_soon(way.run)
    yield way
    nursery.cancel_scope.cancel()


async def test_they_go_to_the_child_in_their_order(autojump_clock, clients, way):
    """With what was read of them, the longest that may be; nothing of them stays here."""
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
    """In the form of every other answer; once a minute the log says how many there were."""
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
    """Before what came later, and in the time that each has had from the beginning."""
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
    """Has what its socket takes; the others wait, in their order, and who waits too long for it is told."""
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
    """One more than may wait is told at once, and not the others."""
    monkeypatch.setattr(detached, "MAX_WAITING", 2)
    waiting = [clients.detach(way, GET) for _ in range(2)]
    assert heard(clients.detach(way, GET)).startswith(b"HTTP/1.1 503 ")
    with child_of(way) as receiver:
        await wait_all_tasks_blocked()
        assert len(received(receiver)) == len(waiting)


async def test_the_end(autojump_clock, clients, nursery):
    """Whoever no child has received yet is told, in its socket or not, and so is whoever comes."""
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
    """A client that takes nothing hears nothing; one that still sends hears it; one that is gone is no trouble."""
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
    """What a child left cannot be taken back: it is closed, and counted."""
    with contextlib.ExitStack() as stack:
        with way.to_child():
            client = clients.detach(way, GET)
            await wait_all_tasks_blocked()
            stack.enter_context(no_descriptor_free())
        assert client.recv(1) == b""
    assert way.counters() == {"http_detached": 1, "http_unserved": 1}
