"""A core that asks other nodes, and peers that a test controls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from gossipkv.keyspace import partitioner
from gossipkv.serving._serving import PublishedTable
from gossipkv.wire import rpc
from tests.unit.serving.driven import Peer, make_core, make_version

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.storage.sorted_file import SortedFile
    from gossipkv.wire.rpc import Value

# A tuple of (handle, message id, method, parameters); for a read without an answer: method None and the report.
HandOff = tuple[int, int, bytes | None, bytes]

PARTITIONS = 4
IDENTITY = b"0123456789abcdef"
OTHER = b"fedcba9876543210"
RECORDS = {b"key%d" % number: b"value%d" % number for number in range(200)}
ALL = b"\x0f"


def partition_of(key: bytes) -> int:
    return partitioner.partition("sequins", key, PARTITIONS)


AWAY = [key for key in RECORDS if partition_of(key) != 0]
HERE = [key for key in RECORDS if partition_of(key) == 0]


def table(files: list[SortedFile | None], *, active: bool = True, identity: bytes = IDENTITY) -> PublishedTable:
    """Return the database `db` with `v1`, which has passed if it is active."""
    return PublishedTable([("db", "v1" if active else None, [("v1", 0, files, identity, active)])])


@dataclass
class Link:
    """A connection to a peer, whose other end the test controls."""

    asker: Asker
    column: int
    handle: int
    waiting: list[list[object]] = field(default_factory=list)
    sent: msgpack.Unpacker = field(default_factory=lambda: msgpack.Unpacker(raw=True))

    def has_requests(self) -> bool:
        """Return True if requests have come since the last call."""
        held = self.requests()
        self.waiting += held
        return bool(held)

    def requests(self) -> list[list[object]]:
        """Return the requests since the last call."""
        self.sent.feed(self.asker.client.driver.take_output(self.handle, 1 << 30, self.asker.client.now_ms))
        waiting, self.waiting = self.waiting, []
        return waiting + list(self.sent)

    def asked(self, expected: bytes = b"get") -> int:
        """Return the id of the only request since the last call, which must have the `expected` method."""
        requests = self.requests()
        assert len(requests) == 1
        ((kind, msgid, method, _),) = requests
        assert (kind, method) == (0, expected)
        assert isinstance(msgid, int)
        return msgid

    def say(self, data: bytes) -> list[HandOff]:
        return self.asker.client.driver.feed(self.handle, data, self.asker.client.now_ms)

    def answer(self, msgid: int, value: bytes | None, version: str = "v1") -> list[HandOff]:
        return self.say(rpc.response(msgid, [value, version]))

    def refuse(self, msgid: int, code: str) -> list[HandOff]:
        return self.say(msgpack.packb([1, msgid, [code, "no", {}], None]))

    @property
    def ends(self) -> bool:
        return self.asker.client.driver.should_close(self.handle)

    def close(self) -> None:
        self.asker.client.driver.close(self.handle)


class Asker:
    """A core with partition 0 that asks other nodes for the rest, and one client."""

    def __init__(self, directory: Path, peers: int = 1, *, files: list[SortedFile | None] | None = None, **limits: int):
        self.files = files or make_version(directory, "db", "v1", RECORDS, PARTITIONS).files
        self.core = make_core(**{"proxy_timeout_ms": 90, "proxy_stage_timeout_ms": 30, **limits})
        self.publish(table([self.files[0], None, None, None]))
        self.client = Peer(self.core)
        self.links = [self.link(column) for column in range(peers)]

    def publish(self, published: PublishedTable) -> None:
        self.published = published
        self.core.publish(published)

    def link(self, column: int) -> Link:
        """Connect a peer that holds all partitions."""
        self.core.set_peer(column, f"peer{column}:1", 0)
        self.core.set_holder(IDENTITY, PARTITIONS, column, ALL)
        return Link(self, column, self.client.driver.adopt(column, self.client.now_ms))

    def get(self, key: bytes, msgid: int = 1, **options: Value) -> None:
        """Send a get; check that no answer has come."""
        assert self.client.send(rpc.request(msgid, "get", ["db", key, options])) == []
        assert self.client.received == b""

    def answers(self) -> list[list[Value]]:
        self.client.take()
        return self.client.answers()

    def wait(self, elapsed_ms: int) -> list[HandOff]:
        """Let time pass in steps; return the hand-offs to Python."""
        handed: list[HandOff] = []
        for _ in range(elapsed_ms):
            self.client.now_ms += 1
            self.client.driver.expire(self.client.now_ms)
            handed += self.client.driver.run(self.client.now_ms)
        return handed

    def count(self, name: str) -> int:
        return self.core.counters()[name]
