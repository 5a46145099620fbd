"""A page of a feed at a host: the changes after the feed's places, up to the end of the log or a limit.

A change is given once a majority of slots has it. The entries of the replica's log come in order, whole, and from the
first one that the feed's clock does not cover. So a version of a key never follows a later one, as long as the feed
stays at this replica. Another replica has the same records in another order. Therefore, until its log has passed all
that the feed may have shown, an entry gives the present record of a key or nothing: no later one was shown before.

A snapshot gives the present records page by page, and then the log since its first page, in the same way.

A page waits for nothing. Where it has come to the end, the asking node is told once when there may be more.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.errors import GossipKVError, NotReady, NotServed, TooOld
from gossipkv.replication.changes.marks import LogMarks
from gossipkv.replication.changes.places import NOTHING, ConfigClock
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY, slots_needed
from gossipkv.replication.replica.keys import ORDER_BYTES, RECORD, KeyBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.changes.places import FeedPlace
    from gossipkv.replication.deadlines import ParkedRequests
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.storage.engine.log_reader import Operations

    class FeedPorts(ReplicationPorts, Protocol):
        """The store, and the requests that wait."""

        waiting: ParkedRequests


TELL_S: Final = 0.005  # Changes of so long are told together: pages of single changes cost most.
PAUSE_S: Final = 0.05  # Time between two words to a node, so that pages of a busy table are large.
MAX_READS: Final = 8  # Reads of the log at a time, and for a page; each holds a part of 128 KiB.
SCAN_ROWS: Final = 256  # Rows of a snapshot that are read at a time.


@final
class ChangeFeeds:
    """The shared state of a node's feeds: nodes to tell of changes, and reads of the log."""

    def __init__(self, replicas: ReplicaSet, outside: FeedPorts) -> None:
        self.replicas, self.outside = replicas, outside
        self.marks = LogMarks(replicas, outside)
        # Called with a node, and the table and number of each partition that has changed.
        self.tell: Callable[[bytes, Sequence[tuple[bytes, int]]], object] = lambda _node, _partitions: None
        self.lost: Callable[[bytes], object] = lambda _node: None  # Called when the connection to a node has ended.
        self._watched: dict[Replica, dict[bytes, None]] = {}  # The nodes to tell.
        self._seen: dict[Replica, ConfigClock] = {}  # The stable clocks of watched replicas.
        self._awaited: set[tuple[Replica, int]] = set()  # Origins of which a host's confirmation is awaited.
        self._changed: dict[bytes, list[tuple[bytes, int]]] = {}  # By node: partitions to tell soon.
        self._told_at = -inf
        self._reads = 0
        self._unread: deque[Callable[[], object]] = deque()
        replicas.watchers.append((self._moved, self._watched))

    def stable(self, replica: Replica) -> ConfigClock:
        """Return the clock of the local records that a majority of slots has."""
        acks, counts = self.replicas.acks[replica], clock.entries(replica.synced)
        reached = ((origin, min(count, acks.reached(MAJORITY, origin=origin))) for origin, count in counts)
        return ConfigClock(clock.of(reached), replica.config)

    def watch(self, replica: Replica, node: bytes, stable: ConfigClock) -> None:
        """Tell a node once, soon after a majority has more than its present clock, or the config or role changes."""
        self._watched.setdefault(replica, {})[node] = None
        self._await(replica, stable)

    def disconnected(self, node: bytes) -> None:
        """Tell a node nothing more, which will not tell this one either."""
        self._changed.pop(node, None)
        for watchers in self._watched.values():
            watchers.pop(node, None)
        self.lost(node)

    def _await(self, replica: Replica, stable: ConfigClock) -> None:
        """Await the confirmations of records that too few hosts have."""
        self._seen[replica] = stable
        if stable.counters == replica.synced:
            return
        for origin, count in clock.entries(replica.synced):
            if clock.counter(stable.counters, origin) < count and (replica, origin) not in self._awaited:
                self._awaited.add((replica, origin))
                # Local writes may wait for later counters already, and waits are in the order of counters.
                counter, confirmed = clock.counter(replica.appended, origin), partial(self._confirmed, replica, origin)
                self.replicas.acks[replica].wait(MAJORITY, counter, confirmed, origin=origin)

    def _confirmed(self, replica: Replica, origin: int) -> None:
        self._awaited.discard((replica, origin))
        self._moved(replica)

    def _moved(self, replica: Replica) -> None:
        if replica not in self._watched:
            return
        is_here = replica in self.replicas.acks and not replica.rules.has_departed
        if is_here and (stable := self.stable(replica)) == self._seen[replica]:
            self._await(replica, stable)
            return
        del self._seen[replica]
        if not self._changed:
            self.outside.waiting.begin(max(self.outside.now() + TELL_S, self._told_at + PAUSE_S), 0, self._tell)
        for node in self._watched.pop(replica):
            self._changed.setdefault(node, []).append(replica.partition)

    def _tell(self) -> None:
        changed, self._changed, self._told_at = self._changed, {}, self.outside.now()
        for node, partitions in changed.items():
            self.tell(node, partitions)

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
        watcher: bytes,
    ) -> None:
        """`limits`: the number and the bytes of changes that fill the page; `watcher`: the node to tell of more."""
        self.count = 0  # Changes so far.
        self.places = places
        self.refused: dict[int, GossipKVError] = {}  # By the index of the place.
        self.unread: set[int] = set()  # Places with more that the page has not read.
        self._feeds, self._table, self._bounds = feeds, table, bounds
        self._most, self._most_bytes = limits
        self._watcher = watcher
        self._complete: Callable[[ChangePage], object]
        self._packer = msgpack.Packer(autoreset=False)
        self._bytes = self._reads = 0
        self._replicas: dict[Replica, int] = {}  # The replicas of places, by index.
        self._waits: dict[Replica, ConfigClock] = {}  # A majority lacks the next entry by this stable clock.
        self._renamed: set[Replica] = set()  # The next entry in memory is of an earlier config.
        self._stable: dict[Replica, ConfigClock] = {}  # The stable clocks of this step.

    @property
    def body(self) -> bytes:
        """The changes as MessagePack, one after the other: `[key, value or nil, expires at or nil]`."""
        packed: bytes = self._packer.bytes()
        return packed

    def begin(self, complete: Callable[[ChangePage], object]) -> None:
        """Begin; the page completes at once, or after it has read the log."""
        self._complete = complete
        for number, place in enumerate(self.places):
            try:
                replica = self._replica(place)
                self._check(replica, place)
            except GossipKVError as error:
                self.refused[number] = error
            else:
                self._replicas[replica] = number
        self._step()

    @property
    def _is_full(self) -> bool:
        return self.count >= self._most or self._bytes >= self._most_bytes

    def _step(self) -> None:
        """Give entries in memory; then read the log, or complete."""
        self._stable.clear()
        behind, tail = self._behind(), self._feeds.replicas.tail
        near = {
            replica: number
            for replica, number in behind.items()
            if self.places[number].position >= max(tail.first, 1) and replica not in self._renamed
        }
        entries = tail.after(min((self.places[number].position for number in near.values()), default=tail.end))
        self._give(near, entries, tail.end, in_memory=True)
        far = [
            replica
            for replica, number in behind.items()
            if (replica not in near or replica in self._renamed) and not self._must_wait(replica)
        ]
        if far and not self.count and self._reads < MAX_READS:
            self._read(far)
            return
        for replica, number in self._replicas.items():
            if replica in behind and self.places[number].position < tail.end and not self._must_wait(replica):
                self.unread.add(number)
            elif number not in self.unread and number not in self.refused:
                self._feeds.watch(replica, self._watcher, self._stable_of(replica))
        self._complete(self)

    def _behind(self) -> dict[Replica, int]:
        """Return the replicas with entries after their places."""
        behind: dict[Replica, int] = {}
        for replica, number in self._replicas.items():
            try:
                if number not in self.refused and self._look(replica, self.places[number]):
                    behind[replica] = number
            except GossipKVError as error:
                self.refused[number] = error
        return behind

    def _must_wait(self, replica: Replica) -> bool:
        """Return True if a majority still lacks the entry at which the page stopped."""
        return self._waits.get(replica) == self._stable_of(replica)

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
        here, delivered = _synced(replica), place.delivered or NOTHING
        if not here.has_all(delivered) or not here.has_all(place.shown):
            raise NotReady("this replica lags behind the feed", {**details})
        counters = dict(clock.entries(delivered.counters))
        if any(origin in counters and counters[origin] != kept for origin, kept in replica.rules.ends):
            raise TooOld("the range was re-created by `force-join` since the token was given", {**details})

    def _look(self, replica: Replica, place: FeedPlace) -> bool:
        """Return True if a replica has entries after a place. Raises GossipKVError: it cannot continue the place."""
        if self._replica(place) is not replica:
            raise NotServed("the replica was replaced", {"partition": place.partition})
        here, tail = _synced(replica), self._feeds.replicas.tail
        if place.delivered is None:
            if place.shown == NOTHING:  # The feed begins at this moment, once a majority has all of it.
                place.shown, place.space, place.position = here, replica.space, tail.end
            if not self._is_stable(replica, place.shown.counters):
                return False
            place.delivered = place.shown
        if place.cursor is not None and not self._scan(replica, place):
            return False
        if place.space != replica.space or place.position < max(replica.made_at, self._feeds.outside.log_floor()):
            place.space = place.position = 0  # `_read` finds the position.
        has_read = place.position >= max(tail.end, 1)
        if place.delivered.covers(here) and (has_read or self._feeds.marks.knows_ends(replica, place.delivered, here)):
            place.delivered, place.shown = here, here
            place.space, place.position = replica.space, tail.end
            return False
        return True

    def _is_stable(self, replica: Replica, reached: bytes) -> bool:
        """Return True if a majority has all up to a clock, which names assignments by any config up to this one."""
        stable = self._stable_of(replica).counters
        return clock.covers(stable, reached) or clock.covers(stable, clock.named(reached, replica.named))

    def _stable_of(self, replica: Replica) -> ConfigClock:
        if (stable := self._stable.get(replica)) is None:
            stable = self._stable[replica] = self._feeds.stable(replica)
        return stable

    def _scan(self, replica: Replica, place: FeedPlace) -> bool:
        """Give present records; return True at the end of the snapshot."""
        assert place.cursor is not None
        outside = self._feeds.outside
        start, end = replica.bounds.clip(KeyBounds(max(self._bounds.first, place.cursor), self._bounds.end)).records
        more: bytes | None = start if start < end else None
        place.shown = place.shown.merge(self._stable_of(replica))
        while more is not None and not self._is_full:
            rows, more = outside.scan(replica.space, more, end, reverse=False, limit=SCAN_ROWS)
            for key, data in rows:
                if not self._is_stable(replica, record.dot(data)):
                    place.cursor = key[len(RECORD) :]  # Go on here once a majority has the record.
                    return False
                if not record.is_deleted(data) and not 0 < record.expires_ms(data) <= outside.now_ms():
                    self._add(key[len(RECORD) :], data)
        place.cursor = None if more is None else more[len(RECORD) :]
        if more is not None:
            self.unread.add(self._replicas[replica])
        return more is None

    def _add(self, key: bytes, data: bytes | None) -> None:
        """Add a change; `data`: the record, None if it is gone."""
        value = expires_ms = None
        if data is not None and not record.is_deleted(data):
            value, expires_ms = record.value(data), record.expires_ms(data) or None
        self._packer.pack((key, value, expires_ms))
        self.count += 1
        self._bytes += len(key) + len(value or b"")

    # -- entries of the log ------------------------------------------------------------------------------------------

    def _give(self, behind: dict[Replica, int], entries: Iterable[LogEntry], reached: int, *, in_memory: bool) -> None:
        """Give entries, which come in the order of the log up to a position, until the page is full."""
        stopped: set[Replica] = set()
        at = 0
        for entry in entries:
            replica, position = entry.replica, entry.position
            number = behind.get(replica)
            if number is None or replica in stopped:
                continue
            # A child's entry from a read of the log begins at the first batch of the page (`Spaces.read`), which may be
            # before the place, and goes on after it: `_take` passes what the feed has.
            if in_memory and position <= self.places[number].position:
                continue
            if position != at and self._is_full:
                reached = position - 1
                break
            at = position
            config = replica.config if in_memory else entry.config
            if in_memory and clock.named(entry.after, replica.named) != entry.after:
                self._renamed.add(replica)  # The log has the config of the entry.
            elif self._take(replica, number, entry, config):
                continue
            stopped.add(replica)
            self.places[number].position = max(self.places[number].position, position - 1)
        for replica, number in behind.items():
            if replica not in stopped:
                self.places[number].position = max(self.places[number].position, reached)

    def _take(self, replica: Replica, number: int, entry: LogEntry, config: int) -> bool:
        """Give an entry; return False if it has to wait for a majority, or cannot follow."""
        place = self.places[number]
        before, after = ConfigClock(entry.before, config), ConfigClock(entry.after, config)
        assert place.delivered is not None
        is_ahead = before == place.delivered == place.shown
        if not is_ahead:
            if place.delivered.covers(after):
                return True
            if not place.delivered.covers(before):
                self.refused[number] = _too_old(place)
                return False
            is_ahead = before.has_all(place.delivered) and before.has_all(place.shown)
        rows = [row for row in entry.records if self._bounds.has(row[0])]
        added = None
        if self._is_stable(replica, entry.after):
            added = rows if is_ahead else self._present(replica, place, rows, config)
        if added is None:
            self._waits[replica] = self._stable_of(replica)
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
            if present is None:  # A deleted or expired record has left the disk: no host lacks it.
                place.shown = place.shown.merge(self._stable_of(replica))
                found.append((key, None))
            elif present[:ORDER_BYTES] == data[:ORDER_BYTES]:
                found.append((key, present))
            elif not self._is_stable(replica, record.dot(present)):
                return None
        return found

    def _read(self, far: Sequence[Replica]) -> None:
        """Read the log for replicas whose entries are not in memory."""
        self._reads += 1
        unplaced = [replica for replica in far if not self.places[self._replicas[replica]].position]
        if unplaced:
            self._feeds.marks.look(unplaced, partial(self._found, unplaced))
            return
        at = min(self.places[self._replicas[replica]].position for replica in far)
        spaces = frozenset(replica.space for replica in far)
        self._feeds.read_log(spaces, at, partial(self._on_log, far))

    def _found(self, unplaced: Sequence[Replica]) -> None:
        """Note the positions of replicas in the log, and go on."""
        for replica in unplaced:
            place = self.places[self._replicas[replica]]
            assert place.delivered is not None
            position = self._feeds.marks.position(replica, place.delivered)
            if position is None:
                self.refused[self._replicas[replica]] = _too_old(place)
            else:
                place.space, place.position = replica.space, position
        self._step()

    def _on_log(self, far: Sequence[Replica], batches: Sequence[tuple[int, Operations]] | None, position: int) -> None:
        behind = {replica: self._replicas[replica] for replica in far}
        self._renamed.difference_update(far)
        if batches is None:
            self.refused |= {number: _too_old(self.places[number]) for number in behind.values()}
        entries = self._feeds.replicas.spaces.read(batches or (), lambda replica, _: replica in behind)
        self._give(behind, entries, position, in_memory=False)
        self._step()


def _synced(replica: Replica) -> ConfigClock:
    return ConfigClock(replica.synced, replica.config)


def _too_old(place: FeedPlace) -> TooOld:
    return TooOld("the log of this node begins after the place of the feed", {"partition": place.partition})
