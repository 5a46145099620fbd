"""A node configures, restarts and drains its gateway process, in virtual time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from types import SimpleNamespace

import pytest
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from gossipkv.address import Address
from gossipkv.http.order import GatewayOrder, GatewayPeer, GatewayWord, Types
from gossipkv.node import gateway
from gossipkv.node.gateway import GatewayProcess
from gossipkv.processes.program import read_order
from gossipkv.settings.config import load
from gossipkv.settings.databases import DatabaseSettings
from tests.world.logs import capture_logs

NODE = Address("0.0.0.0", 7070)
PEER = GatewayPeer("10.0.0.1", "anonymous")


class FakeChild:
    """A fake of a child process, which the test drives."""

    pid = 1
    returncode = None

    def __init__(self):
        self.stdin, self._orders = memory_stream_one_way_pair()
        self._says, self.stdout = memory_stream_one_way_pair()
        self._fails, self.stderr = memory_stream_one_way_pair()
        self._ended = trio.Event()
        self._heard = b""

    async def wait(self):
        await self._ended.wait()

    async def end(self, status, said=b""):
        """End with this status, after this text on standard error."""
        await self._fails.send_all(said)
        for stream in (self._fails, self._says):
            await stream.aclose()
        self.returncode = status
        self._ended.set()

    async def say(self, line):
        await self._says.send_all(line + b"\n")

    async def hear(self):
        while b"\n" not in self._heard:
            self._heard += await self._orders.receive_some()
        line, _, self._heard = self._heard.partition(b"\n")
        return line


@pytest.fixture
def children(monkeypatch):
    """Return the started children; `refusals` makes the next starts fail."""
    started = SimpleNamespace(all=[], at=[], refusals=0, descriptors=set(), may_start=trio.Event())
    started.may_start.set()

    @contextlib.asynccontextmanager
    async def running(module, *, descriptors):
        assert module == "gossipkv.http.gateway_child"
        started.descriptors.update(descriptors)
        started.at.append(trio.current_time())
        await started.may_start.wait()
        if started.refusals:
            started.refusals -= 1
            raise OSError(11, "no more processes")
        child = FakeChild()
        started.all.append(child)
        yield child, 6

    monkeypatch.setattr(gateway.child, "running", running)
    return started


def made(**flags):
    return GatewayProcess(load(flags=flags), Address("127.0.0.1", 8080), node=NODE, name="n1", peer_of=lambda _: PEER)


async def test_the_order_and_the_words(autojump_clock, nursery, children):
    """The order has the node, sockets and limits; later words have changes only."""
    kept = made(content_type="text/plain", http_max_connections="7", max_queued_total="1MiB", idle_timeout="off")
    served = []
    nursery.start_soon(kept.run, served.append)
    await wait_all_tasks_blocked()
    (child,) = children.all
    order = read_order(await child.hear(), GatewayOrder)
    assert (order.node, order.address) == (NODE, Address("127.0.0.1", 8080))
    assert (order.name, {order.detached, order.connection}, order.leash) == ("n1", children.descriptors, 6)
    with socket.socket(fileno=served.pop()) as end:
        assert end.recv(1) == b"", "what the child has not is nobody's"
    assert order.types == Types("text/plain", {})
    assert (order.limits.max_connections, order.limits.held_bytes, order.limits.idle_timeout_ms) == (7, 1 << 20, 0)
    kept.reconfigure({})
    kept.reconfigure({"db": DatabaseSettings(content_type="image/png"), "other": DatabaseSettings()})
    assert read_order(await child.hear(), GatewayWord) == GatewayWord(Types("text/plain", {"db": "image/png"}))
    kept.drain(3)
    word = read_order(await child.hear(), GatewayWord)
    assert (word.types, word.drain_ms) == (Types("text/plain", {"db": "image/png"}), 3000)
    nursery.cancel_scope.cancel()


async def test_it_is_started_again(autojump_clock, nursery, children):
    """Pauses double up to a limit, also after failed starts, and reset after a long life."""
    kept = made()
    children.refusals = 2
    with capture_logs() as lines:
        nursery.start_soon(kept.run, os.close)
        for number in range(12):
            while len(children.all) <= number:
                await trio.sleep(0.01)
            await trio.sleep(61 if number == 9 else 0)
            await children.all[number].end(-9 if number else 1, b"Traceback\nValueError: why\n")
        await trio.sleep(0.01)
    nursery.cancel_scope.cancel()
    ended = [line for line in lines if line["event"] == "http_ended"]
    assert [line["again_ms"] for line in ended] == [
        100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000, 10_000, 100, 200, 400,
    ]  # fmt: skip
    assert ended[0]["reason"] == "the process cannot be started: no more processes"
    assert ended[2]["reason"] == "the process ended with status 1: ValueError: why"
    assert ended[3]["reason"] == "the process was killed by signal 9: ValueError: why"


async def test_its_log_is_the_node_s(autojump_clock, nursery, children):
    """Valid lines keep level and fields; other lines are dropped."""
    kept = made()
    nursery.start_soon(kept.run, os.close)
    await wait_all_tasks_blocked()
    with capture_logs() as lines:
        for line in (
            b"printed", b"[]", b'["critical", "x", {}]', b'["info", 1, {}]', b'["bind", "x", {}]', b"[" * 1000,
            json.dumps(["warning", "http_trouble", {"reason": "why", "count": 2}]).encode(),
        ):  # fmt: skip
            await children.all[0].say(line)
        await wait_all_tasks_blocked()
    assert lines == [{"log_level": "warning", "event": "http_trouble", "reason": "why", "count": 2}]
    nursery.cancel_scope.cancel()


async def test_a_drain(autojump_clock, nursery, children):
    """New connections are refused at once; the child ends by itself within the limit."""
    for ends, waited_s in ((True, 1), (False, 5)):
        kept = made()
        with capture_logs() as lines:
            nursery.start_soon(kept.run, os.close)
            await wait_all_tasks_blocked()
            kept.drain(5)
            client, served = socket.socketpair()
            kept.take(served.detach(), b"", None)
            with client:
                assert client.recv(12) == b"HTTP/1.1 503"
            began = trio.current_time()
            if ends:
                await trio.sleep(1)
                await children.all[-1].end(0)
            await kept.ended()
            assert trio.current_time() - began == pytest.approx(waited_s)
        assert kept.counters() == {"http_detached": 1, "http_unserved": 1}
        assert {line["event"] for line in lines} <= {"http_trouble"}
    nursery.cancel_scope.cancel()


async def test_a_drain_while_there_is_none(autojump_clock, nursery, children):
    """No child is started or waited for; a child that is starting gets the drain."""
    kept = made()
    nursery.start_soon(kept.run, os.close)
    await wait_all_tasks_blocked()
    await children.all[0].end(1)
    await wait_all_tasks_blocked()
    kept.drain(5)
    began = trio.current_time()
    await kept.ended()
    assert trio.current_time() == began
    assert len(children.all) == 1

    kept = made()
    children.may_start = trio.Event()
    nursery.start_soon(kept.run, os.close)
    await wait_all_tasks_blocked()
    kept.drain(5)
    children.may_start.set()
    await wait_all_tasks_blocked()
    await children.all[1].hear()
    assert read_order(await children.all[1].hear(), GatewayWord).drain_ms == 5000
    nursery.cancel_scope.cancel()


async def test_databases_that_are_hidden(autojump_clock):
    """A hidden database is logged once with the path that hides it."""
    kept = made()
    with capture_logs() as lines:
        kept.look_for_hidden({"geo"}.__contains__)
        kept.look_for_hidden({"geo", "debug"}.__contains__)
        kept.look_for_hidden({"geo", "debug", "metrics"}.__contains__)
    assert [(line["event"], line["database"], line["path"]) for line in lines] == [
        ("http_hidden", "debug", "/debug/vars"),
        ("http_hidden", "metrics", "/metrics"),
    ]
    await trio.lowlevel.checkpoint()
