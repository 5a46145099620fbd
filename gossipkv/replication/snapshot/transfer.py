"""Bulk loads: replicas fetch records that the logs of other hosts no longer reach back to.

    replica_load   [uuid, table, partition, space, position, key, since or nothing]    a page of the source's space, or
                                                                                       of its log

A log sender reports a replica that lacks what precedes its log as *below*. A load begins if, for the relay time, a
connected host has had records that no host can send from its log:

1. An AVAILABLE host of the same config sends all records in pages, then its log since the first page, with time and
   clock at the end. A key asks for a page of the space, no key for the log behind the position. The answer is
   `[space, position, state or nil, records, where the next page begins or nil]`. All go into a new space.
2. The load waits a while until the source covers the local writes from before the load.
3. Records of the old space and its log are merged in unless the source covers them: their tombstones may be gone.
4. The replica is frozen until its last entries are merged and synced.
5. One batch joins clocks and times and removes the old space. The log begins there: a host that lacks more must load.

An incomplete replica (`replica.bootstrap`) loads once its assignment is INITIALIZING, preferably from its slot's other
host. If a span stays open for the stall time, the replica restarts empty: perhaps nobody else has its records.
(Confirmed records are safe: a majority of slots has them, and the replica covers that before it is AVAILABLE.)

A backup (`gossipkv.backup`) reads a replica in the same way. With the clock `since` of an earlier backup, records that
the clock covers come as keys with nil, and covered tombstones do not come.

The source keeps no state; if it changes its space, it refuses and the load is aborted. An aborted load leaves a space
without an identity, which is dropped, also at startup.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack

from gossipkv.errors import GossipKVError, NotReady, NotServed, Overloaded, StorageError
from gossipkv.processes.pace import RateLimit
from gossipkv.replication._replication import encode_state, put_records, records_of
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import IDENTITY, LOADING, ORDER_BYTES, RECORD, STATE, decode_state
from gossipkv.replication.replica.spaces import first_batch
from gossipkv.storage.engine.shell import PUT, Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.bootstrap import Bootstrap
    from gossipkv.replication.replica.keys import KeyBounds, ReplicaIdentity
    from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules, Replica
    from gossipkv.replication.replica.spaces import Spaces
    from gossipkv.replication.replica.status import ReplicaStatus
    from gossipkv.storage.engine.log_reader import Operations
    from gossipkv.wire.rpc import Value

PAGE_RECORDS: Final = 1024
PAGE_BYTES: Final = 256 << 10
MAX_LOADS: Final = 4  # Concurrent loads of a node.
TOO_SMALL_S: Final = 60.0  # A replica that is below again this soon after a load cannot keep up with this log.
_WHEN_SYNCED: Final = inf  # The time of a step that waits until the load's batches are synced.


class LoadPorts(Protocol):
    """The part of `ReplicaSet` that a load needs."""

    spaces: Spaces

    def host_statuses(self, replica: Replica) -> Iterable[tuple[bytes, ReplicaStatus]]:
        """Yield the last status of each connected host's replica."""

    def changes(self, replica: Replica) -> None:
        """Report a change of the replica's readiness, clock or config to its hosts soon."""

    def place(
        self, identity: ReplicaIdentity, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules, /
    ) -> None:
        """Apply a placement to a replica. Raises Overloaded, StorageError."""

    def has_moved(self, replica: Replica, old_space: int, old_suffix: bytes) -> None:
        """Update all state after a replica moved to its new space."""


@final
@dataclass(slots=True, eq=False)
class BulkLoad:
    """A bulk load of one replica into a new space."""

    replica: Replica
    source: bytes  # The node that is loaded from.
    began: float
    own: int  # Counter of the records originated here before the load.
    space: int
    next: Callable[[], object]  # The next step.
    at: float | None = None  # Time of the next step; None: the load waits for an event.
    theirs: int = 0  # Space on the source.
    state: bytes = b""  # State of the source at `position` in its log.
    position: int = 0
    start: bytes | None = None  # Start of the next page: of the source's space, later of the old local space.
    # Position in the local log; the old space's entries from here up to `until` are still to be merged.
    own_position: int = 0
    until: int = 0
    unsynced: int = 0
    is_switching: bool = False  # The batch that moves the clock is appended.
    is_over: bool = False

    def __post_init__(self) -> None:
        self.start, _ = self.replica.bounds.records

    @property
    def clock(self) -> bytes:
        """The source's clock after the last received page."""
        return decode_state(self.state)[2]


