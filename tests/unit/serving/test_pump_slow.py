"""The pump under Trio, over real sockets."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import struct
import threading
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio
import trio.testing

from gossipkv.environment import trio_world
from gossipkv.environment.trio_world import RealSockets
from gossipkv.serving import pump
from gossipkv.serving._serving import Loop, Refusal
from gossipkv.serving._transport import Sockets
from gossipkv.serving.pump import Pump
from gossipkv.wire import rpc
from gossipkv.wire.results import DeferredResult, Later
from tests.unit.serving.driven import make_core, one_database
from tests.unit.serving.test_serving_slow import PATIENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gossipkv.errors import GossipKVError
    from gossipkv.serving._serving import Caller
    from gossipkv.wire.results import Packed
    from gossipkv.wire.rpc import Value

PATIENCE_S = 120
LARGE = b"x" * 200_000
PACKED_LARGE = msgpack.packb(LARGE)


@pytest.fixture(params=[True, False], ids=["resting", "waiting"], autouse=True)
def rests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return True if the loop sleeps in Trio's place, and False for an unknown Trio."""
    if not request.param:
        monkeypatch.setattr(trio_world, "find_loop", no_loop)
    may: bool = request.param
    return may


async def no_loop() -> None:
    """Return None, as for an unknown Trio."""


class MadeUpAnswers:
    """Answers with the method's name; `slow` waits for `go`, `heavy` blocks the loop, `large` is large."""

    def __init__(self) -> None:
        self.large = 0
        self.go = trio.Event()
        self.asked = trio.Event()
        self.heavy = 0
        self.waiting = 0
        self.begun = 0
        self.handle = 0  # The connection that asked last.
        self.later: list[Callable[[Value | Packed | GossipKVError], None]] = []  # Callbacks of requests for `later`.
        self.ended: list[Callable[[bytes], None]] = []  # Callbacks of requests for `poll` that hold nothing more.

    def answer(self, method: bytes, params: bytes, caller: Caller) -> bytes | Refusal | DeferredResult | Later:
        self.handle = caller.handle
        if method == b"heavy":
            self.heavy += 1
            time.sleep(0.002)  # A page of a scan takes as long.
        if method == b"large":
            self.large += 1
            return PACKED_LARGE
        if method == b"wrong":
            return Refusal(msgpack.packb(["BAD_REQUEST", "as asked", {}]))
        if method in {b"later", b"poll"}:
            self.asked.set()
            return Later(self.later.append)
        if method not in {b"slow", b"slow large", b"shared", b"read", b"changes", b"map_changes"}:
            return msgpack.packb(method)

        self.asked.set()
        self.waiting += 1

        async def wait() -> Value:
            self.begun += 1
            try:
                await self.go.wait()
            finally:
                self.waiting -= 1
            return LARGE if method == b"slow large" else method

        may_end = method in {b"read", b"changes", b"map_changes"}
        return DeferredResult(wait, shared_by=params if method == b"shared" else None, may_end=may_end)

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refusal:
        del method
        return msgpack.packb(await waiting.result())

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refusal], None]) -> object:
        later.begin(lambda result: on_answer(msgpack.packb(result)))
        return partial(self.ended.append, on_answer) if method == b"poll" else None


