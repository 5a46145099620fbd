"""A host of the model of division: what it adopts, feeds, takes and confirms.  See `division.py`.

The names of planted bugs stand where the rule that they break stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.models.copies import Assignment, Broken, Clock, Config, Dot, Entry, Record, State, covers, join

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tests.world.models.division import Run, Session

KEYS = 8


@dataclass(frozen=True)
class Partition(Config):
    """What the map says of a partition since one of its versions; its keys are from `low` to below `high`."""

    id: int = 0
    low: int = 0
    high: int = KEYS

    @cached_property
    def nodes(self) -> dict[int, Assignment]:
        return {one.node: one for one in self.assignments}

    @property
    def moves(self) -> bool:
        return len(self.available) < len(self.assignments)

    def surrounds(self, other: Partition) -> bool:
        return self.low <= other.low and other.high <= self.high


@dataclass(frozen=True)
class Map:
    """All partitions, at one version."""

    version: int
    partitions: tuple[Partition, ...]

    @cached_property
    def by_id(self) -> dict[int, Partition]:
        return {one.id: one for one in self.partitions}

    @cached_property
    def named(self) -> frozenset[int]:
        return frozenset[int]().union(*(one.named for one in self.partitions))

    def at(self, key: int) -> Partition:
        return next(one for one in self.partitions if one.low <= key < one.high)

    def has(self, partition: Partition) -> bool:
        """Whether a partition is the same here, at the same version."""
        return partition.id in self.by_id and self.by_id[partition.id].version == partition.version


class Told(NamedTuple):
    """What a host says: its map, and the clocks of its copies that are loaded."""

    number: int
    map: Map
    clocks: dict[int, Clock]


class Logged(NamedTuple):
    """An entry of the log, which is one for all copies of a host, and the partition that it was an entry of."""

    partition: Partition
    entry: Entry


class Waiting(NamedTuple):
    """A write that waits for its level."""

    record: Record
    position: int  # In the log.
    level: str
    session: Session


@dataclass(slots=True)
class Copy:
    """A replica, under one assignment; its clock has whom its partition's record names, and no other."""

    partition: Partition
    assignment: int
    clock: Clock
    is_loaded: bool = False
    records: dict[int, Record] = field(default_factory=dict)
    time: int = 0
    start: int = 0  # What is further back in the log is not this copy's.

    def lacks(self, records: Iterable[Record]) -> list[Record]:
        """Which of these its clock does not cover; whom it does not name has ended."""
        return [one for one in records if one.counter > self.clock.get(one.origin, one.counter)]

    def put(self, records: Iterable[Record]) -> tuple[Record, ...]:
        won = tuple(one for one in records if one > self.records.get(one.key, (0,)))
        self.records |= {one.key: one for one in won}
        return won


@dataclass(slots=True)
class Disk:
    """What a host keeps but for its log: the map that it has adopted, and its copies, by their partitions."""

    map: Map
    copies: dict[int, Copy]
    log_end: int = 0

    def duplicate(self, log_end: int) -> Disk:
        copies = {id_: replace(copy, records=dict(copy.records)) for id_, copy in self.copies.items()}
        return Disk(self.map, copies, log_end)


