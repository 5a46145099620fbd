r"""A replica of a partition: which records it takes in, and the batches that it writes.

A copy lies in a space of the store, by itself or beside what was of one range with it (`keys`).

What a batch does to a copy is an *entry* of the node's log: the records that it puts, and the clock before and after
it.  It has what was written here, or what was taken from other copies, never both; so whoever reads the log can tell
each origin's records in the order in which the origin gave them out.  What is taken at once is one entry of each copy,
and all of them are one batch.

One rule of merging: what the clock covers is passed over; of anything else the later record wins, by time, origin and
counter, against what was *appended*, and not what can be read: between the two is a sync, in which a later record of
the same key may be under way.  Losers leave nothing but the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.partition import HAD
from gossipkv.replication._replication import size_bytes
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.bootstrap import Bootstrap
from gossipkv.replication.replica.hlc import HybridTime
from gossipkv.replication.replica.intern import shared
from gossipkv.replication.replica.keys import (
    ENDED,
    IDENTITY,
    MOVES,
    ORDER_BYTES,
    RECORD,
    STATE,
    TOMBSTONE,
    ReplicaIdentity,
    decode_state,
    encode_state,
    suffix_of,
)
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Read = Callable[[int, bytes], bytes | None]  # What is synced in a space under a key.

NOTHING: Final[dict[bytes, bytes]] = {}  # Of all copies of which all is synced; nobody writes to it.


class AssignedReplica(NamedTuple):
    """An assignment of a partition, as the map says that this node has adopted."""

    assignment: int
    node: bytes
    slot: int
    counts: bool  # It is INITIALIZING or AVAILABLE: its slot has confirmed only with it.
    available: bool


class Seat(NamedTuple):
    """What a host is beside its assignment: many copies have equal ones."""

    node: bytes
    slot: int
    counts: bool
    available: bool


class PartitionRules(NamedTuple):
    """What else the map says of a partition; of thousands of copies most have the same."""

    slots: int = 0  # How many there are to be, for levels; 0: as many as its hosts have.
    former: tuple[int, ...] = ()  # Assignments of before that are not settled yet: clocks name them.
    ends: tuple[tuple[int, int | None], ...] = ()  # Of what was taken by force; beyond is lost; None: not known yet.
    loads: bool = False  # The assignment here is INITIALIZING.
    has_departed: bool = False  # It is not there any more: the copy feeds nobody, and is to be dropped.
    smears: bool = False  # Puts may come long after they were accepted: tombstones stay a while.

    def ended(self, named: Sequence[int]) -> bytes:
        """Of whom a clock that names these is silent: all had it when it was settled, or began with it."""
        return clock.of((one, end) for one, end in self.ends if end and one not in named and one < HAD)


NO_RULES: Final = PartitionRules()


class Lineage(NamedTuple):
    """What a copy came from by divisions, and what came from it."""

    is_beside: bool = False  # It lies in the space of what was divided, its keys behind its partition's id.
    heirs: tuple[Replica, ...] = ()  # What stands in its place since it was divided.


NO_LINE: Final = Lineage()
BESIDE: Final = Lineage(is_beside=True)


class ReplicaDigest(NamedTuple):
    """Of the live records of a copy."""

    clock: bytes
    sum: int
    records: int


class RecordWrite(NamedTuple):
    """What a client would have written."""

    key: bytes
    value: bytes | None  # None: the key is deleted.
    dependencies: bytes = b""
    time: int = 0  # Under which another node has accepted it (`accepted`); 0: it gets one here.


@final
@dataclass(slots=True, eq=False)
class LogEntry:
    """A batch of the log that touches a copy."""

    copy: Replica
    records: tuple[tuple[bytes, bytes], ...]  # Keys and records.
    before: bytes  # Packed clocks.
    after: bytes
    is_own: bool  # Its records were written here.
    position: int = 0  # In the log here.
    size_bytes: int = field(init=False)  # About what it takes on its way.
    origins: tuple[int, ...] = field(init=False)  # The assignments whose records it has, or had.
    source: int = 0  # The assignment whose log it is of, if it comes from another node,
    config: int = 0  # and by which its clocks name whom they name, if that is newer than the one here.
    joining: Bootstrap | None = (
        None  # What a copy that was not whole has beside its clock after it: nobody is fed by it.
    )

    def __post_init__(self) -> None:
        """Find once what each feed asks."""
        self.size_bytes = size_bytes(self.records)
        self.origins = clock.ahead(self.after, self.before)

    def records_of(self, named: Sequence[int]) -> Sequence[tuple[bytes, bytes]]:
        """Its records of these origins: of what has ended since no clock says anything any more."""
        if all(origin in named for origin in self.origins):
            return self.records
        left = clock.named(self.after, named)
        return [(key, data) for key, data in self.records if clock.covers(left, record.dot(data))]

    def of(self, copy: Replica) -> LogEntry:
        """The same as an entry of a copy that lies inside the bounds of its own: clocks as they are, records by key."""
        assert self.copy.bounds.covers(copy.bounds), (self.copy.bounds, copy.bounds)
        records = tuple(row for row in self.records if copy.bounds.has(row[0]))
        return LogEntry(copy, records, self.before, self.after, is_own=False, position=self.position)


@final
@dataclass(slots=True, eq=False)
class Merged:
    """What entries of other copies come to in one here, before that is appended."""

    before: bytes  # Packed clocks.
    after: bytes
    joining: Bootstrap | None = None
    won: dict[bytes, bytes] = field(default_factory=dict)
    relieves: bool = True  # Each that won deletes what is here.


@final
class Replica:
    """A replica of a partition in this node's store.

    A node holds thousands: equal values are one object where that is cheap, and what is empty at rest is nothing.
    """

    __slots__ = (
        "_between",
        "_named",
        "appended",
        "aside",
        "assignment",
        "bounds",
        "config",
        "digest",
        "ended",
        "is_new",
        "joining",
        "line",
        "made_at",
        "partition",
        "requests",
        "rules",
        "seats",
        "sharers",
        "space",
        "stands_still",
        "synced",
        "synced_config",
        "synced_joining",
        "taken_config",
        "time",
        "was_available",
    )

    def __init__(
        self,
        space: int,
        identity: ReplicaIdentity,
        state: bytes,
        made_at: int = 0,
        joining: Bootstrap | None = None,
        *,
        suffix: bytes = b"",
    ) -> None:
        """`state`: what stands under `STATE`; `made_at`: the log has nothing of it before that position.

        `replica.bootstrap`: what it has beside its clock; None: it is whole.  `suffix`: what stands behind its keys
        (`keys`).

        Raises:
            ProtocolError: the state has not that form.
        """
        self.space = space
        self.line = BESIDE if suffix else NO_LINE
        self.bounds = shared(identity.bounds)
        self.made_at = made_at
        self.is_new = made_at > 0  # It was made in this life, so nobody has anything of it from before.
        self.stands_still = False  # It takes and originates nothing while a load of it ends.
        self.partition = (shared(identity.table), identity.partition)
        time, config, self.appended, _ = decode_state(state)
        self.config = shared(config)
        self.synced, self.synced_config = self.appended, self.config
        self.taken_config = self.config  # The newest under which it took anything in, or let go of a tombstone.
        self.time = HybridTime(time)
        self.joining = self.synced_joining = joining
        self.rules = NO_RULES
        self.ended = b""  # Of whom its clock is silent up to where it has all; who finds it says what stands there.
        self.was_available = joining is None  # By the map that it has adopted last; who finds it says otherwise.
        self.seats: tuple[Seat, ...] = ()  # Of its hosts, in the order of their assignments.
        self.sharers: tuple[bytes, ...] = ()  # The other nodes that hold the partition.
        self.aside: str | None = None  # Why it originates nothing for good.
        self.requests = 0  # Of clients, since they were counted last.
        self.digest: ReplicaDigest | None = None  # Of its live records, as `Comparing` has found them last.
        self._named: tuple[int, ...] = tuple(origin for origin, _ in clock.entries(self.appended))
        self.assignment = self.id_here(identity.assignment)  # Its own, under which it originates.
        self._between = NOTHING  # Of keys that are not synced the order of the last record.

    @property
    def identity(self) -> ReplicaIdentity:
        """What it is."""
        return ReplicaIdentity(*self.partition, self.assignment, self.bounds)

    @property
    def suffix(self) -> bytes:
        """What stands behind its keys."""
        return suffix_of(self.partition[1]) if self.line.is_beside else b""

    @property
    def heirs(self) -> tuple[Replica, ...]:
        """What stands in its place since it was divided."""
        return self.line.heirs

    def put(self, batch: Batch, key: bytes, value: bytes) -> None:
        """Have something stand under one of the keys that say what it is."""
        batch.put(self.space, key + self.suffix, value)

    def remove(self, batch: Batch, key: bytes) -> None:
        """Have nothing stand there."""
        batch.delete(self.space, key + self.suffix)

    @property
    def hosts(self) -> tuple[AssignedReplica, ...]:
        """The assignments of its partition, in their order, as the map says by which it goes."""
        return tuple(AssignedReplica(id_, *seat) for id_, seat in self.seated())

    @hosts.setter
    def hosts(self, hosts: Iterable[AssignedReplica]) -> None:
        in_order = sorted(hosts)
        named = _named(in_order, self.rules.former)
        self._named = self._named if named == self._named else named
        self.seats = shared(tuple(shared(Seat(*host[1:])) for host in in_order))
        self.sharers = shared(tuple(host.node for host in in_order if host.assignment != self.assignment))

    def seated(self) -> Iterable[tuple[int, Seat]]:
        """Its hosts, without an object for each."""
        return zip(self.assigned, self.seats, strict=bool(self.seats))  # At first it has none.

    @property
    def assigned(self) -> tuple[int, ...]:
        """The present assignments of its partition, in order."""
        former = self.rules.former
        return tuple(one for one in self._named if one not in former) if former else self._named

    @property
    def seat(self) -> Seat | None:
        """Its own; None: the map by which it goes has not come yet, or does not name it."""
        return next((seat for one, seat in self.seated() if one == self.assignment), None)

    def host_at(self, node: bytes) -> int:
        """The assignment of one of its hosts; 0: that node has none."""
        return next((one for one, seat in self.seated() if seat.node == node), 0)

    def departs(self) -> None:
        """Its assignment is not there any more: all others have what it has, and their clocks may not say so."""
        self.rules = shared(self.rules._replace(has_departed=True))

    def feeds(self, assignment: int) -> bool:
        """Whether that is a host to which it gives what it has."""
        return assignment in self.assigned and not self.rules.has_departed

    @property
    def reach(self) -> bytes:
        """Up to where it has all of each assignment, as a clock: of who has ended, too, and was taken by force."""
        return clock.merge(self.appended, self.ended)

    def marks(self) -> Iterable[tuple[bytes, bytes]]:
        """What else stands of it, beside what it is and how it stands."""
        return [*([] if self.was_available else [(MOVES, b"")]), *([(ENDED, self.ended)] if self.ended else [])]

    @property
    def told_clock(self) -> bytes:
        """What is synced, as others are told: nothing, until it is whole."""
        return self.synced if self.synced_joining is None else clock.named(b"", self._named)

    @property
    def originates(self) -> bool:
        """Whether its assignment is AVAILABLE, as far as the map is here."""
        seat = self.seat
        return seat is None or (seat.available and seat.counts)

    def id_here(self, assignment: int) -> int:
        """An assignment, as the object that is kept here already."""
        return next((one for one in self._named if one == assignment), assignment)

    @property
    def named(self) -> tuple[int, ...]:
        """The assignments of its clock, in order: the present ones, and the former."""
        return self._named

    def adopting(self, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules = NO_RULES) -> Batch | None:
        """The batch that has it go by what the map says of its partition, before `adopts`; None: it does already.

        Its clock has an entry, if only 0, for each assignment that the map names, present or former, and no other.
        """
        named = _named(hosts, rules.former)
        assert any(host.assignment == self.assignment for host in hosts), self.identity
        if (config, named) == (self.config, self._named):
            return None
        clock_now = clock.named(self.appended, named)
        batch = Batch()
        batch.relieves = True  # It says which assignments there are, and moves and garbage collection wait for it.
        self.put(batch, STATE, encode_state(self.time.last, config, clock_now, clock_now))
        if ended_now := rules.ended(named):
            self.put(batch, ENDED, ended_now)
        is_available_now = is_available(self.assignment, hosts)
        if is_available_now and not self.was_available:
            self.remove(batch, MOVES)
        elif self.was_available and not is_available_now:
            self.put(batch, MOVES, b"")
        return batch

    def adopts(self, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules = NO_RULES) -> None:
        """Go by it from now on; that batch is appended."""
        self.rules = shared(rules)
        self.hosts = tuple(hosts)
        self.config, self.was_available = shared(config), self.originates
        self.appended = clock.named(self.appended, self._named)
        self.ended = shared(rules.ended(self._named))
        self._has_synced(self.synced)

    def has_adopted(self, config: int) -> None:
        """That batch is synced: only now does it confirm under that config."""
        self.synced_config = shared(config)

    def moves(self, space: int, joined: bytes, position: int, joining: Bootstrap | None) -> None:
        """It is in another space by now, with a clock to which nobody has come by its log; that batch is synced."""
        assert self.stands_still
        assert self.joining is not None or clock.covers(joined, self.appended), "a clock never goes back"
        self.space, self.made_at, self.stands_still = space, position, False
        self.line = NO_LINE
        self.appended = self.synced = joined
        self.joining = self.synced_joining = _left(joining)
        self.taken_config = self.config
        self.digest = None

    @property
    def is_between(self) -> bool:
        """Whether something is appended to it that is not synced."""
        return bool(self._between) or self.appended != self.synced or self.joining is not self.synced_joining

    def is_pending(self, key: bytes) -> bool:
        """Whether a record of a key is appended and not synced."""
        return key in self._between

    def order_of(self, key: bytes, read: Read) -> bytes | None:
        """Time, origin and counter of a key's record, synced or not; None: there is none."""
        data = self._between.get(key) or read(self.space, RECORD + key)
        return None if data is None else data[:ORDER_BYTES]

    # -- what is written here ----------------------------------------------------------------------------------------

    def originate(self, batch: Batch, writes: Sequence[RecordWrite], now_ms: int) -> LogEntry:
        """Have a batch give records to what a client would write, one after the other: to append, and then `appends`.

        Requires: all keys are of its range.
        """
        assert self.aside is None, self.aside
        assert not self.stands_still
        assert self.joining is None, "who is not whole originates nothing"
        assert all(self.bounds.has(write.key) for write in writes), self.bounds
        before = self.appended
        count = clock.counter(before, self.assignment)
        records: list[tuple[bytes, bytes]] = []
        for key, value, dependencies, accepted in writes:
            count += 1
            kind = record.DELETED if value is None else record.PUT
            time = accepted or self.time.next(now_ms)
            self.time.merge(time)
            data = record.encode(time, self.assignment, count, kind, dependencies, value or b"")
            records.append((key, data))
            self._put(batch, key, data)
        after = clock.raised(before, self.assignment, count)
        return self._finished(batch, LogEntry(self, tuple(records), before, after, is_own=True))

    # -- what comes from others --------------------------------------------------------------------------------------

    def covers(self, after: bytes, merged: Merged | None = None) -> bool:
        """Whether all up to a clock is here, appended or merged; what the map does not name any more has ended."""
        reached = self.appended if merged is None else merged.after
        return clock.covers(reached, after) or clock.covers(reached, clock.named(after, self._named))

    def covers_synced(self, other: bytes) -> bool:
        """Whether all up to a clock is synced here, but for what has ended."""
        return clock.covers(self.synced, clock.named(other, self._named))

    def has(self, entry: LogEntry, merged: Merged | None = None) -> bool:
        """Whether there is nothing to take of an entry of another copy."""
        if entry.config > self.config:
            return clock.covers(self.appended, entry.after)
        joining = self.joining if merged is None else merged.joining
        span = None if joining is None else joining.span(entry.source)
        is_merged = span is not None and clock.covers(span.after, clock.named(entry.after, self._named))
        return is_merged or self.covers(entry.after, merged)

    def follows(self, entry: LogEntry, merged: Merged | None = None) -> bool:
        """Whether it can take an entry now: who is not whole takes it ahead of its clock.

        Of a newer config nothing is taken: it may name origins that this one does not know yet.
        """
        if self.stands_still or entry.config > self.config:
            return False
        return self.joining is not None or self.covers(entry.before, merged)

    def merge(self, entry: LogEntry, merged: Merged, read: Read) -> None:
        """Merge an entry of another copy into what is taken with it, for `take`.

        Requires: it follows, and is not had.
        """
        assert merged.joining is not None or self.covers(entry.before, merged), "what was skipped is missed for good"
        before, won = merged.after, merged.won
        named = clock.named(entry.after, self._named)
        after = clock.merge(before, named)
        for key, data in entry.records:
            dot = record.dot(data)
            if clock.covers(before, dot) or not clock.covers(after, dot):  # Of what the map does not name any more.
                continue
            self.time.merge(int.from_bytes(data[:8], "big"))
            standing = won.get(key) or self._between.get(key) or read(self.space, RECORD + key)
            if standing is None or standing[:ORDER_BYTES] < data[:ORDER_BYTES]:
                won[key] = data
                merged.relieves &= standing is not None and record.is_deleted(data)
        if merged.joining is None:
            merged.after = after
        else:
            merged.joining = merged.joining.taken(entry.source, clock.named(entry.before, self._named), named)

    def take(self, merged: Merged, batch: Batch) -> LogEntry:
        """Put what was merged into a batch, as one entry: the batch is to be appended, and then `appends`."""
        for key, data in merged.won.items():
            self._put(batch, key, data)
        joining, after = merged.joining, merged.after
        if joining is not None:
            joining, after = joining.closed(after, self._named)
            joining.put(batch, self.space)
        records = (*merged.won.items(),)
        return self._finished(batch, LogEntry(self, records, merged.before, after, is_own=False, joining=joining))

    def _put(self, batch: Batch, key: bytes, data: bytes) -> None:
        batch.put(self.space, RECORD + key, data)
        if record.value(data) is None:
            batch.put(self.space, TOMBSTONE + data[:8] + key, b"")

    def _finished(self, batch: Batch, entry: LogEntry) -> LogEntry:
        """Have the batch move the clock: records and clock go together."""
        assert clock.covers(entry.after, entry.before), "a clock never goes back"
        before = entry.before if entry.joining is None else entry.after  # Nobody is fed by it: see `replica.bootstrap`.
        self.put(batch, STATE, encode_state(self.time.last, self.config, entry.after, before))
        return entry

    def appends(self, entry: LogEntry) -> None:
        """Its batch is appended: what follows goes on from it."""
        assert self.appended == entry.before, "one batch after the other"
        self.appended, self.joining = entry.after, _left(entry.joining)
        if entry.records and self._between is NOTHING:
            self._between = {}
        for key, data in entry.records:
            self._between[key] = data[:ORDER_BYTES]

    def has_synced(self, entry: LogEntry) -> None:
        """An entry of it is synced; they are in their order."""
        self.taken_config = self.config
        self.synced_joining = _left(entry.joining)
        self._has_synced(entry.after)
        for key, data in entry.records:
            if self._between.get(key) == data[:ORDER_BYTES]:
                del self._between[key]
        self._between = self._between or NOTHING

    def _has_synced(self, after: bytes) -> None:
        synced = clock.named(after, self._named)  # It may be from before the map that was adopted meanwhile.
        self.synced = self.appended if synced == self.appended else synced

    # -- the log -----------------------------------------------------------------------------------------------------

    def entry_of(self, position: int, records: Iterable[tuple[bytes, bytes]], state: bytes) -> LogEntry | None:
        """Read an entry from what a batch of the log has put: records, and how the copy stands after it.

        None: it has nothing to tell.
        """
        _, _, after, before = decode_state(state)
        if before == after:
            return None
        entry = LogEntry(self, (*filter(self._has_row, records),), before, after, is_own=False, position=position)
        # What a former life had written, and others gave back, may lack what has lost: that is no batch of its own.
        rise = clock.counter(after, self.assignment) - clock.counter(before, self.assignment)
        entry.is_own = entry.origins == (self.assignment,) and len(entry.records) == rise
        return entry

    def _has_row(self, row: tuple[bytes, bytes]) -> bool:
        return self.bounds.has(row[0])

    def inherits(self, parent: Replica) -> None:
        """It stands in the place of a copy that was divided, with all that this has of its keys, synced or not."""
        self.time.merge(parent.time.last)
        self.synced_config, self.taken_config = parent.synced_config, parent.taken_config
        self.is_new = parent.is_new
        self._between = {key: order for key, order in parent._between.items() if self.bounds.has(key)} or NOTHING
        self._has_synced(parent.synced)


