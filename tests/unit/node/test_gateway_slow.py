"""Slow tests of the gateway process; the fast ones are in `test_gateway.py`."""

from __future__ import annotations

import os
import signal
import socket

import trio

from gossipkv.address import Address
from gossipkv.http.order import GatewayPeer
from gossipkv.node.gateway import GatewayProcess
from gossipkv.settings.config import load
from tests.world.logs import capture_logs

NODE = Address("0.0.0.0", 7070)
PEER = GatewayPeer("10.0.0.1", "anonymous")

# The part that was read, and the rest.
ANSWERED_WITHOUT_A_NODE = b"OPTIONS /livez HT", b"TP/1.1\r\nHost: h\r\n\r\n"


def made(**flags):
    return GatewayProcess(load(flags=flags), Address("127.0.0.1", 8080), node=NODE, name="n1", peer_of=lambda _: PEER)


async def test_a_child_that_is_killed_while_connections_wait(nursery):
    """The child's connections are closed; those that it had not received go to the next child."""

    def detach(begun, rest=b""):
        client, served = (trio.socket.from_stdlib_socket(end) for end in socket.socketpair())
        kept.take(served.detach(), begun, None)
        nursery.start_soon(client.send, rest)
        return trio.SocketStream(client)

    async def process(count):
        with trio.fail_after(60):
            while len(told := [line["process"] for line in lines if line["event"] == "http"]) < count:
                await trio.sleep(0.01)
        return told[-1]

    kept = made()
    with capture_logs() as lines:
        nursery.start_soon(kept.run, os.close)
        had = detach(*ANSWERED_WITHOUT_A_NODE)
        assert (await had.receive_some()).startswith(b"HTTP/1.1 204 ")
        killed = await process(1)
        os.kill(killed, signal.SIGSTOP)
        waiting = [detach(*ANSWERED_WITHOUT_A_NODE) for _ in range(3)]
        await trio.sleep(0.1)
        os.kill(killed, signal.SIGKILL)
        assert await had.receive_some() == b""
        for client in (*waiting, detach(*ANSWERED_WITHOUT_A_NODE)):
            assert (await client.receive_some()).startswith(b"HTTP/1.1 204 ")
            await client.aclose()
        await had.aclose()
        assert await process(2) != killed
    assert kept.counters() == {"http_detached": 5, "http_unserved": 0}
    nursery.cancel_scope.cancel()


async def test_a_child_that_lost_its_node(nursery):
    """The child ends when it cannot ask the node, and the next child gets another connection."""
    kept = made()
    with capture_logs() as lines:
        nursery.start_soon(kept.run, os.close)
        client, served = (trio.socket.from_stdlib_socket(end) for end in socket.socketpair())
        kept.take(served.detach(), b"GET /debug/vars HTTP/1.1\r\nHost: localhost\r\n\r\n", None)
        with trio.fail_after(60), client:
            await client.recv(1)
            while not (ended := [line for line in lines if line["event"] == "http_ended"]):
                await trio.sleep(0.01)
    assert ended[0]["reason"] == "the process ended with status 1: the node closed the connection"
    nursery.cancel_scope.cancel()
