"""An HTTP loop over real sockets that a test steps by hand."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.replication.replica.calm import CalmTable
from gossipkv.replication.replica.token_keys import token_keys
from gossipkv.serving._serving import Loop, Refusal
from gossipkv.serving._transport import Sockets
from gossipkv.serving.published import publish
from gossipkv.storage.engine._engine import ReadGate
from tests.oracle.http import Failed, Written
from tests.oracle.token import RING
from tests.unit.serving import http_world as world
from tests.unit.serving.driven import NODE, make_core, make_version
from tests.unit.serving.http_judging import Told
from tests.unit.serving.test_serving_slow import PATIENCE_S, PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gossipkv.serving._serving import Caller, Core, PendingRequest

RESET = struct.pack("ii", 1, 0)  # Closing without a FIN avoids ports in TIME_WAIT for a minute.
QUIET_ROUNDS = 2  # One round reads a held connection again; the next shows whether work is left.
DATE = re.compile(rb"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n")


class Asked(NamedTuple):
    method: bytes
    params: bytes
    caller: Caller


def make_http_core(directory: Path, **limits: int) -> Core:
    """Return a core with all datasets except the other node's."""
    core = make_core(**limits)
    versions = []
    for name, records in world.RECORDS.items():
        if name != world.AWAY:
            version = make_version(directory, name, world.VERSIONS[name], records)
            version.source_ms = world.TIMES_S.get(name, 0) * 1000
            versions.append((version, True))
    # A table without a calm replica: the loop knows its name, and Python answers.
    core.publish(
        publish(versions).table(tables=[CalmTable(world.TABLE, bytes(16), token_keys(bytes(16), RING), ReadGate(), 1)])
    )
    types = {name: world.content_type_of(name) for name in world.RECORDS}
    core.know_types(world.PLAIN, {name: said for name, said in types.items() if said != world.PLAIN})
    return core


class Served:
    """A loop with the datasets; hand-offs are answered in any order."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.core = make_http_core(directory, **{**PATIENT, **limits})
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for listener in listeners:
            listener.settimeout(0)
        self.address = listeners[1].getsockname()
        self.loop = Loop(self.core, Sockets(listeners[0], None, listeners[1], polls=False))
        self.hand_offs: list[PendingRequest] = []
        self.detached: list[tuple[int, Caller, bytes]] = []

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        """Return the socket of the only client; the socket does not block."""
        self.until(lambda: self.loop.connection_count == 0)
        client = socket.socket()
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(self.address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(0)
        self.until(lambda: self.loop.connection_count == 1)
        return client

    def step(self) -> None:
        """Do one round; keep its hand-offs and detached connections."""
        self.hand_offs += self.loop.round(Asked, 10_000, 1000)
        self.detached += self.loop.take_detached()
        assert self.core.broken_invariants() == []

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            self.step()
            assert time.monotonic() < deadline, "the loop never got there"

    def reply(self, number: int = 0) -> None:
        pending = self.hand_offs.pop(number)
        self.loop.complete(pending, response(pending.waiting.method, pending.waiting.params))

    def answer_stream(self, pieces: list[bytes]) -> Told:
        """Return the outcome of a stream whose answers fit in a socket buffer."""
        draw = random.Random(len(pieces[0]))
        with self.connect() as client:
            for piece in pieces:
                client.sendall(piece)
                while draw.random() < 0.7:
                    self._go_on(draw)
            quiet = 0
            while quiet < QUIET_ROUNDS:
                self._go_on(draw)
                quiet = 0 if self.hand_offs or self.loop.has_work else quiet + 1
            received, ends = received_of(client)
            return Told(DATE.sub(b"Date: %b\r\n" % world.DATE.encode(), received), self.left(), ends)

    def _go_on(self, draw: random.Random) -> None:
        """Do a round, possibly after an answer from Python."""
        if self.hand_offs and draw.random() < 0.7:
            self.reply(draw.randrange(len(self.hand_offs)))
        self.step()

    def left(self) -> bytes | None:
        """Return the gateway's part: the bytes that were read, and those in the socket."""
        if not self.detached:
            return None
        ((descriptor, _, data),) = self.detached
        self.detached.clear()
        with socket.socket(fileno=descriptor) as taken:
            assert not os.get_blocking(descriptor)
            return data + received_of(taken)[0]

    def close(self) -> None:
        self.loop.close()


def received_of(client: socket.socket) -> tuple[bytes, bool]:
    """Return the bytes in the socket, and whether the end has come."""
    received = bytearray()
    try:
        while data := client.recv(1 << 16):
            received += data
    except BlockingIOError:
        return bytes(received), False
    return bytes(received), True


def response(method: bytes, params: bytes) -> bytes | Refusal:
    database, key, *value, options = msgpack.unpackb(params)
    name, token, result = database.decode(), options.pop("token", b""), world.result_of(database.decode(), key)
    if method != b"get":
        assert (method, options, len(value)) in [(b"put", {}, 1), (b"delete", {}, 0)]
        result = world.write_result_of(name, key, *(value or [None]), token)
    if isinstance(result, Failed):
        return Refusal(msgpack.packb([result.code, result.message, world.details_of(name, result)]))
    if isinstance(result, Written):
        return msgpack.packb({"accepted": True} if result.token is None else result.token)
    assert (method, options) == (b"get", {"explain": True})
    origin = result.token if result.version is None else result.version
    return msgpack.packb([result.value, origin, {"node": result.other_node or NODE}])