@final
class Host:
    """A node: what is appended, what is synced, and what it remembers while it is up."""

    def __init__(self, run: Run, index: int, skew: int) -> None:
        self.run, self.index, self.skew, self.planted = run, index, skew, run.planted
        self.is_up = True
        self.log: list[Logged] = []
        self.base = 0  # Where the log begins; what is before has been let go of.
        self.disk = Disk(run.maps[0], {})
        for partition in run.maps[0].partitions:
            if index in partition.nodes:
                clock = dict.fromkeys(partition.named, 0)
                self.disk.copies[partition.id] = Copy(partition, partition.nodes[index].id, clock, is_loaded=True)
        self.kept = self.synced = self.disk.duplicate(0)
        self.forget()

    def forget(self) -> None:
        """All that was only in memory."""
        self.told: dict[int, Told] = {}
        self.pending: list[Waiting] = []

    def crash(self) -> None:
        self.disk, self.synced = self.kept.duplicate(self.kept.log_end), self.kept
        del self.log[self.kept.log_end :]
        self.forget()

    def sync(self) -> None:
        """From now on what was appended is shown, and comes back after a crash."""
        self.kept = self.synced = self.disk.duplicate(len(self.log))
        self.count()

    # Adoption.

    def adopt(self, adopted: Map) -> None:
        """One batch: the state of what has been divided goes, that of each child comes."""
        old = self.disk
        if adopted.version <= old.map.version:
            return
        mine = [one for one in adopted.partitions if self.index in one.nodes]
        self.disk = Disk(adopted, {one.id: self._adopted(one, old) for one in mine})
        if "adoption_not_durable" in self.planted and self.kept.log_end == len(self.log):
            self.synced = self.disk.duplicate(len(self.log))

    def _adopted(self, partition: Partition, old: Disk) -> Copy:
        mine = partition.nodes[self.index]
        copy = old.copies.get(partition.id)
        if copy is None or copy.assignment != mine.id:
            parent = next((one for one in old.copies.values() if one.partition.surrounds(partition)), None)
            if parent is None or not self._is_heir(parent, partition, mine):
                return Copy(partition, mine.id, dict.fromkeys(partition.named, 0), start=len(self.log))
            self.run.counts["inherited"] += 1
            self.run.counts["divisions skipped"] += self.run.parents.get(partition.id) not in old.map.by_id
            records = {key: one for key, one in parent.records.items() if self._is_inside(partition, key)}
            copy = replace(parent, assignment=mine.id, records=records)
            copy.clock = {} if "clock_empty" in self.planted else copy.clock
            copy.time = 0 if "time_not_inherited" in self.planted else copy.time
        names: Collection[int] = partition.named
        if "absent_taken_for_covered" in self.planted:  # Who goes straight to grandchildren knows none of the children.
            names = partition.assigned.keys() | (copy.clock.keys() & names)
        if "former_dropped_early" in self.planted:
            names = partition.assigned.keys()
        return replace(copy, partition=partition, clock={origin: copy.clock.get(origin, 0) for origin in names})

    def _is_heir(self, parent: Copy, partition: Partition, mine: Assignment) -> bool:
        """Whether a child here begins with what lies here; who is only to hold it loads it from others."""
        is_held = parent.assignment in partition.former and mine.state >= State.AVAILABLE
        return is_held or "what_lies_there_inherited" in self.planted

    def _is_inside(self, partition: Partition, key: int) -> bool:
        if "split_key_to_the_left" in self.planted:
            return partition.low < key <= partition.high or key == partition.low == 0
        return partition.low <= key < partition.high

    # What is written and read here.

    def write(self, key: int, session: Session, level: str, *, is_tombstone: bool = False) -> None:
        partition = self.disk.map.at(key)
        copy = self.disk.copies.get(partition.id)
        is_available = copy is not None and partition.state(copy.assignment) == State.AVAILABLE
        if copy is None or not is_available or not copy.is_loaded or not self._is_ready(copy, self.disk.map, session):
            return
        copy.time = max(copy.time + 1, self.run.now + self.skew)
        origin = copy.assignment
        if "parent_originates" in self.planted:
            inherited = [id_ for id_ in copy.clock if id_ in partition.former and self.run.node_of[id_] == self.index]
            origin = min([*inherited, origin])
        record = Record(copy.time, origin, copy.clock.get(origin, 0) + 1, key, is_tombstone)
        present = partition.named if "former_not_depended_on" in self.planted else partition.assigned
        session.writes(record, {of: count for of, count in session.token.items() if of not in present})
        self.pending.append(Waiting(record, len(self.log), level, session))
        self._append(copy, {**copy.clock, origin: record.counter}, copy.put([record]))
        self.run.counts["writes"] += 1
        self.run.counts["writes unheard"] += partition.id not in self.run.maps[-1].by_id

    def _append(self, copy: Copy, after: Clock, records: tuple[Record, ...]) -> None:
        self.log.append(Logged(copy.partition, Entry(copy.clock, after, records, copy.time)))
        copy.clock = after

    def _is_ready(self, copy: Copy, adopted: Map, session: Session) -> bool:
        """Whether it has all that a session has seen: what the record does not name belongs elsewhere, or has ended."""
        token = session.token
        if "token_names_partitions" in self.planted:
            token = {o: n for o, n in token.items() if session.read_at.get(o, 0) in {copy.partition.id, 0}
                     or session.read_at[o] not in adopted.by_id}  # fmt: skip
        return session.version <= adopted.version and covers(copy.clock, token, copy.clock)

    def read(self, key: int, session: Session) -> bool:
        """Answer a session, if it may; whether it did."""
        partition = self.synced.map.at(key)
        copy = self.synced.copies.get(partition.id)
        if copy is None or not copy.is_loaded or (partition.state(copy.assignment) or 0) < State.AVAILABLE:
            return False
        if not self._is_ready(copy, self.synced.map, session):
            self.run.counts["not ready"] += 1
            return False
        session.sees(copy.records.get(key), key, self.synced.map.version, partition)
        self._shorten(session, copy)
        return True

    def _shorten(self, session: Session, copy: Copy) -> None:
        """Leave out of a token what every copy of this partition has, and, of former ones, what no partition names."""
        settled = self._least(copy)
        own: Collection[int] = copy.clock if "settled_for_siblings" in self.planted else copy.partition.assigned
        session.token = {
            origin: count
            for origin, count in session.token.items()
            if not (origin in own and settled.get(origin, 0) >= count) and origin in self.synced.map.named
        }

    # Levels, and what all have.

    def _clock_of(self, partition: Partition, node: int, key: int | None = None) -> Clock | None:
        """What a host has said of its copy under the same version of the partition; None: nothing."""
        if node == self.index:
            copy = self.synced.copies[partition.id]
            return copy.clock if copy.is_loaded else None
        told = self.told.get(node)
        if told is None:
            return None
        if told.map.has(partition):
            return told.clocks.get(partition.id)
        other = told.map.at(partition.low if key is None else key)
        is_counted = "child_confirms_for_parent" in self.planted and key is not None
        is_counted |= "parents_confirmations_kept" in self.planted and other.surrounds(partition)
        return told.clocks.get(other.id) if is_counted else None

    def _has_confirmed(self, partition: Partition, node: int, record: Record) -> bool:
        clock = self._clock_of(partition, node, record.key)
        return record.origin not in partition.named or (
            clock is not None and clock.get(record.origin, 0) >= record.counter
        )

    def count(self) -> None:
        """Acknowledge what has reached its level under the map that is synced, whatever was counted before."""
        for one in list(self.pending):
            partition = self.synced.map.at(one.record.key)
            if one.position >= self.synced.log_end:
                continue
            if partition.id not in self.synced.copies:
                self.pending.remove(one)  # It has left: what has become of the write is not known.
            elif self._has_confirmed(partition, self.index, one.record):
                slots = 0
                for hosts in partition.slots.values():
                    needed = [host for host in hosts if host.state in {State.INITIALIZING, State.AVAILABLE}]
                    slots += bool(needed) and all(self._has_confirmed(partition, h.node, one.record) for h in needed)
                if one.level == "one" or slots > partition.replication // 2:
                    self.pending.remove(one)
                    self.run.acknowledged(one, self.synced.map.version)

    def _clocks(self, copy: Copy) -> list[Clock | None]:
        """Of all assigned copies, dead or alive, under this version."""
        return [self._clock_of(copy.partition, node) for node in copy.partition.nodes]

    def _least(self, copy: Copy) -> Clock:
        clocks = self._clocks(copy)
        return {origin: min(0 if one is None else one.get(origin, 0) for one in clocks) for origin in copy.clock}

    def settle(self) -> None:
        """Have former assignments end of which all copies say the same counter."""
        for copy in self.synced.copies.values():
            clocks = self._clocks(copy)
            if "settled_by_a_majority" in self.planted and sum(one is not None for one in clocks) > len(clocks) // 2:
                clocks = [one for one in clocks if one is not None]
            if None not in clocks:
                same = {o: copy.clock[o] for o in copy.partition.former if o in copy.clock
                        and {one.get(o, 0) for one in clocks if one is not None} == {copy.clock[o]}}  # fmt: skip
                if same:
                    self.run.net.append(("settle", self.index, -1, (copy.partition.id, same)))

    def collect(self) -> None:
        """Tombstones go that all assigned copies have, once this one has all that they have."""
        for copy in self.disk.copies.values():
            if self.synced.map.version != self.disk.map.version or not copy.is_loaded:
                return
            clocks = self._clocks(copy)
            if any(clock is None or not covers(copy.clock, clock, copy.clock) for clock in clocks):
                continue
            least = self._least(copy)
            for key, record in list(copy.records.items()):
                if record.is_tombstone and least.get(record.origin, record.counter) >= record.counter:
                    del copy.records[key]
                    self.run.collects(record)

    # Feeding.

    def tell(self, node: int) -> None:
        clocks = {id_: copy.clock for id_, copy in self.synced.copies.items() if copy.is_loaded}
        self.run.send("told", self, node, (Told(self.run.number(), self.synced.map, clocks),))

    def on_told(self, source: int, told: Told) -> None:
        self.run.hears(self, told.map.version)
        if source not in self.told or self.told[source].number < told.number:
            self.told[source] = told
            self.count()

    def _logged(self, copy: Copy) -> Iterator[Logged]:
        logged = self.log[max(self.base, copy.start) : self.synced.log_end]
        return (one for one in logged if one.partition.surrounds(copy.partition))

    def _read_log(self, copy: Copy) -> Iterator[Entry]:
        """Entries of partitions around this one are its own, with its records, also where none of them is."""
        for partition, entry in self._logged(copy):
            part = self._part(copy, entry)
            is_parents = partition.id != copy.partition.id
            self.run.counts["entries read as a child's"] += is_parents
            if part.records or not is_parents or "entry_of_siblings_skipped" not in self.planted:
                yield part

    def _part(self, copy: Copy, entry: Entry) -> Entry:
        return entry._replace(records=tuple(one for one in entry.records if self._is_inside(copy.partition, one.key)))

    def push(self, node: int, most: int) -> None:
        """Send what another host lacks of each copy that it has, too: from the log, or, if that begins later, all."""
        told = self.told.get(node)
        for copy in self.synced.copies.values():
            if told is None or node not in copy.partition.nodes or not copy.is_loaded:
                continue
            clock = told.clocks.get(copy.partition.id)
            is_newer = told.map.version > self.synced.map.version  # What that does not name has ended.
            named = clock if clock is not None and is_newer else copy.clock
            if clock is not None and covers(clock, copy.clock, named):
                continue
            floor = next((one.entry.before for one in self._logged(copy)), copy.clock)
            is_below = clock is None or not covers(clock, floor, named)
            if is_below and told.map.has(copy.partition):
                whole = replace(copy, records=dict(copy.records))
                self.run.send("whole", self, node, (self.synced.map, copy.partition, whole))
                continue
            lacking = [one for one in self._read_log(copy) if clock is None or not covers(clock, one.after, named)]
            if lacking:
                self.run.send("entries", self, node, (self.synced.map, copy.partition, lacking[:most]))

    def on_entries(self, source: int, adopted: Map, partition: Partition, entries: list[Entry]) -> None:
        """Take what goes on from here; who has heard of a division takes nothing of the parent, and says so."""
        self.run.hears(self, adopted.version)
        is_newer = adopted.version > self.disk.map.version
        is_divided = partition.id not in self.disk.map.by_id
        self.run.counts["parents refused"] += is_divided and not is_newer
        for copy in self.disk.copies.values():
            if not copy.is_loaded or source not in copy.partition.nodes:
                continue
            if not is_newer and copy.partition.id == partition.id:
                self._take(copy, entries)
            elif not is_newer and partition.surrounds(copy.partition):
                self._take_parents(copy, [self._part(copy, one) for one in entries])
            elif is_newer and copy.partition.surrounds(partition) and "newer_config_taken" in self.planted:
                copy.clock = {**dict.fromkeys(entries[-1].after, 0), **copy.clock}
                self._take(copy, entries)
        self.run.later_tells(self, source)

    def _take(self, copy: Copy, entries: list[Entry]) -> None:
        for entry in entries:
            if not covers(copy.clock, entry.before, copy.clock):
                return
            if not covers(copy.clock, entry.after, copy.clock):
                copy.time = max(copy.time, entry.time)
                self._append(copy, join(copy.clock, entry.after), copy.put(copy.lacks(entry.records)))

    def _take_parents(self, copy: Copy, entries: list[Entry]) -> None:
        if "child_confirms_for_parent" in self.planted:
            self._take(copy, entries)
        if "parents_stored_uncounted" in self.planted:
            for entry in entries:
                copy.put(copy.lacks(entry.records))

    def on_whole(self, source: int, adopted: Map, partition: Partition, whole: Copy) -> None:
        """Load to the side: what the other has, and what was here that its clock does not cover, in one batch."""
        self.run.hears(self, adopted.version)
        copy = self.disk.copies.get(partition.id)
        if copy is None or not self.disk.map.has(partition) or copy.partition.state(copy.assignment) == State.PROPOSED:
            return
        if not copy.is_loaded or not covers(copy.clock, whole.clock, copy.clock):
            old = whole.lacks(copy.records.values())
            copy.records = dict(whole.records)
            copy.put(old)
            copy.clock, copy.time = join(copy.clock, whole.clock), max(copy.time, whole.time)
            copy.start, copy.is_loaded = len(self.log), True
            self.run.counts["loads"] += 1
            self.run.later_tells(self, source)

    def check(self) -> None:
        """Nothing that is loaded is ahead of its clock."""
        for copy in self.synced.copies.values():
            dots: list[Dot] = [one.dot for one in copy.records.values() if one.origin in copy.partition.named]
            if copy.is_loaded and any(count > copy.clock.get(origin, 0) for origin, count in dots):
                raise Broken("ahead")
