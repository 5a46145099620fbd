"""The rounds of the loop in a deterministic world: a test moves streams and clock by hand."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, final

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.serving._serving import Loop, ProvenResult, Refusal
from gossipkv.wire import rpc
from tests.unit.serving.asker import ALL, AWAY, IDENTITY, PARTITIONS, table
from tests.unit.serving.driven import make_core, one_database
from tests.world.nodes.streams import over_streams

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.serving._serving import Caller, Core, PendingRequest
    from gossipkv.serving.published import Published
    from gossipkv.wire.rpc import Value

RECORDS = {b"k": b"v" * 20, b"long": b"w" * 300}
# The requests and their results; Python answers some at once and some later.
ASKED: list[tuple[str, list[Value], Value]] = [
    ("ping", [], "pong"),
    ("get", ["db", b"k"], [b"v" * 20, "v1"]),
    ("get", ["db", b"long"], [b"w" * 300, "v1"]),
    ("get_many", ["db", [b"k", b"none"]], [[b"v" * 20, None], "v1"]),
    ("scan", ["db", {"prefix": b"k"}], [[[b"k", b"v" * 20]], None, "v1"]),
    ("echo", [b"x" * 90], b"x" * 90),
    ("later", [b"y" * 90], b"y" * 90),
    ("wrong", [], None),
]
# The limits are so low that each run meets them. Times are long: a closed connection would have no answers to check.
LIMITS = {
    "max_in_flight": 3,
    "max_in_flight_total": 1 << 10,
    "max_queued": 300,
    "frame_timeout_ms": 1 << 20,
    "output_timeout_ms": 1 << 20,
}
MAX_STREAMS = 6


@final
class HandStream:
    """The server's end of a stream, and the controls for a test."""

    def __init__(self) -> None:
        self.arrived: deque[bytes] = deque()
        self.room_bytes = 0
        self.sent = b""
        self.is_broken = False
        self.is_closed = False
        self.is_aborted = False

    @property
    def is_readable(self) -> bool:
        return bool(self.arrived) or self.is_broken

    def receive(self, most_bytes: int) -> bytes | None:
        if self.is_broken:
            raise ConnectionResetError
        if not self.arrived:
            return None
        data = self.arrived.popleft()
        if not data:
            self.arrived.append(data)  # The end of input stays in the queue.
        if data[most_bytes:]:
            self.arrived.appendleft(data[most_bytes:])
        return data[:most_bytes]

    def send(self, data: bytes) -> None:
        assert 0 < len(data) <= self.room_bytes
        assert not any((self.is_broken, self.is_closed, self.is_aborted))
        self.room_bytes -= len(data)
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


@final
class HandListener:
    """A listener with waiting streams; the next one speaks MessagePack-RPC (0), RESP (1) or HTTP (2)."""

    def __init__(self) -> None:
        self.dialect = 0
        self.waiting: deque[HandStream] = deque()
        self.is_closed = False

    @property
    def is_readable(self) -> bool:
        return bool(self.waiting)

    def accept(self) -> HandStream | None:
        return self.waiting.popleft() if self.waiting else None

    def fileno(self) -> int:
        return 1 << 20

    def getsockname(self) -> tuple[str, int]:
        return "", 0

    def watch(self, stream: HandStream) -> None:
        """Do nothing: no thread sleeps."""

    def wake(self) -> None:
        """Do nothing: no thread sleeps."""

    def close(self) -> None:
        self.is_closed = True


@final
class HandClock:
    def __init__(self) -> None:
        self.now_ns = 1

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000


