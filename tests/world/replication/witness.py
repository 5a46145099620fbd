"""A witness of all disks and of all outcomes reported to clients, which checks both.

A model of each replica follows the synced batches of its disk.  A clock *means* something: for each key a replica has
the greatest record that its clock covers.  So each batch is checked for the records that it newly covers, and by
induction replicas of equal clocks are equal.  A replica that loads goes on in another space: its whole content is
compared with the meaning of its clock.  After a split, a child begins with the parent model's records of its keys, and
with its clock.  The code under test supplies only the encoding of records and clocks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from tests.world.replication.copies import (
    DELETED,
    EXPIRING,
    IDENTITY,
    LEFT,
    LOADING,
    Change,
    Model,
    covers,
    dot_of,
    identity_of,
    needed,
    order_of,
    state_of,
)
from tests.world.replication.eye import records_of, rows_of
from tests.world.replication.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from tests.world.replication.copies import Dot, Records, Span, State
    from tests.world.replication.eye import Eye
    from tests.world.replication.store import RunningStore

MAX_VIOLATIONS: Final = 100
CALM: Final = 2.05  # The most sends per record, without faults and with three replicas.
TURNS: Final = 3  # Turns of two nodes in which one asks for the other's time: ask, answer, and hear.
SLOWER: Final = 2.0  # The allowed factor of the 99th percentile of write latency while a link is cut.


class Violation(NamedTuple):
    checker: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:9.3f} s  {self.checker}: {self.what}"


def p99(times: Iterable[float]) -> float:
    ordered = sorted(times)
    return ordered[len(ordered) * 99 // 100]


class Acknowledged(NamedTuple):
    """A write that was reported to a client as done."""

    partition: int
    key: bytes
    order: bytes
    by_one: bool  # Acknowledged by its origin alone.


@final
class Witness:
    """The observer of all disks."""

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self._now = now
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.models: dict[int, Model] = {}  # By assignment.
        self.moves = Moves(self)
        self.issued: dict[Dot, tuple[bytes, bytes]] = {}  # Key and record, as last issued.
        self.durable: dict[Dot, bytes] = {}  # Records that were durable at their origin.
        self.gone: set[bytes] = set()  # Tombstones that some replica has collected.
        self.acknowledged: list[Acknowledged] = []
        self.asked: Counter[int] = Counter()  # By number of the write: how often it was asked for, and answered.
        self.answered: Counter[int] = Counter()
        self.latencies: list[tuple[int, bytes, float, float]] = []  # Partition, node, start, duration.

    def found(self, checker: str, what: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(checker, self._now(), what))

    # # -- disks -------------------------------------------------------------------------------------------------------

    def applies(self, change: Change, node: bytes = b"") -> None:
        model = self._model(node, change.assignment)
        who = f"{change.assignment} of partition {model.partition}"
        if model.left:
            self.found("left", f"{who}: it goes on, and was {model.left}")
        if change.left:
            model.left = change.left
            self.moves.left(model, change.left, change.orphans)
            return
        if change.parent is not None:
            self._inherits(model, self.models[change.parent])
        for key in change.collected:
            self._collects(model, who, key)
        if not change.collected:
            self._moves_on(model, who, change)

    def _inherits(self, model: Model, parent: Model) -> None:
        """Begin a child with the parent's records of its keys, and the parent's clock."""
        lineage, refounded = self.moves.lineage, self.moves.refounded
        is_kept = parent.partition not in lineage.forebears(model.partition)
        model.clock, model.is_older = ({}, False) if is_kept else (dict(parent.clock), parent.is_older)
        model.records = {key: data for key, data in parent.records.items() if lineage.has(model.partition, key)}
        model.collected = {key for key in parent.collected if lineage.has(model.partition, key)}
        if is_kept:
            self.counts["kept"] += 1
            if model.records != refounded.base(model.partition):
                self.found("refounded", f"{model.assignment} goes on with {parent.assignment}, which was not chosen")
            return
        self.counts["adopted a division"] += 1
        self.counts["skipped a division"] += lineage.forebears(model.partition)[1] != parent.partition
        self.counts["adopted a division of a child"] += len(lineage.forebears(parent.partition)) > 1

    def _moves_on(self, model: Model, who: str, change: Change) -> None:
        state = change.state
        if change.loaded is None and model.joining is None:
            self._check_continuity(model, who, state)
        if state.config != model.config:
            model.config = state.config
            self.moves.adopts(model, who, state)
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
        """Check a batch of a complete replica."""
        state = change.state
        rises = {origin for origin, count in state.after.items() if count > model.clock.get(origin, 0)}
        if model.assignment in rises and not model.is_older:
            self._originates(model, change, rises)
            self.counts["written, not heard of a division"] += model.partition in self.moves.lineage.children
        for key, data in change.records:
            self._puts(model, who, key, data)
            if not covers(state.after, dict([dot_of(data)])):
                words = f"{who}: a record of dot {dot_of(data)}, which its clock {state.after} does not cover"
                self.found("ahead", words)
        for origin in sorted(rises):
            for count in range(model.clock.get(origin, 0) + 1, state.after[origin] + 1):
                self._covers(model, who, (origin, count))

    def _joins(self, model: Model, who: str, change: Change) -> None:
        """Check a batch of an incomplete replica: it begins anew, merges ahead of its clock, loads, or is completed."""
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
            self.counts["joined, of a child"] += len(self.moves.lineage.forebears(model.partition)) > 1
            self._is_whole(model, who, model.records)
            return
        for span in model.joining.spans:
            self._check_span(model, who, span)

    def _check_span(self, model: Model, who: str, span: Span) -> None:
        """Check that a span's records are present, unless the clock covers them or the source's earlier ones win."""
        meaning = self.moves.meaning(model)
        before: dict[bytes, bytes] = {}
        if covers(meaning, span.after):
            return
        of_it = {dot: row for dot, row in self.issued.items() if self._is_of(model, dot)}
        for dot, (key, data) in of_it.items():
            if covers(span.before, dict([dot])):
                before[key] = max(before.get(key, b""), order_of(data))
        for dot, (key, data) in of_it.items():
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
        """Check a replica that appears in another space, or in its first one."""
        self.counts["loads"] += bool(loaded)
        if not covers(state.after, model.clock):
            self.found("continuity", f"{who}: it has loaded {state.after}, and had {model.clock}")
        if state.before != state.after:
            self.found("floor", f"{who}: its log goes on from {state.before}, and it has loaded {state.after}")
        model.clock = state.after
        self._is_whole(model, who, loaded)

    def _is_whole(self, model: Model, who: str, has: Records) -> None:
        """Check that a replica has, for each key, the greatest record that its clock covers, and nothing else."""
        clock = self.moves.meaning(model)
        for dot in model.clock.items():
            if dot not in self.durable:
                self.found("fed", f"{who}: it has loaded up to {dot}, which is not durable at its origin")
        there: Records = dict(self.moves.refounded.base(model.partition))
        for (origin, count), data in self.durable.items():
            if count <= clock.get(origin, 0) and self._is_of(model, (origin, count)):
                key, _ = self.issued[origin, count]
                there[key] = max(there.get(key, b""), data, key=order_of)
        for key in sorted(there.keys() | has.keys()):
            stands, due = has.get(key), there.get(key, b"")
            if stands != due and not (stands is None and due in self.gone):
                what = None if stands is None else dot_of(stands)
                self.found("loaded", f"{who}: of {key!r} it has {what}, and its clock covers {dot_of(due)}")
        model.records, model.collected = there, {*there.keys() - has.keys()}

    def _collects(self, model: Model, who: str, key: bytes) -> None:
        self._leaves_disk(model, who, key, DELETED)
        self.counts["collected"] += 1

    def expires(self, model: Model, key: bytes) -> None:
        """Check a record that a merge has dropped; the model keeps it, and no older one may win."""
        self._leaves_disk(model, f"{model.assignment} of partition {model.partition}", key, EXPIRING)
        self.counts["expired"] += 1

    def _leaves_disk(self, model: Model, who: str, key: bytes, kind: bytes) -> None:
        """Check that every replica that the map names has a record which leaves a disk, or a later one."""
        data = model.records.get(key, b"")
        origin, count = dot_of(data)
        is_kept = self.moves.refounded.base(model.partition).get(key) == data
        collectors = self.moves.collectors(model)
        if kind == EXPIRING:  # A merge may know only of the parent's replicas, which a split replaces meanwhile.
            collectors = [self.moves.parent_of(model, at) if one is None else one for at, one in enumerate(collectors)]
        lack = [
            one
            for one in collectors
            if one is None
            or one.joining is not None
            or (self.moves.meaning(one).get(origin, 0) < count and not is_kept)
        ]
        if data[24:25] != kind or lack:
            self.found("collected", f"{who}: {key!r} of dot {(origin, count)}, which not every copy has as a tombstone")
        model.collected.add(key)
        self.gone.add(data)

    def _covers(self, model: Model, who: str, dot: Dot) -> None:
        issued = self.issued.get(dot)
        if issued is None or dot not in self.durable:
            self.found("fed", f"{who}: it covers {dot}, which is not durable at its origin")
        self._has(model, who, dot)

    def _is_of(self, model: Model, dot: Dot) -> bool:
        """Return True if a record belongs to the partition that a replica's clock describes."""
        origin, key = self.moves.partitions[dot[0]], self.issued[dot][0]
        lineage = self.moves.lineage
        return origin in lineage.forebears(model.partition) and lineage.has(model.partition, key)

    def _has(self, model: Model, who: str, dot: Dot) -> None:
        issued = self.issued.get(dot)
        if issued is None or not self._is_of(model, dot):
            return
        if order_of(model.records.get(issued[0], b"")) < order_of(issued[1]):
            self.found("missing", f"{who}: it covers {dot} of {issued[0]!r}, and has neither that nor a later one")

    def _compare(self, model: Model) -> None:
        """Compare with all replicas that have the same clock."""
        clock = self.moves.meaning(model)
        for other in self.models.values():
            if other.partition != model.partition or other.joining is not None or other.records == model.records:
                continue
            if not other.left and self.moves.meaning(other) == clock:
                names = f"{model.assignment} and {other.assignment} of partition {model.partition}"
                self.found("unequal", f"{names} have the clock {model.clock}, and other records")

    def opened(self, eye: Eye, store: RunningStore) -> None:
        """Check an opened store: batches that were not known as synced may be there."""
        eye.read()
        pending, eye.pending = eye.pending, []
        spaces = frozenset(change.space for change in pending)
        found = store.found(spaces, pending[0].position - 1) if pending and not eye.is_put_back else 0
        for change in pending:
            if change.position <= found:
                self.applies(change, eye.node)
        for assignment, value, records in eye.opened(store):
            model, state = self._model(eye.node, assignment), state_of(value)
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

    def _goes_back(self, model: Model, state: State, records: Records) -> None:
        """Reset a model to an older copy of its disk: the replica originates nothing from now on."""
        model.clock, model.records, model.is_older = state.after, records, True
        model.collected.clear()
        model.confirmed.clear()

    def _model(self, node: bytes, assignment: int) -> Model:
        if assignment not in self.models:
            self.models[assignment] = Model(node, self.moves.partitions[assignment], assignment)
        return self.models[assignment]

    # # -- reported outcomes -------------------------------------------------------------------------------------------

    def reached(self, number: int, copy: Replica, dots: list[Dot], level: str) -> None:
        """Check a write that has reached its level at a replica; after a split, at the children of all its keys."""
        origin, count = dots[-1]
        if copy.children:
            self.counts["reached across a division"] += 1
            heirs = {_heir(copy, self.issued[dot][0]).identity: dot for dot in dots}
            lacks = [dot for identity, dot in heirs.items() if not self.moves.was_at(identity, dot, level)]
        else:
            is_here = self.models[copy.assignment].clock.get(origin, 0) >= count
            is_there = level == "one" or self._there(copy, (origin, count)) >= needed(level, self._slots_of(copy))
            lacks = [] if is_here and is_there else dots
        if lacks:
            self.found("acknowledged", f"write {number}, {lacks} at {level}: too few slots have it")

    @staticmethod
    def _slots_of(copy: Replica) -> int:
        return copy.rules.slots or len({host.slot for host in copy.hosts if host.counts})

    def _there(self, copy: Replica, dot: Dot) -> int:
        """Return how many slots of a replica's partition have a record, by the map that the replica knows."""
        slots: dict[int, bool] = {}
        for host in copy.hosts:
            if host.counts:
                model = self.models.get(host.assignment)
                has = model is not None and model.has_confirmed(copy.config, dot)
                slots[host.slot] = slots.get(host.slot, True) and (has or host.assignment == copy.assignment)
        served = {host.slot for host in copy.hosts if host.counts and host.available}
        return sum(has for slot, has in slots.items() if slot in served)

    def told(self, copy: Replica, dots: list[Dot], level: str) -> None:
        """Note a write that was reported to its client as done."""
        for dot in dots:
            key, data = self.issued[dot]
            leaf = self.moves.lineage.leaf(copy.identity.partition, key)
            self.counts["told, not heard of a division"] += leaf != _heir(copy, key).identity.partition
            self.acknowledged.append(Acknowledged(leaf, key, order_of(data), level == "one"))
            if level != "one":
                self.moves.acknowledged[leaf].add(dot)
                self.moves.check_survival(leaf)

    def sends(self, node: bytes, records: list[bytes]) -> None:
        """Check sent records: the sender has them durably."""
        for data in records:
            origin, count = dot_of(data)
            copies = [one for one in self.models.values() if one.node == node and self._is_of(one, (origin, count))]
            has = [one for one in copies if not one.left]
            if not has or any(one.joining is not None for one in has):
                self.found("feeds", f"{dot_of(data)} is sent by who has no copy, or none that is whole")
            if all(self.moves.meaning(one).get(origin, 0) < count for one in has or copies):
                self.found("fed", f"{dot_of(data)} is sent, and not durable at its sender")
        self.counts["records sent"] += len(records)

    def check_answers(self) -> None:
        for number, count in sorted(self.answered.items()):
            if count > 1:
                self.found("answers", f"write {number} was answered {count} times")
        for number in sorted(self.asked.keys() - self.answered.keys()):
            self.found("answers", f"write {number} was not answered")

    def check_travel(self) -> None:
        """Check that a record goes to each other replica once, from its origin."""
        if (travelled := self.travelled) > CALM:
            self.found("travel", f"a record travelled {travelled:.2f} times")

    @property
    def travelled(self) -> float:
        """The mean number of sends per record."""
        return self.counts["records sent"] / max(1, self.counts["records"])

    def check_latency(self, cut_s: float, relayed_s: float) -> None:
        """Check that writes after `relayed_s` take little longer than before the cut at `cut_s`."""
        before = p99(took for _, _, began, took in self.latencies if began < cut_s)
        since = p99(took for _, _, began, took in self.latencies if began >= relayed_s)
        if since > SLOWER * before:
            self.found("slow", f"p99 of a write is {since:.3f} s with a link cut, and was {before:.3f} s")

    def check_quiet(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Check that soon after healing nothing is fed, reported or appended any more."""
        if before != after:
            self.found("quiet", f"feeds, tells and appends: {before}, and then {after}")

    def check_rest(self, nodes: int, turns: int, times_asked: int) -> None:
        """Check that resting nodes ask each other for the time at most once, and otherwise sleep.

        `turns`: the number of looks for work of all nodes; `times_asked`: the most questions from one node to another.
        """
        if times_asked > 1:
            self.found("rest", f"a node has asked another for the time {times_asked} times")
        if turns > TURNS * nodes * (nodes - 1):
            self.found("rest", f"{nodes} nodes have looked {turns} times for what is to be done, and nothing is")

    def check_turn(self, replicas: ReplicaSet) -> None:
        """Check that one more look for work changes no place of a feed: the last look has done all."""
        before = replicas.kept_places()
        for peer in replicas.peers.values():
            peer.due = 0.0
        replicas.pump()
        if (after := replicas.kept_places()) != before:
            self.found("rest", f"one more look has moved {before} to {after}")

    def check_litter(self, store: RunningStore) -> None:
        """Check that torn loads and replicas that left a shared space leave nothing behind."""
        for space in store.spaces():
            rows = rows_of(store, space)
            if any(LOADING in row for row in rows.values()):
                self.found("litter", f"space {space} is of a load, and nobody loads")
            bounds = [identity_of(row[IDENTITY])[1] for row in rows.values() if IDENTITY in row]
            records = records_of(store, space) if bounds else {}
            left = [key for key in records if not any(one.has(key) for one in bounds)]
            if left or any(LEFT in row for row in rows.values()):
                self.found("litter", f"space {space} has {left}, which a copy has left behind")

    def check_end(self, lost: set[bytes], *, is_placed: bool = True) -> None:
        """Check that replicas are equal and have all acknowledged writes; lost nodes do not count."""
        self.moves.check_end({node for node in self.moves.nodes.values() if node not in lost}, is_placed=is_placed)
        hosts = {}
        for partition in self.moves.current():
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
            for model in hosts.get(self.moves.lineage.leaf(one.partition, one.key), ()):
                if order_of(model.records.get(one.key, b"")) < one.order:
                    dot = dot_of(one.order)
                    self.found("lost", f"partition {one.partition}: {dot} of {one.key!r} was acknowledged")


def _heir(copy: Replica, key: bytes) -> Replica:
    """Return the descendant of a replica for a key after splits; the replica itself if it was not split."""
    while copy.children:
        copy = next(heir for heir in copy.children if heir.bounds.has(key))
    return copy
