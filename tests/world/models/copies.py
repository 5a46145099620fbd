"""What a host of the model of moves keeps: configs, records, clocks, copies.  See `moves.py`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container

    from tests.world.models.moves import Session

Clock = dict[int, int]  # By assignment: how many of its records are there.
Dot = tuple[int, int]


class Broken(Exception):
    """A promise was broken: which."""


class State(IntEnum):
    """How far an assignment is."""

    PROPOSED = 1
    INITIALIZING = 2
    AVAILABLE = 3
    LEAVING = 4


class Assignment(NamedTuple):
    """A node that holds the partition, or is to."""

    id: int
    node: int
    slot: int
    state: State


class Record(NamedTuple):
    """What was written; of two of a key the greater stays."""

    time: int
    origin: int
    counter: int
    key: int
    is_tombstone: bool

    @property
    def dot(self) -> Dot:
        return self.origin, self.counter


@dataclass(frozen=True)
class Config:
    """The partition's record in METADATA, at one of its versions."""

    version: int
    replication: int
    assignments: tuple[Assignment, ...]
    former: frozenset[int] = frozenset()
    ends: tuple[tuple[int, int | None], ...] = ()  # Of who was taken by force; None: not known yet.

    @cached_property
    def assigned(self) -> dict[int, Assignment]:
        return {one.id: one for one in self.assignments}

    @cached_property
    def named(self) -> frozenset[int]:
        """Whom clocks have."""
        return self.former | self.assigned.keys()

    @cached_property
    def slots(self) -> dict[int, list[Assignment]]:
        slots: dict[int, list[Assignment]] = {}
        for one in self.assignments:
            slots.setdefault(one.slot, []).append(one)
        return slots

    @cached_property
    def available(self) -> list[Assignment]:
        return [one for one in self.assignments if one.state == State.AVAILABLE]

    @property
    def needed(self) -> int:
        """How many slots are a majority for moves and forced ends."""
        return min(self.replication // 2 + 1, len({one.slot for one in self.available}))

    def state(self, id_: int) -> State | None:
        one = self.assigned.get(id_)
        return None if one is None else one.state


class Entry(NamedTuple):
    """How a copy's clock moved, and the records that won."""

    before: Clock
    after: Clock
    records: tuple[Record, ...]
    time: int


class Told(NamedTuple):
    """What a host says of its copy; a target that is not loaded has no clock for others, only spans."""

    number: int
    config: int
    clock: Clock
    spans: dict[int, tuple[Clock, Clock]]
    is_loaded: bool


@dataclass(slots=True)
class Copy:
    """A replica, under one assignment."""

    assignment: int
    config: int  # The last that named its assignment.
    clock: Clock
    is_loaded: bool = False
    is_whole: bool = False  # The last page is in.
    records: dict[int, Record] = field(default_factory=dict)
    time: int = 0
    log: list[Entry] = field(default_factory=list)
    base: int = 0
    floor: Clock = field(default_factory=dict)
    spans: dict[int, tuple[Clock, Clock]] = field(default_factory=dict)  # By source: before its first, after its last.
    starts: dict[int, int] = field(default_factory=dict)  # By target: where the log ended on adopting it.
    is_aside: bool = False

    def duplicate(self) -> Copy:
        return replace(self, records=dict(self.records), log=list(self.log), spans=dict(self.spans),
                       starts=dict(self.starts))  # fmt: skip

    def put(self, records: list[Record] | tuple[Record, ...]) -> tuple[Record, ...]:
        won = []
        for record in records:
            if record.key not in self.records or record > self.records[record.key]:
                self.records[record.key] = record
                won.append(record)
        return tuple(won)

    def append(self, after: Clock, records: tuple[Record, ...]) -> None:
        self.log.append(Entry(self.clock, after, records, self.time))
        self.clock = after

    def begin_log(self) -> None:
        """Have the log begin here: who has less is to load, and a load from here is torn."""
        self.base += len(self.log) + 1
        self.log, self.floor = [], self.clock


@dataclass(slots=True)
class Disk:
    """What a node keeps: the config that it has adopted, and its copies."""

    config: int
    copies: dict[int, Copy] = field(default_factory=dict)

    def duplicate(self) -> Disk:
        return Disk(self.config, {id_: copy.duplicate() for id_, copy in self.copies.items()})


class Whole(NamedTuple):
    """All of a copy, for another that has less than its log goes on from."""

    feeder: int
    target: int
    config: int
    records: list[Record]
    clock: Clock
    time: int


class PageAsked(NamedTuple):
    """What a target asks of its source."""

    target: int
    source: int
    number: int  # Of the load.
    page: int
    position: int  # Where the source's log ended when it sent the first page.


class Page(NamedTuple):
    """A page of the source's records, or, the last one, of its log."""

    number: int
    page: int
    position: int
    config: int
    records: list[Record]
    clock: Clock
    time: int


@dataclass(slots=True)
class Load:
    """What a target loads from a source, page by page."""

    number: int
    source: Assignment
    at: int
    page: int = 0
    position: int = 0
    aside: list[Record] = field(default_factory=list)


class Pending(NamedTuple):
    """A write that waits for its level."""

    record: Record
    level: str
    session: Session


def covers(one: Clock, other: Clock, named: Container[int]) -> bool:
    """Whether one clock has all of another, but for what has ended."""
    return all(one.get(origin, 0) >= count for origin, count in other.items() if origin in named)


def join(one: Clock, other: Clock) -> Clock:
    """The greater of each; what the first does not name has ended."""
    return {origin: max(count, other.get(origin, 0)) for origin, count in one.items()}