@final
class BulkLoader:
    """The bulk loads of a node."""

    def __init__(
        self, me: bytes, outside: ReplicationPorts, around: LoadPorts, *, relay_s: float, stall_s: float
    ) -> None:
        """Wait `stall_s` at most for a source to cover local writes, and for open spans to close."""
        self._me = me
        self._outside = outside
        self._around = around
        self._relay_s = relay_s
        self._stall_s = stall_s
        self.loads: dict[Replica, BulkLoad] = {}
        # Replicas for which `table_log` is too small, until they have kept up for a while.
        self.log_too_small: set[Replica] = set()
        self.litter: deque[int] = deque()  # Spaces of aborted loads.
        # Placements that came while their replicas were frozen.
        self.unplaced: dict[Replica, tuple[ReplicaIdentity, int, Sequence[AssignedReplica], PartitionRules]] = {}
        self.joining: dict[Replica, None] = {}  # Incomplete replicas in order of arrival.
        # Incomplete replicas that have loaded, each with the time since when the same spans are open.
        self._open: dict[Replica, float] = {}
        self.below: dict[Replica, set[bytes]] = {}  # Nodes whose logs do not reach back to the replica.
        self._since: dict[Replica, float] = {}  # Since when no host can feed records that a host has.
        self.pace = RateLimit()  # Incoming bytes of all loads.
        self._loaded: dict[Replica, float] = {}  # When a replica last loaded or its load was outrun by the local log.

    # -- when ----------------------------------------------------------------------------------------------------------

    def hears(self, node: bytes, replica: Replica, *, below: bool) -> None:
        """Note whether a node's log reaches back to a local replica's clock."""
        if below:
            self.below.setdefault(replica, set()).add(node)
        elif replica in self.below:
            self.below[replica].discard(node)
            if not self.below[replica]:
                del self.below[replica]
                self._since.pop(replica, None)

    @property
    def rests(self) -> bool:
        """True if there is nothing to do before something happens; the rest follows from these."""
        has_loads = self.loads or self.joining or self.unplaced or self.litter
        return not (has_loads or self.below or self.log_too_small)

    def look(self, now: float) -> None:
        """Begin due loads and continue running ones."""
        self._drop_litter()
        for replica in [*self.unplaced]:
            if not replica.is_frozen:
                self._places(replica)
        for load in [*self.loads.values()]:
            if load.at is not None and load.at <= now:
                load.at = None
                load.next()
        for replica in [*self.below]:
            if replica not in self.loads and replica.joining is None:
                self._may_begin(replica, now)
        for replica in [*self.joining]:
            joining = replica.joining
            # Most replicas wait to become INITIALIZING, or for open spans to close.
            waits = replica in self.loads or now < self._open.get(replica, -inf) + self._stall_s
            if joining is None or ((replica.rules.loads or joining.is_loaded) and not waits):
                self._look_at_joining(replica, joining, now)
        self.log_too_small -= {replica for replica in self.log_too_small if self._keeps_up_at(replica) <= now}

    def _drop_litter(self) -> None:
        with contextlib.suppress(Overloaded, StorageError):  # Retried by a later `look`.
            while self.litter:
                batch = Batch()
                batch.drop_space(self.litter[0])
                self._outside.append(batch, lambda: None)
                self.litter.popleft()

    @property
    def due(self) -> float:
        """The time of the next work if nothing happens before; inf: never."""
        times = [load.at for load in self.loads.values() if load.at is not None]
        times += [self._keeps_up_at(replica) for replica in self.log_too_small]
        times += [self._outside.now() + self._relay_s for replica in self.unplaced if not replica.is_frozen]
        times += [since + self._stall_s for since in self._open.values()]
        if len(self.loads) < MAX_LOADS:
            times += [since + self._relay_s for replica, since in self._since.items() if replica not in self.loads]
        return min(times, default=inf)

    def _may_begin(self, replica: Replica, now: float) -> None:
        statuses = [(node, status.counted(replica)) for node, status in self._around.host_statuses(replica)]
        reached = replica.appended
        for node, status in statuses:
            if node not in self.below[replica]:
                reached = clock.merge(reached, status.clock)
        if all(clock.covers(reached, status.clock) for _, status in statuses):
            self._since.pop(replica, None)
            return
        since = self._since.setdefault(replica, now)
        news = {
            node: _news(replica, status.clock)
            for node, status in statuses
            if status.available and status.config == replica.synced_config
        }
        if now < since + self._relay_s or len(self.loads) >= MAX_LOADS:
            return
        self._since[replica] = now  # Retry later if there is no source or the load is aborted.
        source = max(news, key=news.__getitem__, default=b"")
        if news.get(source):
            self._begin(replica, source, now)

    def _look_at_joining(self, replica: Replica, joining: Bootstrap | None, now: float) -> None:
        if joining is None:
            self.joining.pop(replica, None)
            self._open.pop(replica, None)
            self._around.changes(replica)
        elif joining.is_loaded:
            # A replica that begins anew stays loaded until that is synced; then no span is open.
            if now >= self._open.setdefault(replica, now) + self._stall_s:
                self._begin_anew(replica, now)
        elif len(self.loads) < MAX_LOADS and (source := self._source_of(replica)):
            self._begin(replica, source, now)

    def _source_of(self, replica: Replica) -> bytes:
        """Return the node from which an incomplete replica loads now; empty: none."""
        if replica.synced_config != replica.config:
            return b""
        slots = {role.node: role.slot for role in replica.roles}
        sources = [
            node
            for node, status in self._around.host_statuses(replica)
            if status.config == replica.config and status.available and status.span is None and node in slots
        ]
        return min(sources, key=lambda node: (slots[node] != slots[self._me], node), default=b"")

    def _begin_anew(self, replica: Replica, now: float) -> None:
        space = self._outside.reserve_space()
        batch, state, joining = first_batch(space, replica.identity, replica.config, replica.hosts, replica.rules)
        self._around.spaces.leaves(replica, batch)
        batch.relieves = True
        empty = decode_state(state)[2]
        load = BulkLoad(replica, self._me, now, 0, space, next=lambda: None, is_switching=True)
        self._open[replica] = now + self._relay_s - self._stall_s  # Retry after the relay time if there is no room.
        with contextlib.suppress(Overloaded, StorageError):
            position = self._outside.append(batch, lambda: self._switched(load, empty, position, joining))
            self.loads[replica] = load
            replica.leave_fast_path()
            replica.is_frozen = True
            self._open.pop(replica, None)
            self._outside.loads(replica, self._me, "restarted: a gap follows the entries before the loaded records")

    def _places(self, replica: Replica) -> None:
        with contextlib.suppress(Overloaded, StorageError):  # Retried by a later `look`.
            self._around.place(*self.unplaced[replica])
            del self.unplaced[replica]
            self._around.changes(replica)

    def _keeps_up_at(self, replica: Replica) -> float:
        is_behind = replica in self.loads or replica in self._since
        return inf if is_behind else self._loaded[replica] + TOO_SMALL_S

    def _begin(self, replica: Replica, source: bytes, now: float) -> None:
        batch, space = Batch(), self._outside.reserve_space()
        own = clock.counter(replica.appended, replica.assignment)
        load = BulkLoad(replica, source, now, own, space, next=lambda: None)
        batch.new_space(space)
        batch.put(space, LOADING, replica.identity.encode())
        try:
            self._append(load, batch)
        except (Overloaded, StorageError):
            return
        if replica.joining is None and now - self._loaded.get(replica, now - TOO_SMALL_S) < TOO_SMALL_S:
            self._note_log_too_small(replica)
        self.loads[replica] = load
        replica.leave_fast_path()
        self._outside.loads(replica, source, "began")
        self._ask(load)

    # -- from the source -----------------------------------------------------------------------------------------------

    def _ask(self, load: BulkLoad) -> None:
        table, partition = load.replica.partition
        params: list[Value] = [self._me, table, partition, load.theirs, load.position, load.start or b""]
        self._outside.ask(load.source, "replica_load", params, partial(self._answered, load))

    def _answered(self, load: BulkLoad, answer: Value | GossipKVError) -> None:
        if load.is_over:
            return
        match answer:
            case [int(space), int(position), None | bytes() as state, bytes(packed), None | bytes() as more] if (
                space == (load.theirs or space)
            ):
                pass
            case _:
                self._abort(load, "the source did not answer, or loads its own replica")
                return
        try:
            records = records_of(msgpack.unpackb(packed))
            if state is not None:
                decode_state(state)
            self._write(load, records)
        except Overloaded:
            self._later(load, self._relay_s, partial(self._ask, load))  # No room now: ask for the same page again.
            return
        except (GossipKVError, ValueError) as error:
            self._abort(load, f"{error}")
            return
        if not load.theirs:
            load.theirs, load.position = space, position
        if load.start is None:
            load.position = position
        load.state = state or load.state
        self.pace.took(len(packed), self._outside.now())
        is_log = load.start is None
        if not is_log:
            load.start = more
        if is_log and more is None:
            self._at_end(load)
        else:
            self._later(load, self.pace.wait_s(self._outside.now()), partial(self._ask, load))

    def _at_end(self, load: BulkLoad) -> None:
        replica, own = load.replica, clock.counter(load.clock, load.replica.assignment)
        if decode_state(load.state)[1] != replica.synced_config:
            self._abort(load, "the source has another config of the partition")
        elif tuple(origin for origin, _ in clock.entries(load.clock)) != replica.named:
            self._abort(load, "the source sent another partition")
        elif replica.never_gave_out(load.clock):
            self._abort(load, "the source has later records of this replica than this replica")
        elif own < load.own and self._outside.now() < load.began + self._stall_s:
            self._later(load, self._relay_s, partial(self._ask, load))
        else:
            load.own_position, load.start = self._outside.synced(), replica.bounds.records[0]
            self._when_synced(load, partial(self._merge_page, load))

    # -- from the old space --------------------------------------------------------------------------------------------

    def _merge_page(self, load: BulkLoad) -> None:
        space, start = load.replica.space, load.start
        end = load.replica.bounds.records[1]
        found, more = self._outside.scan(space, start, end, reverse=False, limit=PAGE_RECORDS)
        if not self._merge(load, [(key[1:], data) for key, data in found]):
            self._later(load, self._relay_s, partial(self._merge_page, load))
        elif more is not None:
            load.start = more
            self._when_synced(load, partial(self._merge_page, load))
        else:
            load.until = self._outside.synced()
            self._when_synced(load, partial(self._merge_log, load))

    def _merge_log(self, load: BulkLoad) -> None:
        if load.own_position < load.until:
            self._outside.read_log(frozenset([load.replica.space]), load.own_position, partial(self._log_read, load))
        elif not load.replica.is_frozen:
            load.replica.is_frozen = True
            self._around.changes(load.replica)
            self._last_page(load)
        else:
            self._switch(load)

    def _last_page(self, load: BulkLoad) -> None:
        if not load.replica.is_unsynced:  # Otherwise `synced` continues the load.
            load.until = self._outside.synced()
            self._merge_log(load)

    def synced(self, replica: Replica) -> None:
        """Continue a load that waited for appended entries to be synced."""
        load = self.loads.get(replica)
        if load is not None and replica.is_frozen and not replica.is_unsynced:
            self._when_synced(load, partial(self._last_page, load))

    def _log_read(self, load: BulkLoad, batches: Sequence[tuple[int, Operations]] | None, position: int) -> None:
        if load.is_over:
            return
        if batches is None:
            self._loaded[load.replica] = self._outside.now()
            self._note_log_too_small(load.replica)
            self._abort(load, "this node's log was deleted before the load was done")
            return
        if self._merge(load, _puts(batches, load.replica.space, load.replica.bounds)):
            load.own_position = position
            self._when_synced(load, partial(self._merge_log, load))
        else:
            self._later(load, self._relay_s, partial(self._merge_log, load))

    def _merge(self, load: BulkLoad, records: Iterable[tuple[bytes, bytes]]) -> bool:
        """Merge records of the (synced) old space into the synced new one; False: there is no room now."""
        won: dict[bytes, bytes] = {}
        covered = load.clock
        for key, data in records:
            dot = clock.named(record.dot(data), load.replica.named)  # Empty if the origin has ended.
            if clock.covers(covered, dot):
                continue
            standing = won.get(key) or self._outside.get(load.space, RECORD + key)
            if standing is None or standing[:ORDER_BYTES] < data[:ORDER_BYTES]:
                won[key] = data
        try:
            self._write(load, won.items())
        except Overloaded:
            return False
        except StorageError as error:
            self._abort(load, f"{error}")
            return False
        return True

    # -- the end -------------------------------------------------------------------------------------------------------

    def _switch(self, load: BulkLoad) -> None:
        """Switch to the new space in one batch, with the joined clock."""
        replica = load.replica
        time, config, theirs, _ = decode_state(load.state)
        if config != replica.config:
            self._abort(load, "this node adopted another config during the load")
            return
        joined = clock.merge(replica.appended, clock.named(theirs, replica.named))
        joining, batch = replica.joining, Batch()
        batch.put(load.space, IDENTITY, replica.identity.encode())
        if joining is not None:
            joining, joined = joining._replace(is_loaded=True).closed(joined, replica.named)
            joining.put(batch, load.space)
        for key, value in replica.marks():
            batch.put(load.space, key, value)
        # With equal clocks the batch is no log entry: the log begins behind it.
        batch.put(load.space, STATE, encode_state(max(time, replica.time), config, joined, joined))
        batch.delete(load.space, LOADING)
        self._around.spaces.leaves(replica, batch)
        batch.relieves = True
        try:
            position = self._outside.append(batch, lambda: self._switched(load, joined, position, joining))
        except Overloaded:
            self._later(load, self._relay_s, partial(self._last_page, load))
            return
        except StorageError as error:
            self._abort(load, f"{error}")
            return
        load.is_switching = True
        replica.time = max(replica.time, time)

    def _switched(self, load: BulkLoad, joined: bytes, position: int, joining: Bootstrap | None) -> None:
        replica = load.replica
        load.is_over = True
        if self.loads.pop(replica, None) is None:
            return  # The replica was dropped meanwhile.
        self._since.pop(replica, None)
        self._loaded[replica] = self._outside.now()
        old_space, old_suffix = replica.space, replica.suffix
        replica.moves(load.space, joined, position, joining)
        self._outside.loads(replica, load.source, "done")
        self._around.has_moved(replica, old_space, old_suffix)

    def abort(self, replica: Replica) -> None:
        """Abort a replica's load. Raises NotReady: its load is about to end."""
        load = self.loads.get(replica)
        if load is not None and load.is_switching:
            raise NotReady("the replica is about to move into its loaded space")
        if load is not None:
            self._abort(load, "the replica is dropped")

    def let_go(self, replica: Replica, batch: Batch) -> bool:
        """Drop a replica's load; return False if the loaded space is about to take its place."""
        load = self.loads.pop(replica, None)
        for kept in (self.below, self._since, self._loaded, self._open):
            kept.pop(replica, None)
        self.joining.pop(replica, None)
        self.log_too_small.discard(replica)
        self.unplaced.pop(replica, None)
        if load is not None:
            load.is_over = True
            batch.drop_space(load.space)
        return load is None or not load.is_switching

    def _abort(self, load: BulkLoad, why: str) -> None:
        load.is_over = True
        self.loads.pop(load.replica, None)
        self.litter.append(load.space)
        if load.replica in self.below:
            self._since[load.replica] = self._outside.now()
        if load.replica.is_frozen:
            load.replica.is_frozen = False
            self._around.changes(load.replica)
        self._outside.loads(load.replica, load.source, f"aborted: {why}")
        self._outside.wake()

    def _note_log_too_small(self, replica: Replica) -> None:
        if replica not in self.log_too_small:
            self.log_too_small.add(replica)
            self._outside.log_too_small(replica)

    # -- writing to the new space --------------------------------------------------------------------------------------

    def _write(self, load: BulkLoad, records: Iterable[tuple[bytes, bytes]]) -> None:
        batch = Batch()
        put_records(batch, load.space, records)
        if batch.count:
            self._append(load, batch)

    def _append(self, load: BulkLoad, batch: Batch) -> None:
        self._outside.append(batch, partial(self._one_synced, load))
        load.unsynced += 1

    def _one_synced(self, load: BulkLoad) -> None:
        load.unsynced -= 1
        if not load.unsynced and load.at == _WHEN_SYNCED:
            load.at = self._outside.now()
            self._outside.wake()

    def _when_synced(self, load: BulkLoad, do: Callable[[], object]) -> None:
        if not load.is_over:
            load.next = do
            load.at = _WHEN_SYNCED if load.unsynced else self._outside.now()
            self._outside.wake()

    def _later(self, load: BulkLoad, after_s: float, do: Callable[[], object]) -> None:
        load.next, load.at = do, self._outside.now() + after_s
        self._outside.wake()


