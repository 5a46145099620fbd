"""The epoll loop over real sockets, stepped by hand."""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import select
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgpack
import pytest

from gossipkv.serving._serving import Loop
from gossipkv.serving._transport import Sockets
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.oracle import connection
from tests.unit.serving.driven import make_core, one_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gossipkv.serving._serving import Caller, PendingRequest
    from gossipkv.wire.rpc import Value

RECORDS = {b"key%03d" % number: b"value%d" % number for number in range(1000)} | {b"big": b"x" * 500_000}
PING = rpc.request(1, "ping", [])
PONG = rpc.response(1, "pong")
PATIENCE_S = 120.0
# If time is not under test, a busy machine must not cause timeouts.
PATIENT = dict.fromkeys(
    ("frame_timeout_ms", "output_timeout_ms", "proxy_timeout_ms", "proxy_stage_timeout_ms"), int(1000 * PATIENCE_S)
)


class Asked(NamedTuple):
    method: bytes
    params: bytes
    caller: Caller


class Served:
    def __init__(
        self, directory: Path, family: socket.AddressFamily = socket.AF_INET, *, polls: bool = False, **limits: int
    ) -> None:
        self.core = make_core(**{"max_in_flight": 1000, **PATIENT, **limits})
        self.core.publish(one_database(directory, RECORDS, partitions=3).table())
        listener = socket.socket(family)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("127.0.0.1" if family == socket.AF_INET else "::", 0))
        listener.listen(512)
        listener.settimeout(0)
        self.address = listener.getsockname()
        resp = socket.create_server(("127.0.0.1", 0))
        resp.settimeout(0)
        http = socket.create_server(("127.0.0.1", 0))
        http.settimeout(0)
        self.resp: tuple[str, int] = resp.getsockname()
        self.http: tuple[str, int] = http.getsockname()
        self.loop = Loop(self.core, Sockets(listener, resp, http, polls=polls))
        self.hand_offs: list[PendingRequest] = []
        self.clients: list[socket.socket] = []

    def connect(
        self,
        *,
        receive_buffer: int | None = None,
        source: str | None = None,
        to: tuple[str, int] | None = None,
    ) -> socket.socket:
        client = socket.socket(socket.AF_INET6 if to and ":" in to[0] else socket.AF_INET)
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            client.bind((source, 0))
        client.connect(to or self.address)
        client.settimeout(0)
        self.clients.append(client)
        return client

    def step(self, serve_us: int = 1000) -> None:
        """Do one round; keep its hand-offs for manual answers."""
        self.hand_offs += self.loop.round(Asked, serve_us, 1000)
        assert self.core.broken_invariants() == []

    def reply(self, pending: PendingRequest, result: Value) -> None:
        self.loop.complete(pending, msgpack.packb(result))

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.step()
            if done():
                return
            assert time.monotonic() < deadline, "the loop never got there"

    def receive(self, client: socket.socket, size: int) -> bytes:
        received = bytearray()

        def done() -> bool:
            try:
                received.extend(client.recv(size - len(received)))
            except BlockingIOError:
                return False
            return len(received) == size

        self.until(done)
        return bytes(received)

    def ends(self, client: socket.socket) -> bytes:
        received = bytearray()

        def done() -> bool:
            try:
                data = client.recv(1 << 16)
            except BlockingIOError:
                return False
            received.extend(data)
            return not data

        self.until(done)
        return bytes(received)

    def counters(self, name: str) -> int:
        return self.core.counters()[name]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.loop.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def test_pipelined_requests(served: Served) -> None:
    """A thousand requests in one write are answered in order."""
    client = served.connect()
    requests = [(number, b"key%03d" % (number % 1100)) for number in range(1000)]
    client.sendall(b"".join(rpc.request(number, "get", ["db", key]) for number, key in requests))
    expected = b"".join(rpc.response(number, [RECORDS.get(key), "v1"]) for number, key in requests)
    assert served.receive(client, len(expected)) == expected