@final
class Client:
    """The other end of a stream: its requests, and bytes that are not sent yet."""

    def __init__(self, stream: HandStream) -> None:
        self.stream = stream
        self.asked: dict[int, tuple[str, Value]] = {}
        self.unsent = b""
        self.has_ended = False

    def ask(self, method: str, params: list[Value], result: Value) -> None:
        msgid = len(self.asked)
        self.asked[msgid] = method, result
        self.unsent += rpc.request(msgid, method, params)

    def give(self, size: int) -> None:
        if size and self.unsent:
            self.stream.arrived.append(self.unsent[:size])
            self.unsent = self.unsent[size:]

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.give(len(self.unsent))
            self.stream.arrived.append(b"")

    def check(self, *, whole: bool) -> None:
        """Check that each request has at most one correct answer; `whole`: exactly one."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.stream.sent)
        answers = list(unpacker)
        for _, msgid, error, result in answers:
            method, expected = self.asked[msgid]
            assert (error == ["BAD_REQUEST"]) is (method == "wrong")
            assert result == expected
        ids = [answer[1] for answer in answers]
        assert len(set(ids)) == len(ids)
        if whole:
            assert set(ids) == self.asked.keys()
            assert unpacker.tell() == len(self.stream.sent)


@final
class World:
    def __init__(self, published: Published, seed: int) -> None:
        self.core = make_core(**LIMITS)
        self.core.publish(published.table())
        self.listener = HandListener()
        self.clock = HandClock()
        self.loop = Loop(self.core, over_streams(self.clock)(self.listener, polls=False))
        self.clients: list[Client] = []
        self.pending: list[PendingRequest] = []
        self.draw = random.Random(seed)

    def answer(self, method: bytes | None, params: bytes, _caller: Caller) -> object:
        """Answer as Python; for `later` return the parameters as a token for `complete`."""
        if method == b"wrong":
            return Refusal(msgpack.packb(["BAD_REQUEST"]))
        assert method in {b"echo", b"later"}
        result = msgpack.packb(msgpack.unpackb(params)[0])
        return result if method == b"echo" else [result]

    def round(self) -> None:
        self.pending += self.loop.round(self.answer, 1000, 1000)
        assert self.core.broken_invariants() == []
        for client in self.clients:
            client.check(whole=False)

    def complete(self) -> None:
        """Complete a random pending answer, if its client is still there."""
        if self.pending:
            pending = self.pending.pop(self.draw.randrange(len(self.pending)))
            assert isinstance(pending.waiting, list)
            self.loop.complete(pending, pending.waiting[0])

    def step(self) -> None:
        if len(self.clients) < MAX_STREAMS and self.draw.random() < 0.1:
            self.clients.append(Client(HandStream()))
            self.listener.waiting.append(self.clients[-1].stream)
        if self.clients:
            self.move(self.draw.choice(self.clients))
        if self.draw.random() < 0.2:
            self.complete()
        if self.draw.random() < 0.2:
            self.clock.now_ns += self.draw.randrange(400_000_000)
        if self.draw.random() < 0.5:
            self.round()

    def move(self, client: Client) -> None:
        """Let a client ask, read, end or disappear."""
        kind = self.draw.random()
        if kind < 0.5 and not client.has_ended:
            for _ in range(self.draw.randrange(5)):
                client.ask(*self.draw.choice(ASKED))
            client.give(self.draw.randrange(300))
        elif kind < 0.9:
            client.stream.room_bytes += self.draw.randrange(400)
        elif kind < 0.93:
            client.end()
        elif kind < 0.95:
            client.stream.is_broken = True

    def settle(self) -> None:
        """Let all clients send and read, and Python answer, as long as there is work."""
        for client in self.clients:
            client.give(len(client.unsent))
            client.stream.room_bytes += 1 << 20
        while self.loop.has_work or self.pending:
            self.round()
            self.complete()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return a database that no test changes."""
    directory: Path = tmp_path_factory.mktemp("rounds")
    return one_database(directory, RECORDS)


@given(seed=st.integers(0, 2**32 - 1), drains=st.booleans())
def test_each_request_has_one_answer(published: Published, seed: int, drains: bool) -> None:
    """Whatever clients do, each request gets one answer, and the loop has no work left."""
    world = World(published, seed)
    for _ in range(100):
        world.step()
    world.settle()
    if drains:
        world.loop.drain()
        assert world.listener.is_closed
        world.settle()
        assert all(client.stream.is_closed or client.stream.is_broken for client in world.clients), "all got our end"
        world.clock.now_ns += 3_000_000_000  # The clients send no end, and linger until a sweep.
        world.settle()
        assert world.loop.connection_count == 0
    for client in world.clients:
        client.check(whole=not client.stream.is_broken)
        assert client.stream.is_closed or client.stream.is_broken or not client.has_ended
    living = [client for client in world.clients if not (client.has_ended or client.stream.is_broken or drains)]
    counters = world.core.counters()
    assert (counters["connections"], counters["in_flight"], counters["held_bytes"]) == (len(living), 0, 0)
    world.loop.close()
    assert all(client.stream.is_aborted for client in living)
    assert world.core.counters()["connections"] == 0