class Running:
    def __init__(self, directory: Path, **limits: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        listener.settimeout(0)
        self.address = listener.getsockname()
        self.core = make_core(**PATIENT | limits)
        self.core.publish(one_database(directory, {b"k": b"v"}).table())
        self.answers = MadeUpAnswers()
        self.pump = Pump(
            self.core, Loop(self.core, Sockets(listener, polls=False)), RealSockets(), self.answers, max_polls=2
        )
        self.clients: list[trio.SocketStream] = []

    async def connect(self) -> trio.SocketStream:
        client = await trio.open_tcp_stream(*self.address)
        self.clients.append(client)
        return client


@asynccontextmanager
async def serving(directory: Path, **limits: int) -> AsyncIterator[Running]:
    """Yield a pump that runs until the block is left, or until it ends by itself."""
    running = Running(directory, **limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.pump.run)
        try:
            yield running
        finally:
            nursery.cancel_scope.cancel()
            for client in running.clients:
                client.socket.close()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.sleep(0.01)


async def exchange(stream: trio.SocketStream, data: bytes, count: int) -> list[list[Value]]:
    await stream.send_all(data)
    return await receive(stream, count)


async def receive(stream: trio.SocketStream, count: int) -> list[list[Value]]:
    unpacker = msgpack.Unpacker()
    answers: list[list[Value]] = []
    with trio.fail_after(PATIENCE_S):
        while len(answers) < count:
            data = await stream.receive_some()
            assert data, "the node ended the connection"
            unpacker.feed(data)
            answers += unpacker
    return answers


async def test_nobody_waits_while_connections_are_served(tmp_path: Path, rests: bool) -> None:
    """Deadlines, signals, threads and other tasks run while clients in threads send without end."""
    asked: list[int] = []
    stop = threading.Event()

    def ask(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as client:
            while not stop.is_set():
                client.sendall(rpc.request(1, "ping", []))
                assert client.recv(100) == rpc.response(1, "pong")
                asked.append(1)

    async with serving(tmp_path) as running, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(trio.to_thread.run_sync, ask, running.address)
        try:
            with trio.fail_after(PATIENCE_S), trio.open_signal_receiver(signal.SIGUSR2) as signals:
                for _ in range(20):
                    before = len(asked)
                    await trio.sleep(0.002)
                    await trio.to_thread.run_sync(lambda: None)
                    os.kill(os.getpid(), signal.SIGUSR2)
                    await anext(signals)
                    await trio.testing.wait_all_tasks_blocked()
                    while len(asked) == before:
                        await trio.lowlevel.checkpoint()
            assert running.core.counters()["pings"] >= len(asked)
        finally:
            stop.set()
        assert running.pump._rests is rests


async def test_answers_from_core_and_python(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        for _ in range(3):
            stream = await running.connect()
            data = rpc.request(1, "get", ["db", "k"]) + rpc.request(2, "info", []) + rpc.request(3, "ping", [])
            answers = await exchange(stream, data, 3)
            assert sorted(answer[1:] for answer in answers) == [
                [1, None, [b"v", "v1"]],
                [2, None, b"info"],
                [3, None, "pong"],
            ]


async def test_waiting_answers_hold_up_nobody(tmp_path: Path) -> None:
    """A slow request is overtaken on its own connection too, and answered later."""
    async with serving(tmp_path) as running:
        stream = await running.connect()
        answers = await exchange(stream, rpc.request(1, "slow", []) + rpc.request(2, "ping", []), 1)
        assert answers == [[1, 2, None, "pong"]]
        running.answers.go.set()
        assert await receive(stream, 1) == [[1, 1, None, b"slow"]]


async def test_heavy_requests_take_turns_with_others(tmp_path: Path) -> None:
    """A connection with hundreds of heavy requests does not delay others."""
    async with serving(tmp_path, max_in_flight=1000) as running:
        greedy, modest = await running.connect(), await running.connect()
        await greedy.send_all(b"".join(rpc.request(number, "heavy", []) for number in range(500)))
        assert await exchange(modest, rpc.request(1, "info", []), 1) == [[1, 1, None, b"info"]]
        assert await exchange(modest, rpc.request(2, "get", ["db", "k"]), 1) == [[1, 2, None, [b"v", "v1"]]]
        assert running.answers.heavy < 400
        assert [answer[1] for answer in await receive(greedy, 500)] == list(range(500))


async def test_nobody_awaits_the_answers_of_a_connection_that_is_gone(tmp_path: Path) -> None:
    """The remaining requests of a closed connection are not answered."""
    async with serving(tmp_path, max_in_flight=1000) as running:
        greedy, modest = await running.connect(), await running.connect()
        await greedy.send_all(b"".join(rpc.request(number, "heavy", []) for number in range(500)))
        await receive(greedy, 1)
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await greedy.aclose()  # The close is a reset, since answers are unread.
        while running.core.counters()["in_flight"]:
            await exchange(modest, rpc.request(1, "info", []), 1)
        await trio.testing.wait_all_tasks_blocked()
        assert running.answers.heavy < 400


async def deaf(running: Running, requests: bytes) -> trio.SocketStream:
    """Send requests and read nothing; return when the node answers no more of them."""
    stream = await running.connect()
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    with contextlib.suppress(trio.BrokenResourceError):  # The node may close the connection during the send.
        await stream.send_all(requests)
    other = await running.connect()
    before = -1
    with trio.fail_after(PATIENCE_S):
        while running.answers.large != before:
            before = running.answers.large
            for number in range(20):
                await exchange(other, rpc.request(number, "info", []), 1)
            await trio.sleep(0.05)
    return stream


async def test_a_peer_that_does_not_read_is_not_answered(tmp_path: Path) -> None:
    """The pump holds `max_queued` and one answer, serves others, and sends all answers in order once the peer reads."""
    async with serving(tmp_path, max_in_flight=1000, max_queued=1_000_000, output_timeout_ms=60_000) as running:
        greedy = await deaf(running, b"".join(rpc.request(number, "large", []) for number in range(200)))
        assert running.answers.large < 100  # These answers fit in the sockets' buffers and max_queued.
        counters = running.core.counters()
        assert 1_000_000 <= counters["held_bytes"] <= 1_000_000 + len(LARGE) + 100
        assert [answer[1] for answer in await receive(greedy, 200)] == list(range(200))
        assert counters["closed_memory"] == running.core.counters()["held_bytes"] == 0


async def test_peers_that_do_not_read_are_closed_and_forgotten_in_time(tmp_path: Path) -> None:
    """Deaf peers are closed after `output_timeout`, and no more of their requests are answered."""
    async with serving(tmp_path, max_in_flight=1000, max_queued=1_000_000, output_timeout_ms=500) as running:
        await deaf(running, b"".join(rpc.request(number, "large", []) for number in range(200)))
        await until(lambda: running.core.counters()["closed_output_timeout"] > 0)
        await trio.testing.wait_all_tasks_blocked()
        assert running.answers.large < 100
        counters = running.core.counters()
        assert (counters["held_bytes"], counters["in_flight"]) == (0, 0)


async def ask_for_large_answers_that_take_time(running: Running, count: int) -> trio.SocketStream:
    """Ask for large answers and do not read; return when all are made."""
    stream = await running.connect()
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    await stream.send_all(b"".join(rpc.request(number, "slow large", []) for number in range(count)))
    await until(lambda: running.answers.waiting >= count)
    running.answers.go.set()
    await until(lambda: not running.answers.waiting)
    await trio.testing.wait_all_tasks_blocked(0.05)
    return stream


async def test_answers_that_took_time_wait_for_a_peer_that_reads(tmp_path: Path) -> None:
    """The pump holds `max_queued` and one answer, the rest waits apart, and all arrive once the peer reads."""
    async with serving(tmp_path, max_queued=1_000_000, output_timeout_ms=60_000) as running:
        stream = await ask_for_large_answers_that_take_time(running, 60)
        counters = running.core.counters()
        assert 1_000_000 <= counters["held_bytes"] <= 1_000_000 + len(LARGE) + 100
        assert counters["waiting_bytes"] > 0
        assert sorted(answer[1] for answer in await receive(stream, 60)) == list(range(60))
        counters = running.core.counters()
        assert counters["held_bytes"] == counters["waiting_bytes"] == counters["in_flight"] == 0


async def test_what_waits_for_a_peer_that_does_not_read_is_bounded(tmp_path: Path) -> None:
    """Beyond 16 MiB this connection alone is closed."""
    limits = {"max_in_flight": 1000, "max_queued": 1_000_000, "max_held": 1 << 26, "output_timeout_ms": 60_000}
    async with serving(tmp_path, **limits) as running:
        other = await running.connect()
        # These are 14 MB more than the limit, to allow for the sockets' buffers.
        await ask_for_large_answers_that_take_time(running, 150)
        await exchange(other, rpc.request(1, "info", []), 1)
        counters = running.core.counters()
        assert (counters["closed_memory"], counters["connections"]) == (1, 1)
        assert counters["held_bytes"] == counters["waiting_bytes"] == counters["in_flight"] == 0


async def test_those_who_ask_for_the_same_share_a_task(tmp_path: Path) -> None:
    """Thousands of equal requests share one task; those that come while it works share the next."""
    async with serving(tmp_path, max_in_flight=5000) as running:
        early, late = await running.connect(), await running.connect()
        await early.send_all(rpc.request(0, "shared", []))
        await until(lambda: (running.answers.waiting, running.answers.begun) == (1, 1))
        await early.send_all(b"".join(rpc.request(number, "shared", []) for number in range(1, 3000)))
        await late.send_all(rpc.request(1, "shared", []) + rpc.request(2, "shared", ["other"]))
        await until(lambda: (running.answers.waiting, running.answers.begun) == (3002, 2))
        running.answers.go.set()
        assert sorted(answer[1] for answer in await receive(early, 3000)) == list(range(3000))
        assert sorted(answer[1] for answer in await receive(late, 2)) == [1, 2]
        assert running.answers.begun == 3


async def test_answers_that_take_time_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task beyond the limit is OVERLOADED at once; the others are answered."""
    monkeypatch.setattr(pump, "MAX_TASKS", 5)
    async with serving(tmp_path) as running:
        stream = await running.connect()
        await stream.send_all(b"".join(rpc.request(number, "slow", []) for number in range(6)))
        ((_, msgid, (code, _, _), _),) = await receive(stream, 1)
        assert (msgid, code) == (5, "OVERLOADED")
        assert running.core.counters()["overloaded"] == 1
        running.answers.go.set()
        assert sorted(answer[1] for answer in await receive(stream, 5)) == list(range(5))


async def begun(running: Running, count: int) -> None:
    """Wait for `count` pending callbacks."""
    await until(lambda: len(running.answers.later) >= count)


async def test_answers_that_call_back_need_no_task(tmp_path: Path) -> None:
    """Thousands of requests run at once without a task, and each gets its own answer in any order."""
    async with serving(tmp_path, max_in_flight=6000, max_in_flight_total=6000) as running:
        stream = await running.connect()
        await exchange(stream, rpc.request(1, "ping", []), 1)
        tasks = trio.lowlevel.current_statistics().tasks_living
        await stream.send_all(b"".join(rpc.request(number, "later", []) for number in range(5000)))
        await begun(running, 5000)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert await exchange(stream, rpc.request(5000, "ping", []), 1) == [[1, 5000, None, "pong"]]
        for number, on_result in reversed([*enumerate(running.answers.later)]):
            on_result(number)
        assert sorted(await receive(stream, 5000)) == [[1, number, None, number] for number in range(5000)]
        assert running.core.counters()["in_flight"] == 0


async def test_whoever_asked_for_what_calls_back_may_be_gone(tmp_path: Path) -> None:
    """The answer is dropped when the connection or the pump has ended."""
    async with serving(tmp_path) as running:
        gone, cut = await running.connect(), await running.connect()
        await gone.send_all(rpc.request(1, "later", []))
        await begun(running, 1)
        await cut.send_all(rpc.request(1, "later", []))
        await begun(running, 2)
        gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await gone.aclose()  # The close is a reset.
        await until(lambda: running.core.counters()["connections"] <= 1)
        first, second = running.answers.later
        first(1)
        assert running.core.counters()["replies_dropped"] == 1
        assert not await running.pump.drain(0.05)
        with trio.fail_after(PATIENCE_S):
            assert await cut.receive_some() == b""
    second(2)


@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_wait_ends_with_its_connection(tmp_path: Path, *, is_reset: bool) -> None:
    async with serving(tmp_path) as running:
        one, other = await running.connect(), await running.connect()
        for number, client in enumerate((one, one, other)):
            await client.send_all(rpc.request(number, "poll", []))
        await begun(running, 3)
        running.answers.later[0]("page")
        if is_reset:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await one.aclose()
        await until(lambda: bool(running.answers.ended))
        (end,) = running.answers.ended
        end(msgpack.packb("late"))
        await until(lambda: running.core.counters()["connections"] == 1)
        assert running.core.counters()["in_flight"] == 1


async def test_a_task_that_may_ends_with_its_request(tmp_path: Path) -> None:
    """Another task goes on without its client."""
    async with serving(tmp_path) as running:
        client = await running.connect()
        for number, method in enumerate(("slow", "read", "read")):
            await client.send_all(rpc.request(number, method, []))
        await until(lambda: running.answers.begun == 3)
        running.pump.cancel(running.answers.handle, 1, lambda _: None)
        [(_, number, (code, *_), _)] = await exchange(client, b"", 1)
        await until(lambda: running.answers.waiting == 2)
        assert (number, code) == (1, "UNKNOWN")
        await client.aclose()
        await until(lambda: running.core.counters()["connections"] == 0)
        await until(lambda: running.answers.waiting == 1)


async def test_a_refusal_is_an_error_under_the_id(tmp_path: Path) -> None:
    """The error has the form `[1, id, error, nil]`."""
    async with serving(tmp_path) as running:
        stream = await running.connect()
        answers = await exchange(stream, rpc.request(70_000, "wrong", []) + rpc.request(2, "info", []), 2)
        assert answers == [[1, 70_000, ["BAD_REQUEST", "as asked", {}], None], [1, 2, None, b"info"]]


async def test_held_requests_go_on_after_a_waiting_answer(tmp_path: Path) -> None:
    """With one hand-off allowed, requests behind a slow one are served once it is answered, without further input."""
    async with serving(tmp_path, max_in_flight=1) as running:
        stream = await running.connect()
        data = rpc.request(1, "slow", []) + b"".join(rpc.request(number, "info", []) for number in range(2, 50))
        await stream.send_all(data)
        await running.answers.asked.wait()
        running.answers.go.set()
        assert [answer[1] for answer in await receive(stream, 49)] == list(range(1, 50))


async def test_cancelling_closes_everything(tmp_path: Path) -> None:
    """Clients see the end, and new connections are refused."""
    running = Running(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.pump.run)
        stream = await running.connect()
        await exchange(stream, rpc.request(1, "ping", []), 1)
        nursery.cancel_scope.cancel()
    with trio.fail_after(PATIENCE_S):
        assert await stream.receive_some() == b""
    with pytest.raises(OSError, match="connect"):
        await running.connect()
    await stream.aclose()


@pytest.mark.parametrize("method", ["slow", "later"])
async def test_drain_waits_for_what_was_asked(tmp_path: Path, method: str) -> None:
    """New connections are refused, a slow request is answered, then the connection and the pump end."""
    outcome: list[bool] = []
    async with serving(tmp_path) as running, trio.open_nursery() as nursery:
        stream = await running.connect()
        await stream.send_all(rpc.request(2, method, []))
        await running.answers.asked.wait()

        async def drain() -> None:
            outcome.append(await running.pump.drain(PATIENCE_S))

        nursery.start_soon(drain)
        await trio.testing.wait_all_tasks_blocked()
        assert not outcome
        with pytest.raises(OSError, match="connect"):
            await running.connect()
        running.answers.go.set()
        for on_result in running.answers.later:
            on_result(b"later")
        assert await receive(stream, 1) == [[1, 2, None, method.encode()]]
        with trio.fail_after(PATIENCE_S):
            assert await stream.receive_some() == b""
        await stream.aclose()
    assert outcome == [True]
    assert running.core.counters()["connections"] == 0


@pytest.mark.parametrize("method", [b"changes", b"map_changes"])
async def test_a_drain_ends_polls(tmp_path: Path, method: bytes) -> None:
    """A client's poll for rows, or another node's for maps, holds no node up that is to end."""
    async with serving(tmp_path) as running:
        stream = await running.connect()
        await stream.send_all(rpc.request(2, method.decode(), []))
        await running.answers.asked.wait()
        assert running.pump.map_polls == (method == b"map_changes")
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.pump.drain, math.inf)
                [(_, number, (code, *_), _)] = await receive(stream, 1)
                await stream.aclose()
        assert (number, code, running.answers.waiting) == (2, "UNAVAILABLE", 0)
        assert running.pump.map_polls == 0


async def test_drain_has_a_deadline(tmp_path: Path) -> None:
    """A request without an answer by then is cut."""
    async with serving(tmp_path) as running:
        stream = await running.connect()
        await stream.send_all(rpc.request(2, "slow", []))
        await running.answers.asked.wait()
        assert not await running.pump.drain(0.05)
        with trio.fail_after(PATIENCE_S):
            assert await stream.receive_some() == b""
    assert running.core.counters()["closed_cut"] == 1


async def test_drain_without_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(PATIENCE_S):
            assert await running.pump.drain(PATIENCE_S)


async def test_a_round_is_waited_for_before_the_loop_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pass_round` also returns if it was called before the loop has taken Trio's place."""
    event_loop, asked = RealSockets.event_loop, trio.Event()

    async def late(sockets: RealSockets) -> object:
        await asked.wait()
        return await event_loop(sockets)

    monkeypatch.setattr(RealSockets, "event_loop", late)
    async with serving(tmp_path) as running, trio.open_nursery() as nursery:
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(running.pump.pass_round)
        await trio.testing.wait_all_tasks_blocked()
        asked.set()
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
    assert not nursery.cancel_scope.cancelled_caught


async def test_a_round_is_waited_for(tmp_path: Path, rests: bool) -> None:
    """A round passes without requests, once for each waiter; an ended pump has no rounds."""
    async with serving(tmp_path) as running:
        with trio.fail_after(PATIENCE_S):
            for _ in range(3):
                await running.pump.pass_round()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.pump.pass_round)
                nursery.start_soon(running.pump.pass_round)
        await running.pump.drain(PATIENCE_S)
        await trio.testing.wait_all_tasks_blocked()
        passed: list[None] = []

        async def ask() -> None:
            passed.append(await running.pump.pass_round())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert passed == []