def test_answers_over_a_socket_are_the_oracle_s(served: Served) -> None:
    """Answers and hand-offs agree with the plain-Python node for writes of any size."""
    draw = random.Random(3)
    names = [b"key%03d" % draw.randrange(1100) for _ in range(500)]
    stream = b"".join(
        draw.choice([
            rpc.request(number, "get", ["db", name]),
            rpc.request(number, "get_many", ["db", names[: draw.randrange(80)], {"version": "v1"}]),
            rpc.request(number, "ping", []),
            rpc.request(number, "scan", ["db", {"prefix": name}]),
            rpc.notification("note", [name]),
            b"\x93\x00" + bytes([number % 100]) + b"\xa1m",
        ])
        for number, name in enumerate(names)
    )  # fmt: skip
    expected = connection.Conversation(
        {b"db": (b"v1", {b"v1": RECORDS})},
        {"max_size": 1 << 20, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS},
    )
    expected.hear(stream)
    client = served.connect()
    answers: list[tuple[int, str | None, Value]] = []
    unpacker = msgpack.Unpacker(raw=True)
    left = memoryview(stream)

    def done() -> bool:
        nonlocal left
        if left:
            left = left[client.send(left[: draw.randrange(1, 4000)]) :]
        try:
            unpacker.feed(client.recv(1 << 16))
        except BlockingIOError:
            return False
        answers.extend((msgid, error and error[0].decode(), result) for _, msgid, error, result in unpacker)
        return not left and len(answers) == len(expected.answers)

    served.until(done)
    assert answers == expected.answers
    assert [(pending.msgid, *pending.waiting) for pending in served.hand_offs] == expected.hand_offs


def test_no_python_call_per_request(served: Served) -> None:
    """The profile of 10,000 pipelined gets shows only the few calls of the steps."""
    client = served.connect()
    request = rpc.request(1, "get", ["db", b"key007"])
    expected = len(rpc.response(1, [RECORDS[b"key007"], "v1"])) * 10_000
    client.settimeout(PATIENCE_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    served.until(lambda: served.loop.connection_count == 1)
    client.sendall(request * 2_000)
    events = 0

    def watch(_frame: object, _event: str, _argument: object) -> None:
        nonlocal events
        events += 1

    received = 0
    portions = 1
    serve = served.loop.round
    while received < expected:
        sys.setprofile(watch)
        handed_off = serve(Asked, 100_000, 1000)
        sys.setprofile(None)
        assert handed_off == []
        received += len(client.recv(1 << 20))
        if received >= expected * portions // 5 and portions < 5:
            portions += 1
            client.sendall(request * 2_000)
    assert served.counters("gets") == 10_000
    assert 0 < events < 1_000


def test_hand_offs_and_corked_replies(served: Served) -> None:
    """Answers to hand-offs leave with the next round, all of a connection at once."""
    clients = [served.connect() for _ in range(3)]
    for client in clients:
        client.sendall(rpc.request(1, "info", []) + rpc.request(2, "status", []))
    served.until(lambda: len(served.hand_offs) == 6)
    for pending in served.hand_offs:
        served.reply(pending, "reply")
    with pytest.raises(BlockingIOError):
        clients[0].recv(1)
    served.step()
    expected = rpc.response(1, "reply") + rpc.response(2, "reply")
    for client in clients:
        assert served.receive(client, len(expected)) == expected


def test_partial_writes_and_a_slow_reader(served: Served) -> None:
    """Answers beyond the socket's buffers are sent as the peer reads, in order."""
    client = served.connect(receive_buffer=4096)
    other = served.connect()
    count = 60
    client.sendall(b"".join(rpc.request(number, "get", ["db", b"big"]) for number in range(count)))
    served.until(lambda: served.counters("paused_for_output") > 0)
    assert served.counters("held_bytes") < (1 << 20) + 600_000
    other.sendall(PING)
    assert served.receive(other, len(PONG)) == PONG
    unpacker = msgpack.Unpacker()
    answers: list[list[Value]] = []

    def done() -> bool:
        try:
            unpacker.feed(client.recv(1 << 16))
        except BlockingIOError:
            return False
        answers.extend(unpacker)
        return len(answers) == count

    served.until(done)
    assert [answer[1] for answer in answers] == list(range(count))
    assert all(answer[3] == [RECORDS[b"big"], "v1"] for answer in answers)
    assert served.counters("held_bytes") == 0


def test_half_close(served: Served) -> None:
    """A client that ends its input gets every answer, then the node's end."""
    client = served.connect()
    client.sendall(PING * 3 + rpc.request(2, "info", []))
    client.shutdown(socket.SHUT_WR)
    served.until(lambda: len(served.hand_offs) == 1)
    assert served.receive(client, 3 * len(PONG)) == PONG * 3
    served.reply(served.hand_offs[0], "late")
    assert served.ends(client) == rpc.response(2, "late")
    assert served.loop.connection_count == 0
    assert served.counters("closed_by_peer") == 1


def test_a_reset_is_noticed(served: Served) -> None:
    """Nothing of the client is left, and its replies are dropped."""
    client, other = served.connect(), served.connect()
    client.sendall(rpc.request(1, "info", []) + PING[:3])
    served.until(lambda: len(served.hand_offs) == 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    served.until(lambda: served.loop.connection_count == 1)
    assert served.counters("closed_reset") == 1
    served.reply(served.hand_offs[0], None)
    assert served.counters("replies_dropped") == 1
    other.sendall(PING)
    assert served.receive(other, len(PONG)) == PONG
    assert served.counters("held_bytes") == 0


def test_garbage_is_answered_and_ended(served: Served) -> None:
    """The error arrives although more input follows: the node shuts down its output before it closes."""
    client, other = served.connect(), served.connect()
    client.sendall(PING + b"\x94\x00\x05\xa1m\x91\xc1" + bytes(300_000))
    received = served.ends(client)
    unpacker = msgpack.Unpacker()
    unpacker.feed(received)
    pong, refused = unpacker
    assert pong == [1, 1, None, "pong"]
    assert refused[1:3] == [5, refused[2]]
    assert refused[2][0] == "BAD_REQUEST"
    assert served.loop.connection_count == 2
    client.close()
    served.until(lambda: served.loop.connection_count == 1)
    other.sendall(PING)
    assert served.receive(other, len(PONG)) == PONG


def test_http_is_answered_and_ended(served: Served) -> None:
    """The explanation arrives although the request goes on, and then the connection ends."""
    client = served.connect()
    client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000))
    received = served.ends(client)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.endswith(b"speaks MessagePack-RPC, not HTTP.\r\n")