def _news(replica: Replica, theirs: bytes) -> int:
    return sum(max(0, count - clock.counter(replica.appended, origin)) for origin, count in clock.entries(theirs))


def _puts(batches: Iterable[tuple[int, Operations]], space: int, bounds: KeyBounds) -> list[tuple[bytes, bytes]]:
    """Return the records that batches put into a space within bounds, in order."""
    return [
        (key[1:], value)
        for _, operations in batches
        for kind, of, key, value in operations
        if kind == PUT and of == space and key[:1] == RECORD and bounds.has(key[1:])
    ]


# -- the source --------------------------------------------------------------------------------------------------------


class LoadPage(NamedTuple):
    """The part of a source that a request asks for."""

    space: int  # 0: this is the first request.
    position: int
    key: bytes  # Start of the page; empty: the log behind the position.
    since: bytes = b""  # Records that this clock covers come without their values.


def serve(
    outside: ReplicationPorts, replica: Replica, page: LoadPage, on_page: Callable[[Value | GossipKVError], object]
) -> None:
    """Answer with a page of a replica or of its log. Raises NotServed: the page's space is not (yet) the replica's."""
    space, details = page.space, {"partition": replica.identity.partition}
    if space not in {0, replica.space}:
        raise NotServed("the replica was loaded again, and is in another space", {**details})
    own_state = STATE + replica.suffix
    if page.key:
        state = None if space else outside.get(replica.space, own_state)
        if not space and state is None:
            raise NotServed("the replica is not synced yet", {**details})
        on_page([replica.space, outside.synced(), state, *_page(outside, replica, page)])
        return

    def on_log(batches: Sequence[tuple[int, Operations]] | None, position: int) -> None:
        if batches is None or replica.space != space:
            on_page(NotServed("the log no longer has this position, or the replica left its space"))
            return
        states = [value for _, all_ in batches for _, of, key, value in all_ if of == space and key == own_state]
        flat = [part for pair in _puts(batches, space, replica.bounds) for part in pair]
        more = None if position >= outside.synced() else b""
        on_page([space, position, states[-1] if states else None, msgpack.packb(flat), more])

    outside.read_log(frozenset([space]), page.position, on_log)


def _page(outside: ReplicationPorts, replica: Replica, page: LoadPage) -> tuple[bytes, bytes | None]:
    flat: list[bytes | None] = []
    first, end = replica.bounds.records
    size_bytes, more = 0, max(page.key, first) or None
    while more is not None and size_bytes < PAGE_BYTES:
        found, more = outside.scan(replica.space, more, end, reverse=False, limit=PAGE_RECORDS)
        for key, data in found:
            size_bytes += len(key) + len(data)
            if not page.since or not clock.covers(page.since, record.dot(data)):
                flat += (key[1:], data)
            elif not record.is_deleted(data):
                flat += (key[1:], None)
    return msgpack.packb(flat), more
