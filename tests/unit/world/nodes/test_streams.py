"""A pump over simulated connections behaves as over the system's sockets (`test_pump_slow.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgpack
import pytest
import trio

from gossipkv.address import Address
from gossipkv.serving._serving import Loop, PublishedTable
from gossipkv.serving.pump import Pump
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.oracle import connection
from tests.unit.serving.driven import make_core, one_database
from tests.unit.serving.test_pump_slow import LARGE, MadeUpAnswers
from tests.unit.world.nodes.wire import A, B, on_network
from tests.world.nodes.network import WINDOW_BYTES
from tests.world.nodes.process import SimulatedClock
from tests.world.nodes.sockets import SimulatedSockets
from tests.world.nodes.streams import over_streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gossipkv.serving.pump import PeerEvent, PeerReply
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.network import SimulatedNetwork
    from tests.world.nodes.sockets import SimulatedStream

THERE = Address(B, 7070)


@final
class Running:
    """A pump on one machine and clients on another."""

    def __init__(self, network: SimulatedNetwork, directory: Path, at: Address = THERE, **limits: int) -> None:
        self.network = network
        self.clients = SimulatedSockets(network, A)
        self.at = at
        self.sockets = SimulatedSockets(network, at.host)
        self.core = make_core(**limits)
        published = one_database(directory, {b"k": b"v"})
        self.files = published.databases["db"].versions[0].files
        self.core.publish(published.table())
        self.answers = MadeUpAnswers()
        self.events: list[PeerEvent] = []
        self.replies: list[PeerReply] = []
        self.listener = self.sockets.listen(*at, 100)
        self.loop = Loop(self.core, over_streams(SimulatedClock())(self.listener, polls=True))
        self.pump = Pump(self.core, self.loop, self.sockets, self.answers, self, max_polls=1)

    def hear(self, events: list[PeerEvent], replies: list[PeerReply]) -> None:
        self.events += events
        self.replies += replies

    async def connect(self) -> SimulatedStream:
        return await self.clients.connect(self.at)

    async def served(self) -> None:
        await self.pump.run()


def serving(directory: Path, check: Callable[[Running], Awaitable[None]], **limits: int) -> None:
    async def with_pump(network: SimulatedNetwork) -> None:
        running = Running(network, directory, **limits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.served)
            await check(running)
            nursery.cancel_scope.cancel()

    on_network(with_pump)


async def receive(stream: SimulatedStream, count: int) -> list[list[Value]]:
    unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)
    answers: list[list[Value]] = []
    with trio.fail_after(10):
        while len(answers) < count:
            data = await stream.receive_some(1 << 20)
            assert data, "the node ended the connection"
            unpacker.feed(data)
            answers += unpacker
    return answers


async def exchange(stream: SimulatedStream, data: bytes, count: int) -> list[list[Value]]:
    await stream.send_all(data)
    return await receive(stream, count)


def test_answers_from_core_and_python(tmp_path: Path) -> None:
    """One pipeline mixes answers and refusals on several connections."""

    async def check(running: Running) -> None:
        for _ in range(3):
            stream = await running.connect()
            data = b"".join(
                (
                    rpc.request(1, "get", ["db", "k"]),
                    rpc.request(2, "info", []),
                    rpc.request(3, "ping", []),
                    rpc.request(70_000, "wrong", []),
                )
            )
            assert sorted(answer[1:] for answer in await exchange(stream, data, 4)) == [
                [1, None, [b"v", "v1"]],
                [2, None, b"info"],
                [3, None, "pong"],
                [70_000, ["BAD_REQUEST", "as asked", {}], None],
            ]

    serving(tmp_path, check)


def test_answers_over_a_stream_are_the_oracle_s(tmp_path: Path) -> None:
    """A stream that takes several receives gets the answers of the plain-Python node, in order."""
    stream = b"".join(
        rpc.request(number, "get", ["db", b"k"])
        + rpc.notification("note", [number])
        + b"\x93\x00\x01\xa1m"
        + rpc.request(number, "get_many", ["db", [b"k", b"none"] * (number % 80)])
        for number in range(1000)
    )
    expected = connection.Conversation(
        {b"db": (b"v1", {b"v1": {b"k": b"v"}})},
        {"max_size": 1 << 20, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS},
    )
    expected.hear(stream)

    async def check(running: Running) -> None:
        client = await running.connect()
        answers: list[tuple[int, str | None, Value]] = []
        unpacker = msgpack.Unpacker(raw=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, stream)
            while len(answers) < len(expected.answers):
                unpacker.feed(await client.receive_some(1 << 16))
                answers += [(msgid, error and error[0].decode(), result) for _, msgid, error, result in unpacker]
        assert answers == expected.answers

    serving(tmp_path, check, max_in_flight=1000)


def test_a_defect_of_a_stream_ends_the_pump(tmp_path: Path) -> None:
    """An error that no peer can cause is raised and not taken for the end of a connection."""

    async def check(running: Running) -> None:
        def accept() -> None:
            message = "as asked"
            raise ZeroDivisionError(message)

        running.listener.accept = accept
        await running.connect()
        await trio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        serving(tmp_path, check)
    assert caught.group_contains(ZeroDivisionError, match="as asked")


def test_a_request_byte_by_byte(tmp_path: Path) -> None:
    async def check(running: Running) -> None:
        stream = await running.connect()
        for byte in rpc.request(1, "info", []):
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.01)
        assert await receive(stream, 1) == [[1, 1, None, b"info"]]

    serving(tmp_path, check)


def test_waiting_answers_hold_up_nobody(tmp_path: Path) -> None:
    """A slow request is overtaken and answered later; requests for the same result share a task."""

    async def check(running: Running) -> None:
        stream = await running.connect()
        asked = [rpc.request(1, "slow", []), rpc.request(2, "shared", []), rpc.request(3, "shared", [])]
        answers = await exchange(stream, b"".join(asked) + rpc.request(4, "ping", []), 1)
        assert answers == [[1, 4, None, "pong"]]
        running.answers.go.set()
        assert sorted(await receive(stream, 3)) == [
            [1, 1, None, b"slow"],
            [1, 2, None, b"shared"],
            [1, 3, None, b"shared"],
        ]
        assert running.answers.begun == 2

    serving(tmp_path, check)


def test_held_requests_go_on_after_a_waiting_answer(tmp_path: Path) -> None:
    """With one hand-off allowed, requests behind a slow one are served once it is answered, without further input."""

    async def check(running: Running) -> None:
        stream = await running.connect()
        data = rpc.request(1, "slow", []) + b"".join(rpc.request(number, "info", []) for number in range(2, 50))
        await stream.send_all(data)
        await running.answers.asked.wait()
        running.answers.go.set()
        assert [answer[1] for answer in await receive(stream, 49)] == list(range(1, 50))

    serving(tmp_path, check, max_in_flight=1)


def test_a_peer_that_does_not_read_is_not_answered(tmp_path: Path) -> None:
    """The pump holds `max_queued` and one answer, serves others, and sends all answers in order once the peer reads."""

    async def check(running: Running) -> None:
        greedy, other = await running.connect(), await running.connect()
        await greedy.send_all(b"".join(rpc.request(number, "large", []) for number in range(50)))
        await trio.sleep(1)
        assert running.answers.large <= (1_000_000 + WINDOW_BYTES) // len(LARGE) + 2
        assert await exchange(other, rpc.request(1, "info", []), 1) == [[1, 1, None, b"info"]]
        counters = running.core.counters()
        assert 1_000_000 <= counters["held_bytes"] <= 1_000_000 + len(LARGE) + 100
        assert [answer[1] for answer in await receive(greedy, 50)] == list(range(50))
        assert running.core.counters()["held_bytes"] == 0

    serving(tmp_path, check, max_in_flight=1000, max_queued=1_000_000, output_timeout_ms=60_000)


def test_a_peer_that_never_reads_is_closed_in_time(tmp_path: Path) -> None:
    """The peer is closed after `output_timeout`; another that sends half a frame is closed after `frame_timeout`."""

    async def check(running: Running) -> None:
        greedy, half = await running.connect(), await running.connect()
        await greedy.send_all(b"".join(rpc.request(number, "large", []) for number in range(50)))
        await half.send_all(rpc.request(1, "info", [])[:3])
        await trio.sleep(3)
        counters = running.core.counters()
        assert (counters["closed_output_timeout"], counters["closed_frame_timeout"]) == (1, 1)
        assert (counters["held_bytes"], counters["connections"]) == (0, 0)

    serving(tmp_path, check, max_in_flight=1000, max_queued=1_000_000)


def test_what_is_sent_to_nobody_is_dropped(tmp_path: Path) -> None:
    """A client that disconnects before its answer does no harm."""

    async def check(running: Running) -> None:
        stream, other = await running.connect(), await running.connect()
        await stream.send_all(rpc.request(1, "slow", []))
        await running.answers.asked.wait()
        running.clients.end(silently=False)
        await trio.sleep(1)
        running.answers.go.set()
        await trio.sleep(1)
        counters = running.core.counters()
        assert (counters["replies_dropped"], counters["connections"], counters["in_flight"]) == (1, 0, 0)
        del other

    serving(tmp_path, check)


def test_garbage_ends_its_connection(tmp_path: Path) -> None:
    """Requests before the garbage are answered."""

    async def check(running: Running) -> None:
        stream = await running.connect()
        await stream.send_all(rpc.request(1, "info", []) + b"\xc1 is no MessagePack")
        assert await receive(stream, 1) == [[1, 1, None, b"info"]]
        with trio.fail_after(10):
            assert await stream.receive_some(100) == b""
        assert running.core.counters()["frames_malformed"] == 1

    serving(tmp_path, check)


def test_beyond_the_most_connections_a_newcomer_is_turned_away(tmp_path: Path) -> None:
    """Established connections stay, once they have sent a request."""

    async def check(running: Running) -> None:
        here = []
        for _ in range(2):
            here.append(await running.connect())
            await exchange(here[-1], rpc.request(1, "ping", []), 1)
        late = await running.connect()
        with trio.fail_after(1), pytest.raises(ConnectionResetError):
            await late.receive_some(1)
        for stream in here:
            assert await exchange(stream, rpc.request(2, "ping", []), 1) == [[1, 2, None, "pong"]]

    serving(tmp_path, check, max_connections=2)


def test_drain_waits_for_what_was_asked(tmp_path: Path) -> None:
    """New connections are refused, a slow request is answered, idle connections end, and then the pump ends."""

    async def check(running: Running) -> None:
        stream, idle = await running.connect(), await running.connect()
        await stream.send_all(rpc.request(2, "slow", []))
        await running.answers.asked.wait()
        outcome: list[bool] = []

        async def drain() -> None:
            outcome.append(await running.pump.drain(5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            assert await idle.receive_some(1) == b""
            with pytest.raises(ConnectionRefusedError):
                await running.connect()
            assert outcome == []
            running.answers.go.set()
            assert await receive(stream, 1) == [[1, 2, None, b"slow"]]
            assert await stream.receive_some(1) == b""
        assert outcome == [True]

    serving(tmp_path, check)


def test_a_drain_ends_in_time(tmp_path: Path) -> None:
    """A request whose answer does not come is cut off."""

    async def check(running: Running) -> None:
        stream = await running.connect()
        await stream.send_all(rpc.request(2, "slow", []))
        await running.answers.asked.wait()
        began = trio.current_time()
        assert not await running.pump.drain(5)
        assert trio.current_time() - began == pytest.approx(5)
        with pytest.raises(ConnectionResetError):
            await stream.receive_some(1)

    serving(tmp_path, check)


def test_another_node_answers(tmp_path: Path) -> None:
    """Another node answers a get over a simulated stream and a question; a get that it does not answer times out."""
    identity = b"0123456789abcdef"

    async def check(owner: Running) -> None:
        asker = Running(owner.network, tmp_path, Address(A, 7070))
        owner.core.publish(PublishedTable([("db", "v1", [("v1", 0, asker.files, identity, True)])]))
        asker.core.publish(PublishedTable([("db", "v1", [("v1", 0, [None], identity, True)])]))
        asker.core.set_peer(0, "owner:1", 0)
        asker.core.set_holder(identity, 1, 0, b"\x01")
        asker.loop.adopt(0, (await asker.sockets.connect(THERE)).detach())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asker.served)
            stream = await asker.connect()
            assert await exchange(stream, rpc.request(1, "get", ["db", b"k"]), 1) == [[1, 1, None, [b"v", "v1"]]]
            token = asker.core.ask(0, b"ping", b"\x90", 1000)
            asker.loop.wake()
            while not asker.replies:
                await trio.sleep(0.01)
            assert asker.replies == [(token, msgpack.packb("pong"), None)]
            owner.core.publish(PublishedTable(()))  # From now on the owner's answers are not those of a node.
            began_s = trio.current_time()
            assert await exchange(stream, rpc.request(2, "get", ["db", b"k"]), 1) == [[1, 2, None, None]]
            assert 0.09 <= trio.current_time() - began_s <= 0.2
            assert asker.events[:2] == [(0, "lost", "closed_bad_answer"), (0, "wanted", None)]
            nursery.cancel_scope.cancel()

    serving(tmp_path, check)
