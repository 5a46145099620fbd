"""What is on all disks, what was told of it, and whether both may be.

A model of each copy is moved by the batches that its disk has synced.  A clock *means* something: for each key a copy
has the greatest of all records that its clock covers; so each batch is looked at for what it newly covers, and by
induction copies of equal clocks are equal.  A copy that loads goes on in another space: that one is held against the
meaning of its clock as a whole.  Nothing of the code under test is asked but how records and clocks read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack
import trio

from gossipkv.storage.engine.shell import DELETE, PUT, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.replication.copy import Copy
    from gossipkv.storage.engine.shell import Batch
    from tests.world.replication.store import RunningStore

Clock = dict[int, int]
Dot = tuple[int, int]
Records = dict[bytes, bytes]

IDENTITY: Final = b"\0i"
LOADING: Final = b"\0l"
STATE: Final = b"\0c"
RECORD: Final = b"\1"
DELETED: Final = b"\2"  # The kind of a tombstone.
MOST_VIOLATIONS: Final = 100
CALM: Final = 2.05  # So often a record travels at most, where nothing strikes and there are three of each.
SLOWER: Final = 2.0  # So much slower a write may be, at the 99th percentile, while a link is cut.


class Violation(NamedTuple):
    """A promise that was broken."""

    checker: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:9.3f} s  {self.checker}: {self.what}"


class State(NamedTuple):
    """What stands in a copy's state."""

    config: int
    after: Clock
    before: Clock


NOTHING: Final = State(0, {}, {})


def order_of(data: bytes) -> bytes:
    """By which the later record wins."""
    return data[:24]


def dot_of(data: bytes) -> Dot:
    """Origin and counter of a record."""
    return int.from_bytes(data[8:16], "big"), int.from_bytes(data[16:24], "big")


def clock_of(packed: bytes) -> Clock:
    """A packed clock, without what is 0."""
    pairs = (packed[at : at + 16] for at in range(0, len(packed), 16))
    numbers = ((int.from_bytes(pair[:8], "big"), int.from_bytes(pair[8:], "big")) for pair in pairs)
    return {origin: count for origin, count in numbers if count}


def state_of(value: bytes) -> State:
    """Read it."""
    half = (len(value) - 16) // 2
    return State(int.from_bytes(value[8:16], "big"), clock_of(value[16 : 16 + half]), clock_of(value[16 + half :]))


