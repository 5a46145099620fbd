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
from tests.world.replication.copies import (
    ASIDE,
    DELETED,
    IDENTITY,
    JOINING,
    LOADING,
    NOTHING,
    RECORD,
    STATE,
    Change,
    Model,
    covers,
    dot_of,
    joining_of,
    order_of,
    state_of,
)
from tests.world.replication.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.replication.copy import Copy
    from gossipkv.storage.engine.shell import Batch
    from tests.world.replication.copies import Dot, Records, Span, State
    from tests.world.replication.store import RunningStore

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


def needed(level: str, slots: int) -> int:
    """How many slots a write needs."""
    return {"one": 1, "majority": slots // 2 + 1, "all": slots}[level]


def p99(times: Iterable[float]) -> float:
    """The 99th percentile.  Requires: there are some."""
    ordered = sorted(times)
    return ordered[len(ordered) * 99 // 100]


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
        self.moves = Moves(self)
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
        who = f"{change.assignment} of partition {model.partition}"
        if model.left:
            self.found("left", f"{who}: it goes on, and was {model.left}")
        if change.left:
            model.left = change.left
            self.moves.left(model, change.left)
            return
        for key in change.collected:
            self._collects(model, who, key)
        if not change.collected:
            self._moves_on(model, who, change)

    def _moves_on(self, model: Model, who: str, change: Change) -> None:
        """A copy has another state."""
        state = change.state
        if change.loaded is None and model.joining is None:
            self._check_continuity(model, who, state)
        if state.config != model.config:
            model.config = state.config
            self.moves.adopts(model, who, state.after)
        if change.is_joining or model.joining is not None:
            self._joins(model, who, change)
        elif change.loaded is not None:
            self._loads(model, who, state, change.loaded)
        elif state.before != state.after:
            self._goes_on(model, who, change)
        model.clock = state.after
        model.confirmed[state.config].update(model.clock)
        model.merged[state.config] += () if model.joining is None else model.joining.spans
        if model.joining is None:
            self._compare(model)

    def _check_continuity(self, model: Model, who: str, state: State) -> None:
        if state.before not in (state.after, model.clock):
            self.found("continuity", f"{who}: a batch goes on from {state.before}, and it has {model.clock}")
        elif any(model.clock.get(origin, 0) != count for origin, count in state.before.items()):
            self.found("continuity", f"{who}: it adopts a map with {state.after}, and it has {model.clock}")

    def _goes_on(self, model: Model, who: str, change: Change) -> None:
        """A copy that is whole takes something in."""
        state = change.state
        rises = {origin for origin, count in state.after.items() if count > model.clock.get(origin, 0)}
        if model.assignment in rises and not model.is_older:
            self._originates(model, change, rises)
        for key, data in change.records:
            self._puts(model, who, key, data)
            if not covers(state.after, dict([dot_of(data)])):
                words = f"{who}: a record of dot {dot_of(data)}, which its clock {state.after} does not cover"
                self.found("ahead", words)
        for origin in sorted(rises):
            for count in range(model.clock.get(origin, 0) + 1, state.after[origin] + 1):
                self._covers(model, who, (origin, count))

    def _joins(self, model: Model, who: str, change: Change) -> None:
        """A copy that is not whole begins anew, merges ahead of its clock, loads, or is whole by that."""
        if change.state.before != change.state.after:
            self.found("feeds", f"{who}: its log has an entry, and it is not whole")
        if change.loaded is not None:
            model.records, model.clock = dict(change.loaded), {}
            self.counts["loads"] += bool(change.loaded)
        for key, data in change.records:
            self._puts(model, who, key, data)
        model.clock = change.state.after
        if not change.is_joining:
            return
        model.joining = change.joining
        if model.joining is None:
            self.counts["joined"] += 1
            self._is_whole(model, who, model.records)
            return
        for span in model.joining.spans:
            self._check_span(model, who, span)

    def _check_span(self, model: Model, who: str, span: Span) -> None:
        """All in a span is there, but for what the clock covers, and what lost to what its source had before."""
        meaning = self.moves.meaning(model)
        before: dict[bytes, bytes] = {}
        if covers(meaning, span.after):
            return
        for dot, (key, data) in self.issued.items():
            if self.moves.partitions[dot[0]] == model.partition and covers(span.before, dict([dot])):
                before[key] = max(before.get(key, b""), order_of(data))
        for dot, (key, data) in self.issued.items():
            if span.has(dot) and not covers(meaning, dict([dot])) and order_of(data) > before.get(key, b""):
                self._has(model, who, dot)

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

    def _puts(self, model: Model, who: str, key: bytes, data: bytes) -> None:
        if self.durable.get(dot_of(data)) != data:
            self.found("made up", f"{who}: a record of dot {dot_of(data)} that its origin has not")
        if order_of(model.records.get(key, b"")) >= order_of(data):
            self.found("older wins", f"{who}: {key!r} had {dot_of(model.records[key])}, and has {dot_of(data)}")
        self.moves.puts(model, who, dot_of(data))
        model.records[key] = data
        model.collected.discard(key)

    def _loads(self, model: Model, who: str, state: State, loaded: Records) -> None:
        """A copy is in another space, or in its first."""
        self.counts["loads"] += bool(loaded)
        if not covers(state.after, model.clock):
            self.found("continuity", f"{who}: it has loaded {state.after}, and had {model.clock}")
        if state.before != state.after:
            self.found("floor", f"{who}: its log goes on from {state.before}, and it has loaded {state.after}")
        model.clock = state.after
        self._is_whole(model, who, loaded)

    def _is_whole(self, model: Model, who: str, has: Records) -> None:
        """For each key a copy has the greatest of what its clock covers, and nothing else."""
        clock = self.moves.meaning(model)
        for dot in model.clock.items():
            if dot not in self.durable:
                self.found("fed", f"{who}: it has loaded up to {dot}, which is not durable at its origin")
        there: Records = {}
        for (origin, count), data in self.durable.items():
            if count <= clock.get(origin, 0) and self.models[origin].partition == model.partition:
                key, _ = self.issued[origin, count]
                there[key] = max(there.get(key, b""), data, key=order_of)
        for key in sorted(there.keys() | has.keys()):
            stands, due = has.get(key), there.get(key, b"")
            if stands != due and not (stands is None and due in self.gone):
                what = None if stands is None else dot_of(stands)
                self.found("loaded", f"{who}: of {key!r} it has {what}, and its clock covers {dot_of(due)}")
        model.records, model.collected = there, {*there.keys() - has.keys()}

    def _collects(self, model: Model, who: str, key: bytes) -> None:
        """A tombstone goes when every copy that its map names has it, or something later."""
        data = model.records.get(key, b"")
        origin, count = dot_of(data)
        lack = [
            one
            for one in self.moves.collectors(model)
            if one is None or one.joining is not None or self.moves.meaning(one).get(origin, 0) < count
        ]
        if data[24:25] != DELETED or lack:
            self.found("collected", f"{who}: {key!r} of dot {(origin, count)}, which not every copy has as a tombstone")
        model.collected.add(key)
        self.gone.add(data)
        self.counts["collected"] += 1

    def _covers(self, model: Model, who: str, dot: Dot) -> None:
        issued = self.issued.get(dot)
        if issued is None or dot not in self.durable:
            self.found("fed", f"{who}: it covers {dot}, which is not durable at its origin")
        self._has(model, who, dot)

    def _has(self, model: Model, who: str, dot: Dot) -> None:
        issued = self.issued.get(dot)
        if issued is not None and order_of(model.records.get(issued[0], b"")) < order_of(issued[1]):
            self.found("missing", f"{who}: it covers {dot} of {issued[0]!r}, and has neither that nor a later one")

    def _compare(self, model: Model) -> None:
        """Compare with all copies that have the same clock."""
        clock = self.moves.meaning(model)
        for other in self.models.values():
            if other.partition != model.partition or other.joining is not None or other.records == model.records:
                continue
            if not other.left and self.moves.meaning(other) == clock:
                names = f"{model.assignment} and {other.assignment} of partition {model.partition}"
                self.found("unequal", f"{names} have the clock {model.clock}, and other records")

    def opened(self, eye: Eye, store: RunningStore) -> None:
        """A node has its store open: of what was not known to be synced some may be there."""
        pending, eye.pending = eye.pending, []
        spaces = frozenset(change.space for change in pending)
        found = store.found(spaces, pending[0].position - 1) if pending and not eye.is_put_back else 0
        for change in pending:
            if change.position <= found:
                self._model(eye.node, change.assignment)
                self.applies(change)
        eye.spaces.clear()
        eye.sides.clear()
        for space in store.spaces():
            value = store.get(space, STATE)
            if value is None or store.get(space, IDENTITY) is None or store.get(space, ASIDE) is not None:
                continue
            assignment, state = self._assignment(store, space), state_of(value)
            model, records = self._model(eye.node, assignment), self._records(store, space)
            eye.spaces[space] = assignment
            if eye.is_put_back:
                self._goes_back(model, state, records)
            there = {key: data for key, data in model.records.items() if key not in model.collected}
            if state.after != model.clock or records != there:
                self.found("disk", f"{assignment}: what is on the disk is not what was synced")
            model.config = state.config
        eye.is_put_back = False
        for model in self.models.values():
            if model.node == eye.node and not model.left and model.assignment not in eye.spaces.values():
                self.found("disk", f"{model.assignment}: it is not on the disk any more")

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

    def _model(self, node: bytes, assignment: int) -> Model:
        if assignment not in self.models:
            self.models[assignment] = Model(node, self.moves.partitions[assignment], assignment)
        return self.models[assignment]

    # -- what is told ------------------------------------------------------------------------------------------------

    def told(self, number: int, copy: Copy, dots: list[Dot], level: str) -> None:
        """A client was told that a write has reached its level."""
        origin, count = dots[-1]
        slots: dict[int, bool] = {}
        for host in copy.hosts:
            if host.counts:
                model = self.models.get(host.assignment)
                is_origin = model is not None and host.assignment == origin and model.clock.get(origin, 0) >= count
                has = is_origin or (model is not None and model.has_confirmed(copy.config, (origin, count)))
                slots[host.slot] = slots.get(host.slot, True) and has
        served = {host.slot for host in copy.hosts if host.counts and host.available}
        there = sum(has for slot, has in slots.items() if slot in served)
        is_here = self.models[origin].clock.get(origin, 0) >= count
        if not is_here or (level != "one" and there < needed(level, copy.rules.slots or len(slots))):
            self.found("acknowledged", f"write {number}, {dots} at {level}: only {there} slots have it")
        for dot in dots:
            key, data = self.issued[dot]
            self.acknowledged.append(Acknowledged(copy.identity.partition, key, order_of(data), level == "one"))
        if level != "one":
            self.moves.acknowledged[copy.identity.partition].update(dots)
            self.moves.check_survival(copy.identity.partition)

    def sends(self, node: bytes, records: list[bytes]) -> None:
        """A node sends records: it has them durably."""
        for data in records:
            origin, count = dot_of(data)
            partition = self.models[origin].partition
            copies = [one for one in self.models.values() if (one.node, one.partition) == (node, partition)]
            has = [one for one in copies if not one.left]
            if not has or any(one.joining is not None for one in has):
                self.found("feeds", f"{dot_of(data)} is sent by who has no copy, or none that is whole")
            if all(self.moves.meaning(one).get(origin, 0) < count for one in copies):
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

    def check_end(self, lost: set[bytes], *, is_placed: bool = True) -> None:
        """Copies are equal, and have what was acknowledged; the nodes that are lost do not count."""
        self.moves.check_end({node for node in self.moves.nodes.values() if node not in lost}, is_placed=is_placed)
        hosts = {}
        for partition in self.moves.maps.keys() - self.moves.dropped:
            last = self.moves.last(partition)
            there = [self.models.get(one.id) for one in last.assignments if one.node not in lost] if last else []
            hosts[partition] = [one for one in there if one is not None and not one.left and one.joining is None]
        for partition, models in sorted(hosts.items()):
            if len({tuple(sorted(model.clock.items())) for model in models}) > 1:
                clocks = {model.assignment: model.clock for model in models}
                self.found("level", f"partition {partition}: {clocks}")
        for one in self.acknowledged:
            origin = dot_of(one.order)[0]
            if one.by_one and (self.models[origin].node in lost or origin in self.moves.forced):
                continue
            for model in hosts.get(one.partition, ()):
                if order_of(model.records.get(one.key, b"")) < one.order:
                    dot = dot_of(one.order)
                    self.found("lost", f"partition {one.partition}: {dot} of {one.key!r} was acknowledged")


@final
@dataclass(eq=False)
class Eye:
    """What the witness sees of one disk; see `store.Heard`."""

    witness: Witness
    node: bytes
    spaces: dict[int, int] = field(default_factory=dict)  # The assignment of each.
    sides: dict[int, Records] = field(default_factory=dict)  # What is appended to spaces that are no copy's yet.
    pending: list[Change] = field(default_factory=list)
    is_put_back: bool = False  # Its disk is an older copy, from the next life on.

    def appended(self, position: int, batch: Batch) -> None:
        """See a batch that is appended."""
        spaces: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        gone: dict[int, list[bytes]] = defaultdict(list)
        whole = set()
        for kind, space, key, value in operations(batch.payload):
            if kind == PUT:
                spaces[space].append((key, value))
            elif kind == DELETE and key[:1] == RECORD:
                gone[space].append(key[1:])
            elif kind == DELETE and key == JOINING:
                whole.add(space)
        for space, puts in spaces.items():
            self._appended(position, space, puts, is_whole=space in whole)
        for space, keys in gone.items():
            self.pending.append(Change(position, self.spaces[space], NOTHING, (), tuple(keys), space))
        for space in batch.dropped:
            assignment = self.spaces.pop(space, None)
            self.sides.pop(space, None)
            if assignment is not None and assignment not in self.spaces.values():
                self.pending.append(Change(position, assignment, NOTHING, (), (), space, left="dropped"))

    def _appended(self, position: int, space: int, puts: list[tuple[bytes, bytes]], *, is_whole: bool) -> None:
        witness = self.witness
        values = dict(puts)
        if LOADING in values:
            self.sides[space] = {}
        if space in self.sides:
            self.sides[space].update((key[1:], data) for key, data in puts if key[:1] == RECORD)
        loaded = self.sides.pop(space, {}) if IDENTITY in values else None
        if IDENTITY in values:
            self.spaces[space] = msgpack.unpackb(values[IDENTITY])[3]
        if ASIDE in values:
            self.pending.append(Change(position, self.spaces.pop(space), NOTHING, (), (), space, left="aside"))
        if space not in self.spaces or STATE not in values:
            return
        state, assignment = state_of(values[STATE]), self.spaces[space]
        records = tuple((key[1:], data) for key, data in puts if key[:1] == RECORD)
        for key, data in records:
            if dot_of(data)[0] == assignment:
                witness.issued[dot_of(data)] = key, data
                witness.counts["records"] += 1
        joining = joining_of(values[JOINING]) if JOINING in values else None
        change = Change(position, assignment, state, records, (), space, loaded, joining, JOINING in values or is_whole)
        self.pending.append(change)

    def synced(self, position: int) -> None:
        """All up to a position is synced."""
        while self.pending and self.pending[0].position <= position:
            change = self.pending.pop(0)
            self.witness._model(self.node, change.assignment)
            self.witness.applies(change)
