"""How a node keeps its gateway: told what changes, started again, drained; without processes, in virtual time."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import pytest
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from gossipkv.address import Address
from gossipkv.http.order import Order, Types, Word
from gossipkv.node import gateway
from gossipkv.node.gateway import Gateway, reached_at
from gossipkv.settings.config import load
from gossipkv.settings.databases import DatabaseSettings
from tests.world.logs import capture_logs

NODE = Address("0.0.0.0", 7070)


class FakeChild:
    """A child as its parent has it, and what the test does in its place."""

    pid = 1
    returncode = None

    def __init__(self):
        self.stdin, self._orders = memory_stream_one_way_pair()
        self._says, self.stdout = memory_stream_one_way_pair()
        self._fails, self.stderr = memory_stream_one_way_pair()
        self._ended = trio.Event()
        self._heard = b""

    async def wait(self):
        """Until it has ended."""
        await self._ended.wait()

    async def end(self, status, said=b""):
        """End with that status, after this on standard error."""
        await self._fails.send_all(said)
        for stream in (self._fails, self._says):
            await stream.aclose()
        self.returncode = status
        self._ended.set()

    async def say(self, line):
        """A line on standard output."""
        await self._says.send_all(line + b"\n")

    async def hear(self):
        """The next line of standard input."""
        while b"\n" not in self._heard:
            self._heard += await self._orders.receive_some()
        line, _, self._heard = self._heard.partition(b"\n")
        return line


class FakeListener:
    """A socket that listens, until it is closed."""

    is_closed = False

    def fileno(self):
        """Its descriptor."""
        return -1 if self.is_closed else 5

    def getsockname(self):
        """Where."""
        return ("127.0.0.1", 8080)

    def close(self):
        """Not any more."""
        self.is_closed = True


@pytest.fixture
def children(monkeypatch):
    """The children that were started, the next ones first to fail if `refusals` says so."""
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
    """A gateway with these settings, and its socket."""
    listener = FakeListener()
    return Gateway(load(flags={"http_listen": "127.0.0.1:8080", **flags}), listener, node=NODE, name="n1"), listener


async def test_the_order_and_the_words(autojump_clock, nursery, children):
    """Whom to ask, on which socket, with which limits; then what has changed, and nothing where nothing has."""
    kept, _ = made(content_type="text/plain", http_max_connections="7", max_queued_total="1MiB", idle_timeout="off")
    nursery.start_soon(kept.run)
    await wait_all_tasks_blocked()
    (child,) = children.all
    order = Order.from_line(await child.hear())
    assert (order.node, order.name, order.listener, order.leash) == (Address("127.0.0.1", 7070), "n1", 5, 6)
    assert order.types == Types("text/plain", {})
    assert (order.limits.max_connections, order.limits.held_bytes, order.limits.idle_timeout_ms) == (7, 1 << 20, 0)
    kept.reconfigure({})
    kept.reconfigure({"db": DatabaseSettings(content_type="image/png"), "other": DatabaseSettings()})
    assert Word.from_line(await child.hear()) == Word(Types("text/plain", {"db": "image/png"}))
    kept.drain(3)
    word = Word.from_line(await child.hear())
    assert (word.types, word.drain_ms) == (Types("text/plain", {"db": "image/png"}), 3000)
    nursery.cancel_scope.cancel()


async def test_it_is_started_again(autojump_clock, nursery, children):
    """After pauses that double up to a limit, also where none can be started; from the first after a long life."""
    kept, listener = made()
    children.refusals = 2
    with capture_logs() as lines:
        nursery.start_soon(kept.run)
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
    assert children.descriptors == {5}
    assert not listener.is_closed


async def test_its_log_is_the_node_s(autojump_clock, nursery, children):
    """Line by line, with level and fields; what is none is not."""
    kept, _ = made()
    nursery.start_soon(kept.run)
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
    """The socket is closed at once, the child ends by itself, and that is no trouble; it is waited for no longer."""
    for ends, waited_s in ((True, 1), (False, 5)):
        kept, listener = made()
        with capture_logs() as lines:
            nursery.start_soon(kept.run)
            await wait_all_tasks_blocked()
            kept.drain(5)
            assert listener.is_closed
            began = trio.current_time()
            if ends:
                await trio.sleep(1)
                await children.all[-1].end(0)
            await kept.ended()
            assert trio.current_time() - began == pytest.approx(waited_s)
        assert lines == []
    nursery.cancel_scope.cancel()


async def test_a_drain_while_there_is_none(autojump_clock, nursery, children):
    """No other is started, and nothing is waited for; one that is being started inherits the socket first."""
    kept, listener = made()
    nursery.start_soon(kept.run)
    await wait_all_tasks_blocked()
    await children.all[0].end(1)
    await wait_all_tasks_blocked()
    kept.drain(5)
    began = trio.current_time()
    await kept.ended()
    assert trio.current_time() == began
    assert len(children.all) == 1

    kept, listener = made()
    children.may_start = trio.Event()
    nursery.start_soon(kept.run)
    await wait_all_tasks_blocked()
    kept.drain(5)
    assert not listener.is_closed
    children.may_start.set()
    await wait_all_tasks_blocked()
    assert listener.is_closed
    await children.all[1].hear()
    assert Word.from_line(await children.all[1].hear()).drain_ms == 5000
    nursery.cancel_scope.cancel()


async def test_databases_that_are_hidden(autojump_clock):
    """Are warned of once each, when they are there, with the path that wins."""
    kept, _ = made()
    with capture_logs() as lines:
        kept.look_for_hidden({"geo"}.__contains__)
        kept.look_for_hidden({"geo", "debug"}.__contains__)
        kept.look_for_hidden({"geo", "debug", "metrics"}.__contains__)
    assert [(line["event"], line["database"], line["path"]) for line in lines] == [
        ("http_hidden", "debug", "/debug/vars"),
        ("http_hidden", "metrics", "/metrics"),
    ]
    await trio.lowlevel.checkpoint()


def test_where_a_node_is_reached_from_its_own_machine():
    """Where it listens; on loopback, if that is everywhere."""
    assert reached_at(Address("10.0.0.1", 1)) == Address("10.0.0.1", 1)
    assert reached_at(Address("0.0.0.0", 1)) == Address("127.0.0.1", 1)
    assert reached_at(Address("::", 1)) == Address("::1", 1)
