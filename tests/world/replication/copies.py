"""The durable state of a replica, as the witness models it, and its encoding on disks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgpack

Clock = dict[int, int]
Dot = tuple[int, int]
Records = dict[bytes, bytes]

IDENTITY: Final = b"\0i"
LOADING: Final = b"\0l"
STATE: Final = b"\0c"
JOINING: Final = b"\0j"
ASIDE: Final = b"\0x"
DIVIDED: Final = b"\0b"
LEFT: Final = b"\0d"
KIND_BYTES: Final = 2
RECORD: Final = b"\1"
DELETED: Final = b"\2"  # The kind of a tombstone.
EXPIRING: Final = b"\3"  # The kind of a put with an expiry.


class Bounds(NamedTuple):
    """The keys of a partition, from the first to before the end; a shard has all keys."""

    first: bytes = b""
    end: bytes | None = None

    def has(self, key: bytes) -> bool:
        return self.first <= key and (self.end is None or key < self.end)


WHOLE: Final = Bounds()


class State(NamedTuple):
    """A replica's decoded STATE."""

    config: int
    after: Clock
    before: Clock
    named: tuple[int, ...] | None = None  # The origins with an entry in the clock; None: not decoded.


class Span(NamedTuple):
    """A merged part of a source, ahead of the clock."""

    source: int
    before: Clock
    after: Clock

    def has(self, dot: tuple[int, int]) -> bool:
        return self.before.get(dot[0], 0) < dot[1] <= self.after.get(dot[0], 0)


class Joining(NamedTuple):
    """A replica's state beside its clock, until it is complete."""

    is_loaded: bool
    spans: tuple[Span, ...]


NOTHING: Final = State(0, {}, {})


def order_of(data: bytes) -> bytes:
    return data[:24]


def dot_of(data: bytes) -> Dot:
    return int.from_bytes(data[8:16], "big"), int.from_bytes(data[16:24], "big")


def clock_of(packed: bytes) -> Clock:
    pairs = (packed[at : at + 16] for at in range(0, len(packed), 16))
    numbers = ((int.from_bytes(pair[:8], "big"), int.from_bytes(pair[8:], "big")) for pair in pairs)
    return {origin: count for origin, count in numbers if count}


def state_of(value: bytes) -> State:
    half = (len(value) - 16) // 2
    after, before = value[16 : 16 + half], value[16 + half :]
    named = tuple(int.from_bytes(after[at : at + 8], "big") for at in range(0, half, 16))
    return State(int.from_bytes(value[8:16], "big"), clock_of(after), clock_of(before), named)


def identity_of(value: bytes) -> tuple[int, Bounds]:
    """Return the assignment of a replica, and its bounds."""
    _, _, _, assignment, *bounds = msgpack.unpackb(value)
    return assignment, Bounds(*bounds)


def joining_of(value: bytes) -> Joining:
    is_loaded, rows = msgpack.unpackb(value)
    return Joining(is_loaded, tuple(Span(one, clock_of(before), clock_of(after)) for one, before, after in rows))


def covers(one: Clock, other: Clock) -> bool:
    """Return True if `one` covers all of `other`."""
    return all(count <= one.get(origin, 0) for origin, count in other.items())


def needed(level: str, slots: int) -> int:
    return {"one": 1, "majority": slots // 2 + 1, "all": slots}[level]


@dataclass(eq=False)
class Model:
    """The durable state of one replica."""

    node: bytes
    partition: int
    assignment: int
    config: int = 0
    clock: Clock = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    collected: set[bytes] = field(default_factory=set)  # The keys of tombstones that are no longer on the disk.
    # By config id: the durable counters of each origin under that map, and the spans merged ahead.
    confirmed: defaultdict[int, Clock] = field(default_factory=lambda: defaultdict(dict))
    merged: defaultdict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    is_older: bool = False  # The disk is an older copy: the replica's own records come back from others.
    joining: Joining | None = None  # None: the replica is complete.
    left: str = ""  # Set when the replica is dropped, quarantined, or split.

    def has_confirmed(self, config: int, dot: Dot) -> bool:
        """Return True if the replica had a record durably while it went by a config."""
        is_covered = self.confirmed[config].get(dot[0], 0) >= dot[1]
        return is_covered or any(span.source == dot[0] and span.has(dot) for span in self.merged[config])


class Change(NamedTuple):
    """The effect of a batch on a replica."""

    position: int
    assignment: int
    state: State
    records: tuple[tuple[bytes, bytes], ...]
    collected: tuple[bytes, ...] = ()
    space: int = 0
    loaded: Records | None = None  # All records of that space, after a load or at the start.
    joining: Joining | None = None  # The state beside the clock,
    is_joining: bool = False  # if the batch says something of that state.
    left: str = ""  # The replica is dropped, quarantined, or split,
    orphans: tuple[Bounds, ...] = ()  # and these parts of it are quarantined.
    # The assignment of the parent of this child, or of the quarantined replica that it continues.
    parent: int | None = None