@pytest.mark.parametrize("is_node", [False, True])
def test_the_limits_for_clients_do_not_apply_to_a_node_that_said_hello(is_node: bool) -> None:
    """Larger frames with more elements are passed on; a hello without a proof, where one is needed, changes nothing."""

    def answer(method: bytes | None, params: bytes, _caller: Caller) -> object:
        if method == b"hello":
            return ProvenResult(0, b"\xc0") if is_node else b"\xc0"
        assert (method, len(msgpack.unpackb(params)[0])) == (b"table_list", 2000)
        return b"\xc3"

    core, clock, stream, listener = (
        make_core(max_frame=3000, max_elements=1500),
        HandClock(),
        HandStream(),
        HandListener(),
    )
    core.publish(table([None] * PARTITIONS))
    listener.waiting.append(stream)
    stream.room_bytes = 1 << 20
    loop = Loop(core, over_streams(clock)(listener, polls=False))
    for msgid, (method, params) in enumerate((("hello", [{}]), ("table_list", [[b"key"] * 2000]))):
        stream.arrived.append(rpc.request(msgid, method, params))
        loop.round(answer, 1000, 1000)
        loop.round(answer, 1000, 1000)
    unpacker = msgpack.Unpacker()
    unpacker.feed(stream.sent)
    _, (_, msgid, error, result) = unpacker
    assert (msgid, result) == (1, True if is_node else None)
    assert is_node or error[:2] == [
        "BAD_REQUEST",
        "the request is nested too deeply, too long or not MessagePack; the connection is closed",
    ]
    loop.close()


def ask_nothing(method: bytes | None, params: bytes, _caller: Caller) -> object:
    """Fail: no hand-off is expected here."""
    raise AssertionError((method, params))


def owned(clock: HandClock) -> tuple[Core, Loop, HandStream, HandStream]:
    """Return a loop without data, with a client and the owner of all."""
    core, client, peer = make_core(), HandStream(), HandStream()
    core.publish(table([None] * PARTITIONS))
    core.set_peer(0, "owner:1", 0)
    core.set_holder(IDENTITY, PARTITIONS, 0, ALL)
    listener = HandListener()
    listener.waiting.append(client)
    client.room_bytes = peer.room_bytes = 1 << 20
    loop = Loop(core, over_streams(clock)(listener, polls=False))
    loop.adopt(0, peer)
    return core, loop, client, peer


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_a_read_that_waits_for_its_owner_is_cancelled(method: str) -> None:
    """It is answered at once and once, and another read of that id is not."""
    core, loop, client, peer = owned(HandClock())
    callers: list[Caller] = []

    def answer(_method: bytes | None, _params: bytes, caller: Caller) -> object:
        callers.append(caller)
        return b"\xc0"

    keys: Value = AWAY[0] if method == "get" else [*AWAY[:3]]
    client.arrived.append(rpc.request(7, method, ["db", keys]) + rpc.request(8, "cancel", [7]))
    loop.round(answer, 1000, 1000)
    for cancelled in (6, 7, 7):
        loop.end_relay(callers[0].handle, cancelled, Refusal(msgpack.packb(["UNKNOWN", "cancelled", {}])))
    loop.round(answer, 1000, 1000)
    asked = msgpack.unpackb(peer.sent)
    client.arrived.append(rpc.request(7, "get", ["db", AWAY[1]]))
    loop.round(ask_nothing, 1000, 1000)
    peer.arrived.append(rpc.response(asked[1], [b"late", "v1"]))
    loop.round(ask_nothing, 1000, 1000)
    answers = msgpack.Unpacker()
    answers.feed(client.sent)
    assert [*answers] == [[1, 8, None, None], [1, 7, ["UNKNOWN", "cancelled", {}], None]]
    assert core.counters()["in_flight"] == 1
    loop.close()


def test_what_has_come_is_read_before_anybody_is_called_silent() -> None:
    """A node that was paused beyond its deadlines takes the answer that has come, before its timer."""
    clock = HandClock()
    core, loop, client, peer = owned(clock)
    client.arrived.append(rpc.request(7, "get", ["db", AWAY[0]]))
    loop.round(ask_nothing, 1000, 1000)
    asked = msgpack.unpackb(peer.sent)
    clock.now_ns += 3_600_000_000_000
    peer.arrived.append(rpc.response(asked[1], [b"here", "v1"]))
    loop.round(ask_nothing, 1000, 1000)
    assert msgpack.unpackb(client.sent) == [1, 7, None, [b"here", "v1"]]
    assert core.counters()["forward_silences"] == 0
    loop.close()