def needed(level: str, slots: int) -> int:
    """How many slots a write needs."""
    return {"one": 1, "majority": slots // 2 + 1, "all": slots}[level]


def covers(one: Clock, other: Clock) -> bool:
    """Whether one has all that the other has."""
    return all(count <= one.get(origin, 0) for origin, count in other.items())


def p99(times: Iterable[float]) -> float:
    """The 99th percentile.  Requires: there are some."""
    ordered = sorted(times)
    return ordered[len(ordered) * 99 // 100]


@dataclass(eq=False)
class Model:
    """What a copy has durably."""

    node: bytes
    partition: int
    assignment: int
    config: int = 0
    clock: Clock = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    collected: set[bytes] = field(default_factory=set)  # Keys of tombstones that are not on the disk any more.
    # By config id, how much of each origin was durable when this was.
    confirmed: defaultdict[int, Clock] = field(default_factory=lambda: defaultdict(dict))
    is_older: bool = False  # It was put back from an older copy of its disk: its own records come from others.


class Change(NamedTuple):
    """What a batch does to a copy."""

    position: int
    assignment: int
    state: State
    records: tuple[tuple[bytes, bytes], ...]
    collected: tuple[bytes, ...] = ()
    space: int = 0  # That it is in from then on, where it has loaded,
    loaded: Records | None = None  # and all that is there.


class Acknowledged(NamedTuple):
    """What a client was told to be written."""

    partition: int
    key: bytes
    order: bytes
    by_one: bool  # By its origin alone.


@final
class Witness:
    """Who sees all disks."""

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self._now = now
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.models: dict[int, Model] = {}  # By assignment.
        self.issued: dict[Dot, tuple[bytes, bytes]] = {}  # Key and record, as last given out.
        self.durable: dict[Dot, bytes] = {}  # Records that were durable at their origin.
        self.gone: set[bytes] = set()  # Tombstones that somebody has collected.
        self.acknowledged: list[Acknowledged] = []
        self.asked: Counter[int] = Counter()  # Writes, by number: how often each was answered.
        self.answered: Counter[int] = Counter()
        self.latencies: list[tuple[int, bytes, float, float]] = []  # Partition, node, when, how long.

    def found(self, checker: str, what: str) -> None:
        """Write a violation down."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(checker, self._now(), what))

    # -- disks -------------------------------------------------------------------------------------------------------

    def applies(self, change: Change) -> None:
        """A batch is durable."""
        model = self.models[change.assignment]
        state, who = change.state, f"{change.assignment} of partition {model.partition}"
        for key in change.collected:
            self._collects(model, who, key)
        if change.collected:
            return
        model.config = state.config
        if change.loaded is not None:
            self._loads(model, who, state, change.loaded)
        elif state.before != state.after:
            if state.before != model.clock:
                self.found("continuity", f"{who}: a batch goes on from {state.before}, and it has {model.clock}")
            rises = {origin for origin, count in state.after.items() if count > model.clock.get(origin, 0)}
            if model.assignment in rises and not model.is_older:
                self._originates(model, change, rises)
            for key, data in change.records:
                self._puts(model, who, state, key, data)
            for origin in sorted(rises):
                for count in range(model.clock.get(origin, 0) + 1, state.after[origin] + 1):
                    self._covers(model, who, (origin, count))
            model.clock = state.after
            self._compare(model)
        model.confirmed[state.config].update(model.clock)

    def _originates(self, model: Model, change: Change, rises: set[int]) -> None:
        who = f"{model.assignment} of partition {model.partition}"
        if rises != {model.assignment} or any(dot_of(data)[0] != model.assignment for _, data in change.records):
            self.found("mixed", f"{who}: a batch has records of its own and of {sorted(rises)}")
        counters = [dot_of(data)[1] for _, data in change.records if dot_of(data)[0] == model.assignment]
        begin, end = change.state.before.get(model.assignment, 0) + 1, change.state.after[model.assignment] + 1
        if counters != [*range(begin, end)]:
            self.found("counters", f"{who}: it gave out {counters}, and its clock says {begin} to {end - 1}")
        for _, data in change.records:
            dot = dot_of(data)
            if dot[0] == model.assignment:
                if dot in self.durable:
                    self.found("counters", f"{who}: it gave out {dot[1]} again")
                self.durable[dot] = data

    def _puts(self, model: Model, who: str, state: State, key: bytes, data: bytes) -> None:
        if self.durable.get(dot_of(data)) != data:
            self.found("made up", f"{who}: a record of dot {dot_of(data)} that its origin has not")
        if not covers(state.after, dict([dot_of(data)])):
            self.found("ahead", f"{who}: a record of dot {dot_of(data)}, which its clock {state.after} does not cover")
        if order_of(model.records.get(key, b"")) >= order_of(data):
            self.found("older wins", f"{who}: {key!r} had {dot_of(model.records[key])}, and has {dot_of(data)}")
        model.records[key] = data
        model.collected.discard(key)

    def _loads(self, model: Model, who: str, state: State, loaded: Records) -> None:
        """A copy is in another space: for each key it has the greatest of what its clock covers, and nothing else."""
        self.counts["loads"] += 1
        if not covers(state.after, model.clock):
            self.found("continuity", f"{who}: it has loaded {state.after}, and had {model.clock}")
        if state.before != state.after:
            self.found("floor", f"{who}: its log goes on from {state.before}, and it has loaded {state.after}")
        for dot in state.after.items():
            if dot not in self.durable:
                self.found("fed", f"{who}: it has loaded up to {dot}, which is not durable at its origin")
        there: Records = {}
        for (origin, count), data in self.durable.items():
            if count <= state.after.get(origin, 0) and self.models[origin].partition == model.partition:
                key, _ = self.issued[origin, count]
                there[key] = max(there.get(key, b""), data, key=order_of)
        for key in sorted(there.keys() | loaded.keys()):
            has, due = loaded.get(key), there.get(key, b"")
            if has != due and not (has is None and due in self.gone):
                what = None if has is None else dot_of(has)
                self.found("loaded", f"{who}: of {key!r} it has {what}, and its clock covers {dot_of(due)}")
        model.clock, model.records, model.collected = state.after, there, {*there.keys() - loaded.keys()}
        self._compare(model)

    def _collects(self, model: Model, who: str, key: bytes) -> None:
        """A tombstone goes when every copy has it, or something later.

        One that a newer map has brought, and that has nothing yet, has nothing older than the tombstone either.
        """
        data = model.records.get(key, b"")
        origin, count = dot_of(data)
        all_ = [one for one in self.models.values() if one.partition == model.partition]
        there = [one for one in all_ if one.clock or one.config <= model.config]
        if data[24:25] != DELETED or any(one.clock.get(origin, 0) < count for one in there):
            self.found("collected", f"{who}: {key!r} of dot {(origin, count)}, which not every copy has as a tombstone")
        model.collected.add(key)
        self.gone.add(data)
        self.counts["collected"] += 1

    def _covers(self, model: Model, who: str, dot: Dot) -> None:
        issued = self.issued.get(dot)
        if issued is None or dot not in self.durable:
            self.found("fed", f"{who}: it covers {dot}, which is not durable at its origin")
        if issued is not None and order_of(model.records.get(issued[0], b"")) < order_of(issued[1]):
            self.found("missing", f"{who}: it covers {dot} of {issued[0]!r}, and has neither that nor a later one")

    def _compare(self, model: Model) -> None:
        """Compare with all copies that have the same clock."""
        for other in self.models.values():
            if other.partition == model.partition and other.clock == model.clock and other.records != model.records:
                names = f"{model.assignment} and {other.assignment} of partition {model.partition}"
                self.found("unequal", f"{names} have the clock {model.clock}, and other records")

    def opened(self, eye: Eye, store: RunningStore) -> None:
        """A node has its store open: of what was not known to be synced some may be there."""
        states: dict[int, tuple[int, State]] = {}
        eye.spaces.clear()
        eye.sides.clear()
        for space in store.spaces():
            value = store.get(space, STATE)
            if value is not None and store.get(space, IDENTITY) is not None:
                states[self._assignment(store, space)] = space, state_of(value)
        pending, eye.pending = eye.pending, []
        if eye.is_put_back:
            eye.is_put_back = False
            for assignment, (space, state) in states.items():
                self._goes_back(self.models[assignment], state, self._records(store, space))
        for change in pending:
            if change.assignment in states and self._is_there(change, store, *states[change.assignment]):
                self._model(eye, change.assignment)
                self.applies(change)
        for assignment, (space, state) in states.items():
            model = self._model(eye, assignment)
            eye.spaces[space] = assignment
            there = {key: data for key, data in model.records.items() if key not in model.collected}
            if state.after != model.clock or self._records(store, space) != there:
                self.found("disk", f"{assignment}: what is on the disk is not what was synced")
            model.config = state.config

    def _is_there(self, change: Change, store: RunningStore, space: int, state: State) -> bool:
        """Whether the disk has it, though it was not known to be synced."""
        if change.loaded is not None:
            return change.space == space
        if change.collected:
            return not self._records(store, space).keys() & {*change.collected}
        return covers(state.after, change.state.after)

    @staticmethod
    def _records(store: RunningStore, space: int) -> Records:
        records, _ = store.scan(space, RECORD, b"\2", limit=1 << 16)
        return {key[1:]: data for key, data in records}

    def _goes_back(self, model: Model, state: State, records: Records) -> None:
        """An older copy of a disk is all that a node has: from now on it originates nothing."""
        model.clock, model.records, model.is_older = state.after, records, True
        model.collected.clear()
        model.confirmed.clear()

    @staticmethod
    def _assignment(store: RunningStore, space: int) -> int:
        identity = store.get(space, IDENTITY)
        assert identity is not None
        assignment: int = msgpack.unpackb(identity)[3]
        return assignment

    def _model(self, eye: Eye, assignment: int) -> Model:
        if assignment not in self.models:
            self.models[assignment] = Model(eye.node, eye.partitions[assignment], assignment)
        return self.models[assignment]

    # -- what is told ------------------------------------------------------------------------------------------------

    def told(self, number: int, copy: Copy, dots: list[Dot], level: str) -> None:
        """A client was told that a write has reached its level."""
        origin, count = dots[-1]
        slots: dict[int, bool] = {}
        for host in copy.hosts:
            if host.counts:
                model = self.models.get(host.assignment)
                is_origin = host.assignment == origin
                clock = {} if model is None else model.clock if is_origin else model.confirmed[copy.config]
                slots[host.slot] = slots.get(host.slot, True) and clock.get(origin, 0) >= count
        is_here = self.models[origin].clock.get(origin, 0) >= count
        if not is_here or (
            level != "one" and sum(slots.values()) < needed(level, len({host.slot for host in copy.hosts}))
        ):
            self.found("acknowledged", f"write {number}, {dots} at {level}: only {sum(slots.values())} slots have it")
        for dot in dots:
            key, data = self.issued[dot]
            self.acknowledged.append(Acknowledged(copy.identity.partition, key, order_of(data), level == "one"))

    def sends(self, node: bytes, records: list[bytes]) -> None:
        """A node sends records: it has them durably."""
        for data in records:
            origin, count = dot_of(data)
            partition = self.models[origin].partition
            has = [one for one in self.models.values() if (one.node, one.partition) == (node, partition)]
            if all(one.clock.get(origin, 0) < count for one in has):
                self.found("fed", f"{dot_of(data)} is sent, and not durable at its sender")
        self.counts["records sent"] += len(records)

    def check_answers(self) -> None:
        """Each write is answered once."""
        for number, count in sorted(self.answered.items()):
            if count > 1:
                self.found("answers", f"write {number} was answered {count} times")
        for number in sorted(self.asked.keys() - self.answered.keys()):
            self.found("answers", f"write {number} was not answered")

    def check_travel(self) -> None:
        """A record goes to each other copy once, by its origin."""
        if (travelled := self.travelled) > CALM:
            self.found("travel", f"a record travelled {travelled:.2f} times")

    @property
    def travelled(self) -> float:
        """How often a record was sent, on average."""
        return self.counts["records sent"] / max(1, self.counts["records"])

    def check_latency(self, cut_s: float, relayed_s: float) -> None:
        """While a link is cut, at `cut_s`, writes soon take little longer than before: from `relayed_s` on."""
        before = p99(took for _, _, began, took in self.latencies if began < cut_s)
        since = p99(took for _, _, began, took in self.latencies if began >= relayed_s)
        if since > SLOWER * before:
            self.found("slow", f"p99 of a write is {since:.3f} s with a link cut, and was {before:.3f} s")

    def check_quiet(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Soon after healing nothing is fed, told or appended any more."""
        if before != after:
            self.found("quiet", f"feeds, tells and appends: {before}, and then {after}")

    def check_litter(self, store: RunningStore) -> None:
        """Nothing is left of loads that were torn."""
        for space in store.spaces():
            if store.get(space, LOADING) is not None:
                self.found("litter", f"space {space} is of a load, and nobody loads")

    def check_end(self, lost: set[bytes]) -> None:
        """Copies are equal, and have what was acknowledged; the nodes that are lost do not count."""
        partitions = defaultdict(list)
        for model in self.models.values():
            if model.node not in lost:
                partitions[model.partition].append(model)
        for partition, models in sorted(partitions.items()):
            if len({tuple(sorted(model.clock.items())) for model in models}) > 1:
                clocks = {model.assignment: model.clock for model in models}
                self.found("level", f"partition {partition}: {clocks}")
        for one in self.acknowledged:
            if one.by_one and self.models[dot_of(one.order)[0]].node in lost:
                continue
            for model in partitions[one.partition]:
                if order_of(model.records.get(one.key, b"")) < one.order:
                    dot = dot_of(one.order)
                    self.found("lost", f"partition {one.partition}: {dot} of {one.key!r} was acknowledged")


@final
@dataclass(eq=False)
class Eye:
    """What the witness sees of one disk; see `store.Heard`."""

    witness: Witness
    node: bytes
    partitions: dict[int, int]  # By assignment.
    spaces: dict[int, int] = field(default_factory=dict)  # The assignment of each.
    sides: dict[int, Records] = field(default_factory=dict)  # What is appended to spaces that are no copy's yet.
    pending: list[Change] = field(default_factory=list)
    is_put_back: bool = False  # Its disk is an older copy, from the next life on.

    def appended(self, position: int, batch: Batch) -> None:
        """See a batch that is appended."""
        spaces: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        gone: dict[int, list[bytes]] = defaultdict(list)
        for kind, space, key, value in operations(batch.payload):
            if kind == PUT:
                spaces[space].append((key, value))
            elif kind == DELETE and key[:1] == RECORD:
                gone[space].append(key[1:])
        for space, puts in spaces.items():
            self._appended(position, space, puts)
        for space, keys in gone.items():
            self.pending.append(Change(position, self.spaces[space], NOTHING, (), tuple(keys)))
        for space in batch.dropped:
            self.spaces.pop(space, None)
            self.sides.pop(space, None)

    def _appended(self, position: int, space: int, puts: list[tuple[bytes, bytes]]) -> None:
        witness = self.witness
        values = dict(puts)
        if LOADING in values:
            self.sides[space] = {}
        if space in self.sides:
            self.sides[space].update((key[1:], data) for key, data in puts if key[:1] == RECORD)
        loaded = self.sides.pop(space, None) if IDENTITY in values else None
        if IDENTITY in values:
            self.spaces[space] = msgpack.unpackb(values[IDENTITY])[3]
        if space not in self.spaces or STATE not in values:
            return
        state = state_of(values[STATE])
        records = tuple((key[1:], data) for key, data in puts if key[:1] == RECORD)
        assignment = self.spaces[space]
        for key, data in records:
            if dot_of(data)[0] == assignment:
                witness.issued[dot_of(data)] = key, data
                witness.counts["records"] += 1
        self.pending.append(Change(position, assignment, state, records, space=space, loaded=loaded))

    def synced(self, position: int) -> None:
        """All up to a position is synced."""
        while self.pending and self.pending[0].position <= position:
            change = self.pending.pop(0)
            self.witness._model(self, change.assignment)
            self.witness.applies(change)
