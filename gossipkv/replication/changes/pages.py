"""A page of a feed at a host: the changes after the feed's places, up to the end of the log or a limit.

A change is given once a majority of slots has it. The entries of the replica's log come in order, whole, and from the
first one that the feed's clock does not cover. So a version of a key never follows a later one, as long as the feed
stays at this replica. Another replica has the same records in another order. Therefore, until its log has passed the
feed's clock, an entry gives the present records of its keys or nothing: no later one was given before.

A snapshot reads its keys in order, and at the same time the log from the snapshot's beginning. The present records at
the cursor are given once the feed's clock covers them. So all that was given is in the clock.

A page waits for nothing. Where it has come to the end, the asking node is told once when there may be more.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import GossipKVError, NotReady, NotServed, TooOld
from gossipkv.replication.changes.places import ConfigClock
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, slots_needed
from gossipkv.replication.replica.keys import ORDER_BYTES, RECORD, KeyBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.changes.places import FeedPlace
    from gossipkv.replication.deadlines import ParkedRequests
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.storage.engine.log_reader import Operations

    PlaceResult = tuple[FeedPlace, int] | GossipKVError

    class FeedPorts(ReplicationPorts, Protocol):
        """The store, and the requests that wait."""

        waiting: ParkedRequests


TELL_S: Final = 0.005  # Changes of so long are told together: pages of single changes cost most.
PAUSE_S: Final = 0.05  # Time between two words to a node, so that pages of a busy table are large.
MAX_READS: Final = 8  # Reads of the log for a page; each reads a part of 128 KiB.
SCAN_ROWS: Final = 256  # Rows of a snapshot that are read at a time.
NUMBER_BITS: Final = 20  # They count what a node missed, below the time at which the feeds began.
# States of a place after a page: it has all; it has more at once; or more, which a majority lacks yet.
AT_END: Final = 0
HAS_MORE: Final = 1
WAITS: Final = 2


@final
class ChangeFeeds:
    """The shared state of a node's feeds: the nodes to tell of changes."""

    def __init__(self, replicas: ReplicaSet, outside: FeedPorts) -> None:
        self.replicas, self.outside = replicas, outside
        # Called with a node, and the table and number of each partition that has changed.
        self.tell: Callable[[bytes, Sequence[tuple[bytes, int]]], object] = lambda _node, _partitions: None
        self.lost: Callable[[bytes], object] = lambda _node: None  # Called when the connection to a node has ended.
        # The nodes to tell, each with the oldest clock that a majority had when a feed of the node waited.
        self._watched: dict[Replica, dict[bytes, ConfigClock]] = {}
        self._began_ms, self._missed = outside.now_ms(), Counter[bytes]()  # By node: how often it was told in vain.
        self._confirming = set[bytes]()  # The nodes that could confirm at the last look.
        self._moving: dict[Replica, None] = {}  # Watched replicas that may have more for a majority.
        self._told_at = -inf
        replicas.watchers.append((self._moved, self._watched))

    def stable(self, replica: Replica) -> ConfigClock:
        """Return the clock of the local records that a majority of slots has."""
        acks, counts = self.replicas.acks[replica], clock.entries(replica.synced)
        reached = ((origin, min(count, acks.reached(MAJORITY, origin=origin))) for origin, count in counts)
        return ConfigClock(clock.of(reached), replica.config)

    def continues(self, replica: Replica, delivered: ConfigClock, there: ConfigClock) -> bool:
        """Return True if a feed lacks no record before a place in the log that has the clock `there`.

        Assignments that have ended since must be known to have ended at the counters that the feed has.
        """
        if not delivered.covers(there):
            return False
        if delivered.config >= there.config:
            return True
        past = self.replicas.beginnings.past(replica, delivered.config)
        named = {origin for origin, _ in clock.entries(there.counters)}
        return past is not None and all(
            origin in named or clock.counter(delivered.counters, origin) == count
            for _, last in past
            for origin, count in clock.entries(last)
        )

    def missed(self, node: bytes) -> None:
        """Note that a node could not be told."""
        self._missed[node] += 1

    def told(self, node: bytes) -> int:
        """Return a number that is another one if the node was not told of a change, or if these feeds began anew.

        Each waiting node asks for it again and again, so that replicas that lost their majority are noticed here.
        """
        lost, self._confirming = self._confirming, {*filter(self.replicas.confirms, self.replicas.peers)}
        for replica in self._watched if lost - self._confirming else ():
            self._look_soon(replica)
        return (self._began_ms << NUMBER_BITS) + self._missed[node]

    def has_majority(self, replica: Replica) -> bool:
        """Return True if enough hosts of a replica are connected to it."""
        confirming = self.replicas.acks[replica].confirming(self.replicas.confirms)
        return confirming >= slots_needed(MAJORITY, replica.quorum.slots)

    def watch(self, replica: Replica, node: bytes, stable: ConfigClock) -> None:
        """Tell a node once, soon after a majority has more than a clock, or the config, role or majority changes.

        A feed of the node that has seen less waits as well, so an older clock stays.
        """
        self._watched.setdefault(replica, {}).setdefault(node, stable)
        if replica.synced != stable.counters:
            self._look_soon(replica)

    def _moved(self, replica: Replica) -> None:
        if replica in self._watched:
            self._look_soon(replica)

    def _look_soon(self, replica: Replica) -> None:
        if not self._moving:
            self.outside.waiting.begin(max(self.outside.now() + TELL_S, self._told_at + PAUSE_S), 0, self._look)
        self._moving[replica] = None

    def _look(self) -> None:
        """Tell of replicas of which a majority has more, and look again at those of which it will have."""
        changed: dict[bytes, list[tuple[bytes, int]]] = {}
        moving, self._moving, self._told_at = self._moving, {}, self.outside.now()
        for replica in moving:
            is_here = replica in self.replicas.acks and not replica.rules.has_departed
            stable = self.stable(replica) if is_here and self.has_majority(replica) else None
            watchers = self._watched.pop(replica, {})
            for node, seen in watchers.items():
                if seen == stable:
                    self.watch(replica, node, seen)
                else:
                    changed.setdefault(node, []).append(replica.partition)
        for node, partitions in changed.items():
            self.tell(node, partitions)


