"""Connections that a node has begun to read are served as if the gateway had read all of them itself."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gossipkv.http import detached
from gossipkv.http.answers import NOBODY
from gossipkv.http.connection import READ_BYTES
from gossipkv.http.detached import DetachedListener
from gossipkv.http.gateway import HttpGateway
from gossipkv.http.order import GatewayLimits
from gossipkv.http.site import Site
from gossipkv.processes import passing
from tests.unit.http.asking import context_of, read_answers
from tests.unit.http.fake_node import FakeDatabase, FakeNode
from tests.unit.processes.test_passing import no_descriptor_free

GET = b"GET /db/k HTTP/1.1\r\nHost: h\r\n\r\n"
BATCH = b"POST /db/_mget HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"


class Served:
    """A gateway at the receiving end, and the node at the other; `stack` closes the sockets."""

    def __init__(self, stack, nursery, **limits):
        self._stack = stack
        self._sender, receiver = passing.pair()
        stack.callback(self._sender.close)
        site = Site(context_of(FakeNode({"db": FakeDatabase({"1": {b"k": b"value"}}, "1", {"1": 0})})), {}, None)
        self.gateway = HttpGateway(site, GatewayLimits(**limits))
        nursery.start_soon(self.gateway.run, DetachedListener(receiver))

    def detach(self, begun):
        """Pass on a connection after `begun` was read; return the client's side."""
        client, served = socket.socketpair()
        with served:
            passing.send(self._sender, served.fileno(), NOBODY.before(begun))
        self._stack.callback(client.close)
        return trio.SocketStream(trio.socket.from_stdlib_socket(client))


@pytest.fixture
def serve(nursery):
    """Return a function that starts a gateway with given limits."""
    with contextlib.ExitStack() as stack:
        yield partial(Served, stack, nursery)
        nursery.cancel_scope.cancel()


async def answers(client, rest, methods):
    """Send the rest; return all answers until the other end closes."""
    await client.send_all(rest)
    await client.send_eof()
    came = b"".join([bytes(part) async for part in client])
    assert came.count(b"HTTP/1.1 ") == len(methods), came
    return read_answers(came, methods)


async def test_a_request_may_be_cut_anywhere(autojump_clock, serve):
    served, request = serve(), BATCH % (len(b'"k"'), b'"k"')
    found = [await answers(served.detach(request[:cut]), request[cut:], ["POST"]) for cut in range(len(request) + 1)]
    assert {status for ((status, _, _),) in found} == {200}
    assert len({body for ((_, _, body),) in found}) == 1


async def test_more_was_read_than_is_taken_at_once(autojump_clock, serve):
    """A long body and the request behind it stay in order."""
    body = b'"none"\n' * 10_000
    begun = BATCH % (len(body), body) + GET
    assert READ_BYTES < len(begun) < passing.MAX_BYTES
    first, second = await answers(serve().detach(begun), b"", ["POST", "GET"])
    assert (first[0], second[2]) == (200, b"value")


async def test_its_limits_hold(autojump_clock, serve):
    """A connection beyond the limit replaces the longest idle one."""
    served = serve(max_connections=2)
    clients = []
    for _ in range(3):
        clients.append(served.detach(GET))
        assert b"value" in await clients[-1].receive_some()
    assert await clients[0].receive_some() == b""
    assert served.gateway._troubles == {"closed_idle_for_others": 1}


async def test_at_the_end_of_descriptors_nobody_is_lost(autojump_clock, serve):
    """The gateway pauses, and serves the waiting client once a descriptor is free."""
    served = serve()
    client = served.detach(GET)
    with no_descriptor_free():
        await trio.sleep(1)
    assert b"value" in await client.receive_some()
    assert served.gateway._troubles["accept_pauses"] >= 1


async def test_one_that_is_lost_all_the_same_is_told(autojump_clock, monkeypatch):
    """Another thread took the last descriptor: the client's connection is closed, and the loss is reported."""
    monkeypatch.setattr(detached, "_check_that_one_is_free", lambda open_one: None)
    sender, receiver = passing.pair()
    with sender:
        async with DetachedListener(receiver) as listener:
            passing.send(sender, 0, b"")
            with no_descriptor_free(), pytest.raises(OSError, match="lost") as caught:
                await listener.accept()
    assert caught.value.errno == errno.EMFILE


async def test_what_the_node_takes_back_and_its_end(autojump_clock):
    """The listener accepts neither a connection that the node takes back nor the end of the pipe."""
    sender, receiver = passing.pair()
    listener = DetachedListener(receiver.dup())
    accepted = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def accept():
            accepted.append(await listener.accept())

        await wait_all_tasks_blocked()
        passing.send(sender, 0, b"")
        os.close(passing.receive(receiver).descriptor)
        await wait_all_tasks_blocked()
        sender.close()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await listener.aclose()
    receiver.close()
    assert accepted == []