def test_lingering_ends_by_itself(served: Served) -> None:
    """A peer that neither reads nor closes is closed after a while."""
    client = served.connect()
    client.sendall(b"\xc1")
    assert served.ends(client) == b""
    assert served.loop.connection_count == 1
    deadline = time.monotonic() + PATIENCE_S
    while served.loop.connection_count and time.monotonic() < deadline:
        time.sleep(0.05)
        served.loop.expire()
    assert served.loop.connection_count == 0
    assert served.counters("closed_bad_frame") == 1


def test_half_sent_frames_time_out(tmp_path: Path) -> None:
    """`expire` closes overdue connections."""
    served = Served(tmp_path, frame_timeout_ms=50)
    client = served.connect()
    client.sendall(PING[:3])
    served.until(lambda: served.counters("bytes_received") == 3)
    time.sleep(0.1)
    served.loop.expire()
    assert served.ends(client) == b""
    assert served.counters("closed_frame_timeout") == 1
    served.close()


def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    """Excess connections are accepted and closed, so that the peer notices; others are served."""
    served = Served(tmp_path, max_connections=5)
    clients = []
    for _ in range(5):
        clients.append(served.connect())
        clients[-1].sendall(PING)
        assert served.receive(clients[-1], len(PONG)) == PONG
    clients += [served.connect() for _ in range(3)]
    served.until(lambda: served.counters("connections_refused") == 3)
    for client in clients[:5]:
        client.sendall(PING)
        assert served.receive(client, len(PONG)) == PONG
    for client in clients[5:]:
        assert served.ends(client) == b""
    served.close()