@final
class _PlaceReader:
    """The reading of a place at its replica here."""

    def __init__(self, number: int, place: FeedPlace, replica: Replica, stable: ConfigClock) -> None:
        self.number, self.place, self.replica = number, place, replica
        self.stable = stable  # A majority has all up to this clock.
        self.waits = False  # The page has come to records that a majority lacks.
        self.error: GossipKVError | None = None  # The replica cannot continue the place, from here on.
        self.has_given = False

    def is_stable(self, reached: bytes) -> bool:
        """Return True if a majority has all up to a clock by any config up to this one."""
        return clock.covers(self.stable.counters, clock.named(reached, self.replica.named))


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
        watcher: bytes,
    ) -> None:
        """`limits`: the number and the bytes of changes that fill the page; `watcher`: the node to tell of more."""
        self.count = 0  # Changes so far.
        self._places = places
        self.results: list[PlaceResult] = [(place, AT_END) for place in places]
        self._feeds, self._table, self._bounds = feeds, table, bounds
        self._most, self._most_bytes = limits
        self._watcher = watcher
        self._complete: Callable[[ChangePage], object]
        self._packer = msgpack.Packer(autoreset=False)
        self._bytes = self._reads = 0
        self._readers: dict[Replica, _PlaceReader] = {}

    @property
    def number(self) -> int:
        """The number of what the node was told, as of now."""
        return self._feeds.told(self._watcher)

    @property
    def body(self) -> bytes:
        """The changes as MessagePack, one after the other: `[key, value or nil, expires at or nil]`."""
        packed: bytes = self._packer.bytes()
        return packed

    def begin(self, complete: Callable[[ChangePage], object]) -> None:
        """Begin; the page completes at once, or after it has read the log."""
        self._complete = complete
        for number, place in enumerate(self._places):
            try:
                replica = self._replica(place)
            except NotServed as error:
                self.results[number] = error
            else:
                self._readers[replica] = _PlaceReader(number, place, replica, self._feeds.stable(replica))
        self._step()

    @property
    def _is_full(self) -> bool:
        return self.count >= self._most or self._bytes >= self._most_bytes

    def _step(self) -> None:
        """Give entries in memory; then read the log, or complete."""
        tail = self._feeds.replicas.tail
        behind = {replica: reader for replica, reader in self._readers.items() if self._is_behind(reader)}
        near = {replica: reader for replica, reader in behind.items() if reader.place.position >= tail.first}
        start = min((reader.place.position for reader in near.values()), default=tail.end)
        self._give(near, tail.after(start), tail.end)
        far = {replica: reader for replica, reader in behind.items() if replica not in near}
        if far and not self.count and self._reads < MAX_READS:
            self._reads += 1
            spaces, start = {replica.space for replica in far}, min(reader.place.position for reader in far.values())
            self._feeds.outside.read_log(frozenset(spaces), start, partial(self._on_log, far))
            return
        for reader in self._readers.values():
            state = HAS_MORE if reader.has_given and reader.error else reader.error or self._ended(reader)
            self.results[reader.number] = state if isinstance(state, GossipKVError) else (reader.place, state)
            if state in {AT_END, WAITS}:
                self._feeds.watch(reader.replica, self._watcher, reader.stable)
        self._complete(self)

    def _on_log(
        self, far: dict[Replica, _PlaceReader], batches: Sequence[tuple[int, Operations]] | None, position: int
    ) -> None:
        if batches is None:
            for reader in far.values():
                reader.error = _too_old(reader.place)
        entries = self._feeds.replicas.spaces.read(batches or (), lambda replica, _: replica in far)
        self._give(far, entries, position)
        self._step()

    # -- one replica -------------------------------------------------------------------------------------------------

    def _replica(self, place: FeedPlace) -> Replica:
        """Find the local replica of a place. Raises NotServed."""
        replica = self._feeds.replicas.by_partition.get((self._table, place.partition))
        if replica is None or replica.role is None or not replica.role.available or replica.rules.has_departed:
            raise NotServed("the node does not hold the partition, or not yet", {"partition": place.partition})
        return replica

    def _is_behind(self, reader: _PlaceReader) -> bool:
        """Return True if the log may have entries to give; note if the replica cannot continue the place."""
        if reader.error is not None:
            return False
        place, tail = reader.place, self._feeds.replicas.tail
        try:
            self._check(reader.replica, place)
        except GossipKVError as error:
            reader.error = error
            return False
        if not place.config:  # The feed begins at this moment, once a majority has all of it.
            place.delivered = _synced(reader.replica)
            place.node, place.space, place.position = self._feeds.replicas.me, reader.replica.space, tail.end
        reader.waits |= not reader.is_stable(place.counters)
        self._locate(reader)
        return not reader.waits and place.position < tail.end

    def _check(self, replica: Replica, place: FeedPlace) -> None:
        """Check that a replica may continue a place.

        Raises:
            NotServed: the replica is gone.
            NotReady: the replica lacks records that the feed has seen, or too many hosts.
            TooOld: the range was force-joined since.
        """
        details = {"partition": place.partition}
        if self._replica(place) is not replica:
            raise NotServed("the replica was replaced", {**details})
        if not self._feeds.has_majority(replica):
            raise NotReady("too few hosts of the partition are connected to this replica", {**details})
        if not _synced(replica).has_all(place.delivered):
            raise NotReady("this replica lags behind the feed", {**details})
        counters = dict(clock.entries(place.counters))
        if any(origin in counters and counters[origin] != kept for origin, kept in replica.rules.ends):
            raise TooOld("the range was re-created by `force-join` since the token was given", {**details})

    def _locate(self, reader: _PlaceReader) -> None:
        """Find the position in the local log from which to read."""
        place, replica, feeds, tail = reader.place, reader.replica, self._feeds, self._feeds.replicas.tail
        me, floor = feeds.replicas.me, max(replica.made_at, min(feeds.outside.log_floor(), tail.first))
        if place.node != me or place.space not in {0, replica.space} or place.position < floor:
            place.node, place.space, place.position = me, 0, floor
        for position, counters, config in chain([(tail.end, *_synced(replica))], tail.marks(replica)):
            if position < place.position:
                return
            if feeds.continues(replica, place.delivered, ConfigClock(counters, config)):
                place.space, place.position = replica.space, position
                return

    def _ended(self, reader: _PlaceReader) -> int | TooOld:
        """Give present records of a snapshot; return the state of the place."""
        place, here = reader.place, _synced(reader.replica)
        state = WAITS if reader.waits else HAS_MORE if place.position < self._feeds.replicas.tail.end else AT_END
        if state == AT_END:
            if not place.space or not place.delivered.covers(here):
                return _too_old(place)
            place.delivered, place.space = here, reader.replica.space
        # With equal configs, assignments that the clock does not name have ended.
        if place.cursor is not None and place.config == here.config and reader.is_stable(place.counters):
            state = state if self._scan(reader, place.cursor) else HAS_MORE
        return state

    def _scan(self, reader: _PlaceReader, cursor: bytes) -> bool:
        """Give the present records behind a cursor; return False if there are more to give."""
        place, outside, space = reader.place, self._feeds.outside, reader.replica.space
        bounds = reader.replica.bounds.clip(KeyBounds(max(self._bounds.first, cursor), self._bounds.end))
        start, end = bounds.records
        more: bytes | None = start if start < end else None
        while more is not None and not self._is_full:
            rows, more = outside.scan(space, more, end, reverse=False, limit=min(SCAN_ROWS, self._most - self.count))
            for key, data in rows:
                if not place.delivered.covers(ConfigClock(record.dot(data), 0)):
                    place.cursor = key[len(RECORD) :]  # Go on here once the log has given what is before.
                    return True
                if not record.is_deleted(data) and not 0 < record.expires_ms(data) <= outside.now_ms():
                    self._add(key[len(RECORD) :], data)
        place.cursor = None if more is None else more[len(RECORD) :]
        return more is None

    def _add(self, key: bytes, data: bytes | None) -> None:
        value = expires_ms = None
        if data is not None and not record.is_deleted(data):
            value, expires_ms = record.value(data), record.expires_ms(data) or None
        self._packer.pack((key, value, expires_ms))
        self.count += 1
        self._bytes += len(key) + len(value or b"")

    # -- entries of the log ------------------------------------------------------------------------------------------

    def _give(self, readers: Mapping[Replica, _PlaceReader], entries: Iterable[LogEntry], reached: int) -> None:
        """Give entries, which come in the order of the log up to a position, until the page is full."""
        at = 0
        stopped: set[Replica] = set()
        for entry in entries:
            reader = readers.get(entry.replica)
            if reader is None or entry.replica in stopped:
                continue
            if entry.position != at and self._is_full:
                reached = entry.position - 1
                break
            at = entry.position
            if not self._take(reader, entry):
                stopped.add(entry.replica)
                reader.place.position = max(reader.place.position, at - 1)
        for replica in readers.keys() - stopped:
            readers[replica].place.position = max(readers[replica].place.position, reached)

    def _take(self, reader: _PlaceReader, entry: LogEntry) -> bool:
        """Give an entry; return False if it has to wait for a majority, or cannot follow."""
        place, delivered, config = reader.place, reader.place.delivered, entry.config
        before, after = ConfigClock(entry.before, config), ConfigClock(entry.after, config)
        is_ahead = before == delivered
        if not is_ahead:
            if not place.space and self._feeds.continues(reader.replica, delivered, before):
                place.space = reader.replica.space
            if delivered.covers(after):
                return True
            if not place.space or not delivered.covers(before):
                reader.error = _too_old(place)
                return False
            is_ahead = before.has_all(delivered)
        rows = [row for row in entry.records if self._bounds.has(row[0])]
        given = self._given(reader, rows, config, is_ahead=is_ahead) if reader.is_stable(entry.after) else None
        if given is None:
            reader.waits = True
            return False
        for key, data in given:
            self._add(key, data)
        reader.has_given |= bool(given)
        place.delivered = after if is_ahead else delivered.merge(after)
        place.space = reader.replica.space
        return True

    def _given(
        self, reader: _PlaceReader, rows: Sequence[tuple[bytes, bytes]], config: int, *, is_ahead: bool
    ) -> Sequence[tuple[bytes, bytes | None]] | None:
        """Return those of an entry's records that may follow; None: wait until a majority has later ones."""
        if is_ahead:
            return rows
        found: list[tuple[bytes, bytes | None]] = []
        for key, data in rows:
            if reader.place.delivered.covers(ConfigClock(record.dot(data), config)):
                continue
            present = self._feeds.outside.get(reader.replica.space, RECORD + key)
            if present is None:  # A deleted or expired record has left the disk; its own entry tells so.
                found += [(key, None)] * (record.is_deleted(data) or record.expires_ms(data) > 0)
            elif present[:ORDER_BYTES] == data[:ORDER_BYTES]:
                found.append((key, data))
            elif not reader.is_stable(record.dot(present)):
                return None
        return found


def _synced(replica: Replica) -> ConfigClock:
    return ConfigClock(replica.synced, replica.config)


def _too_old(place: FeedPlace) -> TooOld:
    return TooOld("the log of this node begins after the place of the feed", {"partition": place.partition})
