"""A poll of a feed at a host: a page of changes after the feed's places, or a wait for some.

A change is given once a majority of slots has it. The entries of the replica's log come in order, whole, and from the
first one that the feed's clock does not cover. So a version of a key never follows a later one, as long as the feed
stays at this replica. Another replica has the same records in another order. Therefore, until its log has passed all
that the feed may have shown, an entry gives the present record of a key or nothing: no later one was shown before.

A snapshot gives the present records page by page, and then the log since its first page, in the same way.

A page without changes is parked until a replica syncs a record, or a host confirms one. It costs nothing meanwhile.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import GossipKVError, NotReady, NotServed, TooOld
from gossipkv.replication.changes.marks import LogMarks
from gossipkv.replication.changes.places import ConfigClock
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, slots_needed
from gossipkv.replication.replica.keys import ORDER_BYTES, RECORD, KeyBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Protocol

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.changes.places import FeedPlace
    from gossipkv.replication.deadlines import ParkedRequest, ParkedRequests
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.storage.engine.log_reader import Operations

    class FeedPorts(ReplicationPorts, Protocol):
        """The store, and the requests that wait."""

        waiting: ParkedRequests


LINGER_S: Final = 0.01  # A page that is not full waits for further changes: pages of single changes cost most.
MAX_READS: Final = 8  # Reads of the log at a time, each of which holds a part of 128 KiB.
SCAN_ROWS: Final = 256  # Rows of a snapshot that are read at a time.
PLACE_BYTES: Final = 512  # Approximate memory of a place of a parked page.


@final
class ChangeFeeds:
    """The parked pages of a node, and what all feeds share."""

    def __init__(self, replicas: ReplicaSet, outside: FeedPorts) -> None:
        self.replicas, self.outside = replicas, outside
        self.marks = LogMarks(replicas, outside)
        self._parked: dict[Replica, dict[ChangePage, None]] = {}
        self._stable: dict[Replica, bytes] = {}  # The stable clocks of the parked pages.
        self._awaited: set[tuple[Replica, int]] = set()  # Origins of which a host's confirmation is awaited.
        self._reads = 0
        self._unread: deque[Callable[[], object]] = deque()
        replicas.watchers.append(self._moved)

    def stable(self, replica: Replica) -> bytes:
        """Return the clock of the local records that a majority of slots has."""
        acks, synced = self.replicas.acks[replica], replica.synced
        return clock.of(
            (origin, min(count, acks.reached(MAJORITY, origin=origin))) for origin, count in clock.entries(synced)
        )

    def park(self, page: ChangePage, replicas: Iterable[Replica]) -> None:
        """Wake a page once there may be more of these replicas."""
        for replica in replicas:
            self._parked.setdefault(replica, {})[page] = None
            self._watch(replica, self.stable(replica))

    def unpark(self, page: ChangePage, replicas: Iterable[Replica]) -> None:
        """Let a page go."""
        for replica in replicas:
            pages = self._parked.get(replica, {})
            pages.pop(page, None)
            if not pages:
                self._parked.pop(replica, None)
                self._stable.pop(replica, None)

    def _watch(self, replica: Replica, stable: bytes) -> None:
        """Await the confirmations of records that too few hosts have."""
        self._stable[replica] = stable
        if clock.covers(stable, replica.synced):
            return
        for origin, count in clock.entries(replica.synced):
            if clock.counter(stable, origin) < count and (replica, origin) not in self._awaited:
                self._awaited.add((replica, origin))
                # Local writes may wait for later counters already, and waits are in the order of counters.
                counter = clock.counter(replica.appended, origin)
                self.replicas.acks[replica].wait(
                    MAJORITY, counter, partial(self._confirmed, replica, origin), origin=origin
                )

    def _confirmed(self, replica: Replica, origin: int) -> None:
        self._awaited.discard((replica, origin))
        self._moved(replica)

    def _moved(self, replica: Replica) -> None:
        """Wake the pages of a replica if a majority has more of it, or if it is gone."""
        pages = self._parked.get(replica)
        if pages is None:
            return
        is_here = replica in self.replicas.acks
        stable = self.stable(replica) if is_here else b""
        for page in [*pages]:
            page.passes(replica)
            if not is_here or stable != self._stable.get(replica):
                page.wake(replica)
        if is_here and replica in self._parked:
            self._watch(replica, stable)

    def read_log(
        self,
        spaces: frozenset[int],
        position: int,
        on_log: Callable[[Sequence[tuple[int, Operations]] | None, int], object],
    ) -> None:
        """Read a part of the log, once few others are read."""

        def done(batches: Sequence[tuple[int, Operations]] | None, behind: int) -> None:
            self._reads -= 1
            on_log(batches, behind)
            if self._unread and self._reads < MAX_READS:
                self._unread.popleft()()

        def begin() -> None:
            self._reads += 1
            self.outside.read_log(spaces, position, done)

        if self._reads < MAX_READS:
            begin()
        else:
            self._unread.append(begin)


@final
class ChangePage:
    """A page in the making."""

    def __init__(
        self,
        feeds: ChangeFeeds,
        table: bytes,
        places: Sequence[FeedPlace],
        bounds: KeyBounds,
        *,
        limits: tuple[int, int],
        until: float,
        complete: Callable[[ChangePage], object],
    ) -> None:
        """`limits`: the number and the bytes of changes at which the page is full; `until`: the end of the wait."""
        self.count = 0  # Changes so far.
        self.places = places
        self.refused: dict[int, GossipKVError] = {}  # By the index of the place.
        self._feeds, self._table, self._bounds = feeds, table, bounds
        self._most, self._most_bytes = limits
        self._until, self._complete = until, complete
        self._packer = msgpack.Packer(autoreset=False)
        self._bytes = 0
        self._has_begun = False  # A place began: a feed from now on gets its token at once.
        self._beginnings: dict[int, tuple[ConfigClock, int]] = {}
        self._replicas: dict[Replica, int] = {}  # The replicas of places, by index.
        self._at_end: set[Replica] = set()  # Replicas with nothing more that the feed lacks.
        self._left: dict[Replica, None] = {}  # Replicas to look at.
        self._renamed: set[Replica] = set()  # Replicas whose next entry in memory is of an earlier config.
        self._stable: dict[Replica, bytes] = {}  # The stable clocks of this step.
        self._parked: ParkedRequest | None = None
        self._linger_until: float | None = None
        self._is_reading = self._is_over = self._has_read = False

    # -- the life of a page ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin; the page completes at once, or later."""
        for number, place in enumerate(self.places):
            try:
                replica = self._replica(place)
                self._check(replica, place)
            except GossipKVError as error:
                self.refused[number] = error
            else:
                self._replicas[replica] = number
        self._left = dict.fromkeys(self._replicas)
        self._feeds.park(self, self._replicas)
        self._step()

    def end(self) -> None:
        """End the page as it is."""
        if self._is_over:
            return
        self._is_over = True
        self._feeds.unpark(self, self._replicas)
        self._wait_no_more()
        for replica in self._at_end:  # Positions and configs have moved on.
            with contextlib.suppress(GossipKVError):
                self._look(replica, self.places[self._replicas[replica]])
        self._complete(self)

    def wake(self, replica: Replica) -> None:
        """Look at a replica again, together with those that move soon."""
        self._left[replica] = None
        if self._linger_until is None and not self._is_reading and not self._is_over:
            self._linger()

    def passes(self, replica: Replica) -> None:
        """Note that a replica without anything more has just synced a batch, or adopted a config."""
        if replica in self._at_end and replica in self._feeds.replicas.acks:
            place = self.places[self._replicas[replica]]
            if place.delivered is not None and not place.delivered.covers(_synced(replica)):
                self._at_end.discard(replica)
                place.position = max(place.position, self._feeds.replicas.tail.end - 1)

    def _now(self) -> float:
        return self._feeds.outside.now()

    def _linger(self) -> None:
        self._linger_until = min(self._until, self._now() + LINGER_S)
        self._wait(self._linger_until)

    def _wait(self, until: float) -> None:
        """Take the next step at that time."""
        self._wait_no_more()
        try:
            size_bytes = PLACE_BYTES * len(self.places) + self._bytes
            self._parked = self._feeds.outside.waiting.begin(until, size_bytes, self._step)
        except GossipKVError as error:  # Too many requests wait.
            self.refused.update(dict.fromkeys(range(len(self.places)), error))
            self.end()

    def _wait_no_more(self) -> None:
        if self._parked is not None:
            self._feeds.outside.waiting.end(self._parked)
            self._parked = None

    @property
    def _is_full(self) -> bool:
        return self.count >= self._most or self._bytes >= self._most_bytes

    def _step(self) -> None:
        """Give what there is; then complete, read the log, or wait."""
        if self._is_over or self._is_reading:
            return
        self._parked = None
        self._stable.clear()
        left, self._left = self._left, {}
        behind: dict[Replica, int] = {}
        for replica in left:
            if self._is_full:
                break
            number = self._replicas[replica]
            try:
                if self._look(replica, self.places[number]):
                    behind[replica] = number
            except GossipKVError as error:
                self.refused[number] = error
        self._give_tail({replica: number for replica, number in behind.items() if self._is_near(replica, number)})
        far = [
            replica
            for replica, number in behind.items()
            if not (replica in self._at_end or number in self.refused or self._is_near(replica, number))
        ]
        now = self._now()
        has_begun = self._has_begun and all(place.delivered is not None for place in self.places)
        is_late = now >= self._until or (self.count > 0 and now >= (self._linger_until or inf))
        must_read = bool(far) and not self.count and not self._has_read  # Also a poll that does not wait moves on.
        if self._is_full or self.refused or has_begun or (is_late and not must_read):
            self.end()
        elif far:
            self._read(far)
        elif not self.count:
            self._linger_until = None
            self._wait(self._until)
        elif self._linger_until is None:
            self._linger()
        else:
            self._wait(self._linger_until)

    # -- one replica -------------------------------------------------------------------------------------------------

    def _replica(self, place: FeedPlace) -> Replica:
        """Find the local replica of a place. Raises NotServed."""
        replica = self._feeds.replicas.by_partition.get((self._table, place.partition))
        if replica is None or replica.role is None or not replica.role.available or replica.rules.has_departed:
            raise NotServed("the node does not hold the partition, or not yet", {"partition": place.partition})
        return replica

    def _check(self, replica: Replica, place: FeedPlace) -> None:
        """Check that a replica may continue a place.

        Raises:
            NotReady: the replica lacks records that the feed has seen, or too many hosts.
            TooOld: the range was force-joined since.
        """
        replicas, details = self._feeds.replicas, {"partition": place.partition}
        slots = replica.quorum.slots
        if replicas.acks[replica].confirming(replicas.confirms) < slots_needed(MAJORITY, slots):
            raise NotReady("too few hosts of the partition are connected to this replica", {**details})
        if place.delivered is None:
            return
        here = _synced(replica)
        if not here.covers(place.delivered) or not here.covers(place.shown):
            raise NotReady("this replica lags behind the feed", {**details})
        counters = dict(clock.entries(place.delivered.counters))
        if any(origin in counters and counters[origin] != kept for origin, kept in replica.rules.ends):
            raise TooOld("the range was re-created by `force-join` since the token was given", {**details})

    def _look(self, replica: Replica, place: FeedPlace) -> bool:
        """Return True if a replica has entries after a place. Raises GossipKVError: it cannot continue the place."""
        if self._replica(place) is not replica:
            raise NotServed("the replica was replaced", {"partition": place.partition})
        if place.delivered is None and not self._begins(replica, place):
            return False
        if place.cursor is not None and not self._scan(replica, place):
            return False
        assert place.delivered is not None
        here, tail = _synced(replica), self._feeds.replicas.tail
        is_known = place.space == replica.space and place.position >= max(replica.made_at, 1)
        has_read = is_known and place.position >= tail.end
        if place.delivered.covers(here) and (has_read or self._feeds.marks.knows_ends(replica, place.delivered, here)):
            place.delivered, place.shown = here, here
            place.space, place.position = replica.space, tail.end
            self._at_end.add(replica)
            return False
        if not is_known:
            place.space = place.position = 0  # `_read` finds the position.
        return True

    def _begins(self, replica: Replica, place: FeedPlace) -> bool:
        """Begin a place at the clock of this moment, once a majority has all of it."""
        number, replicas = self._replicas[replica], self._feeds.replicas
        begin, position = self._beginnings.setdefault(number, (_synced(replica), replicas.tail.end))
        if not self._is_stable(replica, begin.counters):
            return False
        place.delivered = place.shown = begin
        place.space, place.position = replica.space, position
        self._has_begun = self._has_begun or place.cursor is None
        return True

    def _is_stable(self, replica: Replica, reached: bytes) -> bool:
        """Return True if a majority has all up to a clock, which names assignments by any config up to this one."""
        stable = self._stable.get(replica)
        if stable is None:
            stable = self._stable[replica] = self._feeds.stable(replica)
        return clock.covers(stable, reached) or clock.covers(stable, clock.named(reached, replica.named))

    def _scan(self, replica: Replica, place: FeedPlace) -> bool:
        """Give present records; return True at the end of the snapshot."""
        assert place.cursor is not None
        stable, outside = ConfigClock(self._feeds.stable(replica), replica.config), self._feeds.outside
        bounds = replica.bounds.clip(KeyBounds(max(self._bounds.first, place.cursor), self._bounds.end))
        start, end = bounds.records
        more: bytes | None = start if start < end else None
        place.shown = place.shown.merge(stable)
        while more is not None and not self._is_full:
            rows, more = outside.scan(replica.space, more, end, reverse=False, limit=SCAN_ROWS)
            for key, data in rows:
                if not self._is_stable(replica, record.dot(data)):
                    place.cursor = key[len(RECORD) :]  # Go on here once a majority has the record.
                    return False
                if not record.is_deleted(data) and not 0 < record.decode(data).expires_ms <= outside.now_ms():
                    self._add(key[len(RECORD) :], data)
        place.cursor = None if more is None else more[len(RECORD) :]
        if more is not None:
            self._left[replica] = None
        return more is None

    def _add(self, key: bytes, data: bytes | None) -> None:
        """Add a change; `data`: the record, None if it is gone."""
        value = expires_ms = None
        if data is not None and not record.is_deleted(data):
            told = record.decode(data)
            value, expires_ms = told.value, told.expires_ms or None
        self._packer.pack((key, value, expires_ms))
        self.count += 1
        self._bytes += len(key) + len(value or b"")

    @property
    def body(self) -> bytes:
        """The changes as MessagePack, one after the other: `[key, value or nil, expires at or nil]`."""
        packed: bytes = self._packer.bytes()
        return packed

    # -- entries of the log ------------------------------------------------------------------------------------------

    def _is_near(self, replica: Replica, number: int) -> bool:
        """Return True if all entries after a place are in memory."""
        place = self.places[number]
        is_in_memory = place.position > 0 and place.position >= self._feeds.replicas.tail.first
        return is_in_memory and replica not in self._at_end and replica not in self._renamed

    def _give_tail(self, behind: dict[Replica, int]) -> None:
        """Give entries that are in memory."""
        tail = self._feeds.replicas.tail
        at = min((self.places[number].position for number in behind.values()), default=tail.end)
        waits: set[Replica] = set()
        while not self._is_full and (batch := tail.next(at) if at < tail.end else ()):
            at = batch[0].position
            for entry in batch:
                replica = entry.replica
                if replica in behind and replica not in waits and at > self.places[behind[replica]].position:
                    # Entries of an earlier config are read from the log, which has that.
                    is_named = clock.named(entry.after, replica.named) == entry.after
                    if not is_named or not self._take(replica, behind[replica], entry, replica.config):
                        waits.add(replica)
                        self.places[behind[replica]].position = at - 1
                        if not is_named:
                            self._renamed.add(replica)
        self._pass(behind, waits, at if self._is_full else tail.end)

    def _pass(self, behind: dict[Replica, int], waits: Collection[Replica], at: int) -> None:
        """Note that all entries up to a position were given, but for replicas that wait."""
        for replica, number in behind.items():
            place = self.places[number]
            if replica not in waits and number not in self.refused:
                place.position = max(place.position, at)
                if at < self._feeds.replicas.tail.end:
                    self._left[replica] = None
                    continue
                try:
                    self._look(replica, place)
                except GossipKVError as error:
                    self.refused[number] = error

    def _take(self, replica: Replica, number: int, entry: LogEntry, config: int) -> bool:
        """Give an entry; return False if it has to wait for a majority, or cannot follow."""
        place = self.places[number]
        before, after = ConfigClock(entry.before, config), ConfigClock(entry.after, config)
        assert place.delivered is not None
        if place.delivered.covers(after):
            return True
        if not place.delivered.covers(before):
            self.refused[number] = _too_old(place)
            return False
        if not self._is_stable(replica, entry.after):
            return False
        is_ahead = before.covers(place.delivered) and before.covers(place.shown)
        rows = [row for row in entry.records if self._bounds.has(row[0])]
        added = rows if is_ahead else self._present(replica, place, rows, config)
        if added is None:
            return False
        for key, data in added:
            self._add(key, data)
        place.delivered = after if is_ahead else place.delivered.merge(after)
        place.shown = place.delivered if is_ahead else place.shown
        return True

    def _present(
        self, replica: Replica, place: FeedPlace, rows: Iterable[tuple[bytes, bytes]], config: int
    ) -> Sequence[tuple[bytes, bytes | None]] | None:
        """Return those of an entry's records that are present; None: wait until a majority has later ones."""
        assert place.delivered is not None
        found: list[tuple[bytes, bytes | None]] = []
        for key, data in rows:
            if place.delivered.covers(ConfigClock(record.dot(data), config)):
                continue
            present = self._feeds.outside.get(replica.space, RECORD + key)
            if present is None:  # A deleted record has left the disk: no host lacks its tombstone.
                place.shown = place.shown.merge(ConfigClock(self._feeds.stable(replica), replica.config))
                found.append((key, None))
            elif present[:ORDER_BYTES] == data[:ORDER_BYTES]:
                found.append((key, present))
            elif not self._is_stable(replica, record.dot(present)):
                return None
        return found

    def _read(self, far: Sequence[Replica]) -> None:
        """Read the log for replicas whose entries are not in memory."""
        unplaced = [replica for replica in far if not self.places[self._replicas[replica]].position]
        self._is_reading = True
        if unplaced:
            self._feeds.marks.look(unplaced, partial(self._found, unplaced, far))
            return
        at = min(self.places[self._replicas[replica]].position for replica in far)
        spaces = frozenset(replica.space for replica in far)
        self._feeds.read_log(spaces, at, partial(self._on_log, far))

    def _found(self, unplaced: Sequence[Replica], far: Sequence[Replica]) -> None:
        """Note the positions of replicas in the log, and go on."""
        for replica in unplaced:
            place = self.places[self._replicas[replica]]
            assert place.delivered is not None
            position = self._feeds.marks.position(replica, place.delivered)
            if position is None:
                self.refused[self._replicas[replica]] = _too_old(place)
            else:
                place.space, place.position = replica.space, position
        self._go_on(far)

    def _on_log(self, far: Sequence[Replica], batches: Sequence[tuple[int, Operations]] | None, position: int) -> None:
        behind = {replica: self._replicas[replica] for replica in far}
        waits: set[Replica] = set()
        self._has_read = True
        self._renamed.difference_update(far)
        if batches is None:
            for number in behind.values():
                self.refused[number] = _too_old(self.places[number])
        for entry in self._feeds.replicas.spaces.read(batches or (), lambda replica, _: replica in behind):
            if entry.replica not in behind or entry.replica in waits:
                continue
            number = behind[entry.replica]
            if entry.position <= self.places[number].position:
                continue
            if self._is_full:
                position = min(position, entry.position - 1)
                break
            if not self._take(entry.replica, number, entry, entry.config):
                waits.add(entry.replica)
                self.places[number].position = max(self.places[number].position, entry.position - 1)
        for replica, number in behind.items():
            if replica not in waits:
                self.places[number].position = max(self.places[number].position, position)
        self._go_on([replica for replica in far if replica not in waits])

    def _go_on(self, replicas: Iterable[Replica]) -> None:
        self._is_reading = False
        if not self._is_over:
            self._left |= dict.fromkeys(replicas)
            self._step()


def _synced(replica: Replica) -> ConfigClock:
    return ConfigClock(replica.synced, replica.config)


def _too_old(place: FeedPlace) -> TooOld:
    return TooOld("the log of this node begins after the place of the feed", {"partition": place.partition})