def test_bursts_of_newcomers(tmp_path: Path) -> None:
    """Connections that arrive in one burst are all accepted and served."""
    served = Served(tmp_path, max_connections=1000)
    clients = [served.connect() for _ in range(300)]
    for client in clients:
        client.sendall(PING)
    for client in clients:
        assert served.receive(client, len(PONG)) == PONG
    assert served.loop.connection_count == 300
    served.close()


def test_descriptors_run_out(served: Served) -> None:
    """Accepting pauses without spinning, established clients are served, and new ones follow when there is room."""
    began_s = time.monotonic()
    early = served.connect()
    served.until(lambda: served.loop.connection_count == 1)
    late = served.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # Garbage of earlier tests would free descriptors during the test.
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        served.until(lambda: served.counters("accept_pauses") > 0)
        for _ in range(1000):
            served.step()
        pauses = served.counters("accept_pauses")
        assert pauses <= 2 + (time.monotonic() - began_s) / 0.5  # The timer tries again every half second.
        early.sendall(PING)
        assert served.receive(early, len(PONG)) == PONG
        served.loop.expire()
        served.until(lambda: served.counters("accept_pauses") > pauses)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    late.sendall(PING)
    served.loop.expire()
    assert served.receive(late, len(PONG)) == PONG


def test_drain_answers_what_was_asked(served: Served) -> None:
    """Requests that have arrived are answered, new connections are refused, and then all end."""
    asking, idle = served.connect(), served.connect()
    served.until(lambda: served.loop.connection_count == 2)
    asking.sendall(PING * 10 + rpc.request(2, "info", []))
    served.loop.drain()
    assert served.counters("gets") + served.counters("pings") == 10
    with pytest.raises(OSError, match="refused") as refused:
        socket.create_connection(served.address)
    assert refused.value.errno == errno.ECONNREFUSED
    assert served.receive(asking, 10 * len(PONG)) == PONG * 10
    served.until(lambda: len(served.hand_offs) == 1)
    served.reply(served.hand_offs[0], "info")
    assert served.ends(asking) == rpc.response(2, "info")
    assert served.ends(idle) == b""
    asking.close()
    idle.close()
    served.until(lambda: served.loop.connection_count == 0)
    assert served.counters("closed_drained") == 2


def test_drain_of_half_sent_frames(served: Served) -> None:
    """Incomplete requests are dropped; complete ones before them are answered, held back or not."""
    half, held = served.connect(), served.connect()
    half.sendall(PING * 2 + PING[:3])
    held.sendall(b"".join(rpc.request(number, "get", ["db", b"big"]) for number in range(8)) + PING[:3])
    served.until(lambda: served.counters("gets") > 0 and served.counters("pings") == 2)
    served.loop.drain()
    assert served.ends(half) == PONG * 2
    received = served.ends(held)
    unpacker = msgpack.Unpacker()
    unpacker.feed(received)
    assert [answer[1] for answer in unpacker] == list(range(8))
    half.close()
    held.close()
    served.until(lambda: served.loop.connection_count == 0)
    assert served.counters("closed_drained") == 2


def test_close_cuts_everything(served: Served) -> None:
    """Nothing is left of requests in flight."""
    client = served.connect()
    client.sendall(rpc.request(1, "info", []))
    served.until(lambda: len(served.hand_offs) == 1)
    served.loop.close()
    served.loop.close()
    assert client.recv(1) == b""
    assert served.counters("connections") == 0
    assert served.counters("closed_cut") == 1
    assert served.counters("in_flight") == 0


def test_the_descriptor_tells_of_work(served: Served) -> None:
    """The epoll descriptor is readable when a step has work, and after `wake`."""

    def readable() -> bool:
        return bool(select.select([served.loop.fileno()], [], [], 0)[0])

    served.until(lambda: not readable())  # The loop's timer has work now and then.
    client = served.connect()
    assert readable()
    served.until(lambda: served.loop.connection_count == 1 and not readable())
    client.sendall(PING)
    served.until(lambda: served.counters("pings") == 1 and not readable())
    served.loop.wake()
    assert readable()
    served.until(lambda: not readable())


