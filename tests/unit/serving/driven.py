"""Small files, versions and cores for the tests of a node, and a peer that drives a core by hand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from gossipkv.keyspace import partitioner
from gossipkv.serving._serving import Core, LoopGroup
from gossipkv.serving.published import Published, publish
from gossipkv.storage.sorted_file import SortedFile
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.world._world import Driver
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gossipkv.wire.rpc import Value

NODE = "here"

LIMITS = {
    "max_frame": 1 << 20,
    "max_depth": MAX_DEPTH,
    "max_elements": MAX_ELEMENTS,
    "max_key": 65_535,
    "max_value": 1 << 24,
    "max_in_flight": 100,
    "max_in_flight_total": 1 << 16,
    "max_queued": 1 << 20,
    "scan_limit": 1000,
    "max_held": 1 << 24,
    "max_connections": 100,
    "max_connections_per_address": 0,
    "frame_timeout_ms": 1_000,
    "output_timeout_ms": 1_000,
    "idle_timeout_ms": 0,
}


def make_core(**limits: int) -> Core:
    """Return a core with small limits, or the given ones."""
    given = {**LIMITS, **limits}
    group = LoopGroup(
        1,
        max_connections=given.pop("max_connections"),
        max_of_address=given.pop("max_connections_per_address"),
        max_in_flight=given.pop("max_in_flight_total"),
        max_held=given.pop("max_held"),
    )
    return Core(**given, node=NODE, group=group)


@dataclass
class BuiltVersion:
    """A dataset version in the form of the library."""

    database: str
    name: str
    files: list[SortedFile | None]
    function: str = "sequins"
    wire_id: bytes | None = None
    passed: bool = True
    active_elsewhere: bool = False
    source_ms: int = 0


_counter = itertools.count()


def make_file(directory: Path, records: Mapping[bytes, bytes]) -> SortedFile:
    path = directory / f"{next(_counter)}.gkv"
    build(path, records.items())
    return SortedFile(path)


def make_version(
    directory: Path, database: str, name: str, records: Mapping[bytes, bytes], partitions: int = 1
) -> BuiltVersion:
    """Return a version whose records are partitioned by Sequins' function."""
    groups: list[dict[bytes, bytes]] = [{} for _ in range(partitions)]
    for key, value in records.items():
        groups[partitioner.partition("sequins", key, partitions)][key] = value
    return BuiltVersion(database, name, [make_file(directory, group) for group in groups])


def one_database(directory: Path, records: Mapping[bytes, bytes], partitions: int = 1) -> Published:
    """Return the database `db` with the active version `v1`."""
    return publish([(make_version(directory, "db", "v1", records, partitions), True)])


@dataclass
class Peer:
    """A connection of a core, and its client's end."""

    core: Core
    now_ms: int = 1
    driver: Driver = field(init=False)
    handle: int = field(init=False)
    received: bytes = b""

    def __post_init__(self) -> None:
        self.driver = Driver(self.core)
        handle = self.driver.open(self.now_ms)
        assert handle is not None
        self.handle = handle

    def send(self, data: bytes) -> list[tuple[int, int, bytes, bytes]]:
        output, hand_offs = self.driver.receive(self.handle, data, self.now_ms)
        self.received += output
        return hand_offs

    def take(self) -> None:
        self.received += self.driver.take_output(self.handle, 1 << 30, self.now_ms)

    def answers(self) -> list[list[Value]]:
        """Return all answers since the last call; they must be complete."""
        unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)
        unpacker.feed(self.received)
        answers = list(unpacker)
        assert unpacker.tell() == len(self.received)
        self.received = b""
        return answers

    def ask(self, method: str, *params: Value, msgid: int = 1) -> list[Value]:
        """Return `[error, result]` of a request that the core answers, in as many slices as needed."""
        hand_offs = self.send(rpc.request(msgid, method, params))
        while self.driver.has_work and self.received == b"":
            hand_offs += self.driver.run(self.now_ms)
            self.take()
        assert hand_offs == []
        ((kind, answered, error, result),) = self.answers()
        assert (kind, answered) == (1, msgid)
        return [error, result]

    def hands_off(self, method: str, *params: Value, msgid: int = 1) -> bool:
        """Return True if a request is handed off unchanged; the hand-off is then answered."""
        frame = rpc.request(msgid, method, params)
        hand_offs = self.send(frame)
        while self.driver.has_work and self.received == b"" and not hand_offs:
            hand_offs = self.driver.run(self.now_ms)
        if not hand_offs:
            self.received = b""
            return False
        assert hand_offs == [(self.handle, msgid, method.encode(), msgpack.packb(params))]
        assert self.received == b""
        assert self.driver.reply(self.handle, msgid, rpc.response(msgid, None))
        self.take()
        self.received = b""
        return True


def is_pinned(file: SortedFile | None) -> bool:
    """Return True if a reader holds the file; otherwise close the file."""
    assert file is not None
    try:
        file.close()
    except BufferError:
        return True
    return False
