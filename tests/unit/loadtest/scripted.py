"""A server that a test plays turn by turn, at times that the test sets, without threads or clocks."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import msgpack

from gossipkv.loadtest._loadtest import Generator, RpcDialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.loadtest._loadtest import Dialect, KeyChooser, Writes

MS = 1_000_000
RECORDS = [(b"key-%02d" % number, b"value of %d" % number) for number in range(20)]


@dataclass(frozen=True)
class Asked:
    """A request as the server sees it."""

    message_id: int
    method: str
    keys: list[bytes]
    limit: int = 0


@dataclass
class Peer:
    socket: socket.socket
    unpacker: msgpack.Unpacker = field(default_factory=lambda: msgpack.Unpacker(raw=False))

    def asked(self) -> list[Asked]:
        found = []
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                self.unpacker.feed(data)
        for kind, message_id, method, (database, keys) in self.unpacker:
            assert (kind, database) == (0, "db")
            if method == "scan":
                found.append(Asked(message_id, method, [keys["start"]], keys["limit"]))
            else:
                found.append(Asked(message_id, method, keys if method == "get_many" else [keys]))
        return found

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)


def right(asked: Asked, records: Sequence[tuple[bytes, bytes | None]] = RECORDS) -> bytes:
    values = [dict(records)[key] for key in asked.keys]
    return answer(asked.message_id, [values if asked.method == "get_many" else values[0], "1"])


def answer(message_id: object, result: object, error: object = None) -> bytes:
    return msgpack.packb([1, message_id, error, result])


class Scripted:
    """A generator whose connections end in this test."""

    def __init__(
        self,
        records: Sequence[tuple[bytes, bytes | None]] = RECORDS,
        *,
        connections: int = 1,
        in_flight: int = 1,
        batch: int = 1,
        timeout_ms: int = 1000,
        seed: int = 1,
        dialect: Dialect | None = None,
        mix: Sequence[float] | None = None,
        chooser: KeyChooser | None = None,
        writes: Writes | None = None,
        walk: int = 0,
    ) -> None:
        ends = [socket.socketpair() for _ in range(connections)]
        self.peers = [Peer(theirs) for _, theirs in ends]
        self.generator = Generator(
            RpcDialect("db", records) if dialect is None else dialect,
            [ours for ours, _ in ends],
            in_flight=in_flight,
            batch=batch,
            timeout_ms=timeout_ms,
            seed=seed,
            mix=mix,
            chooser=chooser,
            writes=writes,
            walk=walk,
        )

    @property
    def peer(self) -> Peer:
        (peer,) = self.peers
        return peer

    def turn(self, now_ns: int = 0) -> bool:
        """Do one turn of the generator; return whether it goes on."""
        return self.generator.step_at(now_ns)

    def counted(self, *names: str) -> list[int]:
        return [getattr(self.generator.tally, name) for name in names]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.generator.close()
        for peer in self.peers:
            peer.socket.close()