def test_connections_of_one_address_beyond_the_limit(tmp_path: Path) -> None:
    """Excess connections are closed; another address has its own limit, and a closed connection makes room."""
    served = Served(tmp_path, max_connections_per_address=2)
    greedy = [served.connect() for _ in range(3)]
    served.until(lambda: served.counters("connections_refused_by_address") == 1)
    assert served.ends(greedy[2]) == b""
    modest = served.connect(source="127.0.0.2")
    for client in (*greedy[:2], modest):
        client.sendall(PING)
        assert served.receive(client, len(PONG)) == PONG
    greedy[0].close()
    served.until(lambda: served.loop.connection_count == 2)
    late = served.connect()
    late.sendall(PING)
    assert served.receive(late, len(PONG)) == PONG
    served.close()


def test_one_address_under_both_families(tmp_path: Path) -> None:
    """IPv4 peers inside IPv6 count as their IPv4 address."""
    served = Served(tmp_path, family=socket.AF_INET6, max_connections_per_address=1)
    port = served.address[1]
    first, second = served.connect(to=("127.0.0.1", port)), served.connect(to=("127.0.0.1", port), source="127.0.0.2")
    third, over = served.connect(to=("::1", port)), served.connect(to=("::1", port))
    served.until(lambda: served.counters("connections_refused_by_address") == 1)
    for client in (first, second, third):
        client.sendall(PING)
        assert served.receive(client, len(PONG)) == PONG
    assert served.ends(over) == b""
    served.close()


def test_a_peer_that_never_reads_is_closed(tmp_path: Path) -> None:
    """A peer that reads nothing is closed after `output_timeout`; one that reads stays."""
    served = Served(tmp_path, output_timeout_ms=50, frame_timeout_ms=60_000)
    deaf, reading = served.connect(receive_buffer=4096), served.connect()
    deaf.sendall(b"".join(rpc.request(number, "get", ["db", b"big"]) for number in range(60)))
    served.until(lambda: served.counters("paused_for_output") > 0)
    time.sleep(0.1)
    served.loop.expire()
    assert served.counters("closed_output_timeout") == 1
    reading.sendall(PING)
    assert served.receive(reading, len(PONG)) == PONG
    served.close()


def test_a_loop_that_may_not_look_out_never_does(served: Served) -> None:
    client = served.connect()
    for _ in range(200):
        client.sendall(PING)
        assert served.receive(client, len(PONG)) == PONG
    assert served.counters("busy_polls") == 0


def test_how_long_answers_took(served: Served) -> None:
    """Local and handed-off requests are counted separately when their answer is sent."""
    client = served.connect()
    client.sendall(PING * 3 + rpc.request(2, "info", []) + rpc.request(3, "status", []) + b"\x93\x00\x09\xa1m")
    served.until(lambda: len(served.hand_offs) == 2)
    assert served.core.latency()["local"].count == 4
    served.reply(served.hand_offs[0], "info")
    assert served.core.latency()["handed_off"].count == 0
    served.step()
    assert served.core.latency()["handed_off"].count == 1
    assert served.core.latency()["handed_off"].maximum > 0


def test_the_gateway_s_connection(tmp_path: Path) -> None:
    """The gateway's connection is outside the limits and counts, and never times out."""
    served = Served(tmp_path, max_connections=1, idle_timeout_ms=1)
    here, there = socket.socketpair()
    served.loop.serve_gateway(there.detach())
    here.settimeout(0)
    here.send(PING)
    assert served.receive(here, len(PONG)) == PONG
    client = served.connect()
    client.send(PING)
    assert served.receive(client, len(PONG)) == PONG
    time.sleep(0.01)
    served.loop.expire()
    assert served.ends(client) == b""
    here.send(PING)
    assert served.receive(here, len(PONG)) == PONG
    assert served.counters("connections_accepted") == served.counters("closed_idle") == 1
    assert served.loop.connection_count == 1
    here.close()
    served.until(lambda: served.loop.connection_count == 0)
    served.connect().send(PING)
    served.until(lambda: served.counters("connections_accepted") == 2)
    served.close()