def _left(joining: Bootstrap | None) -> Bootstrap | None:
    """What a copy has beside its clock; nothing, once it is whole."""
    return None if joining is None or joining.is_over else joining


def _named(hosts: Iterable[AssignedReplica], former: Iterable[int] = ()) -> tuple[int, ...]:
    return tuple(sorted((*(host.assignment for host in hosts), *former)))


def is_available(assignment: int, hosts: Iterable[AssignedReplica]) -> bool:
    """Whether an assignment is AVAILABLE."""
    return any(host.counts and host.available for host in hosts if host.assignment == assignment)


def first_batch(
    space: int,
    identity: ReplicaIdentity,
    config: int,
    hosts: Sequence[AssignedReplica],
    rules: PartitionRules = NO_RULES,
) -> tuple[Batch, bytes, Bootstrap | None]:
    """The batch that makes a copy, the state that it begins with, and what it is not whole with."""
    empty = clock.named(b"", _named(hosts, rules.former))
    batch = Batch()
    batch.new_space(space)
    batch.put(space, IDENTITY, identity.encode())
    state = encode_state(0, config, empty, empty)
    batch.put(space, STATE, state)
    if ended := rules.ended([origin for origin, _ in clock.entries(empty)]):
        batch.put(space, ENDED, ended)
    if any(host.available for host in hosts if host.assignment == identity.assignment):
        return batch, state, None
    batch.put(space, MOVES, b"")
    joining = Bootstrap()
    joining.put(batch, space)
    return batch, state, joining
