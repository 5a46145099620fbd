"""A client that asks one request at a time, as fast as it is answered, and speaks the protocols by itself.

It checks each answer after its clock has stopped; no code of ours is on its side.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING

import msgpack

from tests.bench.data import SEED
from tests.bench.measurement import WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address

SOCKET_TIMEOUT_S = 10.0
LOOK_PERIOD_S = 0.05
MICROSECOND_NS = 1e3
RECEIVE_BYTES = 1 << 16


class Client:
    """A connection that has one request in flight."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=SOCKET_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        """Ask, and do not wait."""
        self._socket.sendall(request)

    def receive(self, decode: Callable[[bytes], object]) -> object:
        """What was asked; `decode` raises ValueError for half an answer."""
        reply = self._receive()
        while True:
            try:
                return decode(reply)
            except ValueError:
                reply += self._receive()

    def _receive(self) -> bytes:
        received = self._socket.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the server closed the connection")
        return received

    def time(self, request: bytes, value: bytes, decode: Callable[[bytes], object]) -> int:
        """Nanoseconds of one get that must answer `value`."""
        begin = perf_counter_ns()
        self._socket.sendall(request)
        reply = self._receive()
        elapsed = perf_counter_ns() - begin
        if decode(reply) != value:
            raise WrongAnswerError(f"expected {value!r}, got {reply!r}")
        return elapsed

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def node_get(database: str, key: bytes) -> bytes:
    """A get as MessagePack-RPC."""
    return msgpack.packb([0, 1, "get", [database, key]])


def node_value(reply: bytes) -> object:
    """The value in an answer; None for any error."""
    _, _, error, result = msgpack.unpackb(reply)
    return None if error is not None else result[0]


def redis_get(key: bytes) -> bytes:
    """A get in redis' own protocol."""
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)


def redis_set(key: bytes, value: bytes) -> bytes:
    """A set in redis' own protocol."""
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


def redis_value(reply: bytes) -> object:
    """The value in an answer."""
    size, _, rest = reply.partition(b"\r\n")
    if not reply.endswith(b"\r\n") or (size.startswith(b"$") and size != b"$-1" and not rest):
        raise ValueError("half an answer")
    return rest[:-2]


def percentile(samples: list[int], share: float) -> float:
    """Microseconds that `share` of the samples do not exceed."""
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))] / MICROSECOND_NS


@dataclass(frozen=True)
class Reader:
    """A client, the requests it repeats in random order, and how it reads an answer."""

    client: Client
    questions: list[tuple[bytes, bytes]]  # Request and the value that must come back.
    decode: Callable[[bytes], object] = node_value
    rng: random.Random = random.Random(SEED)  # noqa: RUF009  # All share one.

    def read(self, until: Callable[[], bool]) -> list[int]:
        """Ask until `until()`, which is looked at now and then, says so; nanoseconds of each get."""
        samples = []
        next_look = monotonic() + LOOK_PERIOD_S
        while True:
            request, value = self.rng.choice(self.questions)
            samples.append(self.client.time(request, value, self.decode))
            if monotonic() >= next_look:
                if until():
                    return samples
                next_look = monotonic() + LOOK_PERIOD_S

    def read_for(self, seconds: float) -> list[int]:
        """Ask for so long."""
        end = monotonic() + seconds
        return self.read(lambda: monotonic() >= end)
