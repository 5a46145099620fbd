"""The log sender: sends one other node the entries of the partitions that both nodes hold.

The store's log is the send buffer. `place` is the resume position: the target's reported clocks cover every entry up to
there. It is saved, so a restarted sender resumes there.

* A sender whose target lacks nothing sends local writes as they are synced; origins send their own records.
* An entry that stays at the resume position for the relay time makes the sender *go back*: it sends all uncovered
  entries from there, whatever their origin. So records of dead nodes still reach all. Entries under way do not count;
  if the link to an origin is broken, the sender goes back at once.
* After that, entries of that origin and partition are relayed at once until the target has lacked none for a while.
* A replica that cannot accept entries, or lacks earlier ones, gets its own *cursor* and does not hold up the others.
  Lagging replicas of one space share a cursor, so their log is read once.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from gossipkv.replication._replication import EntryFeed, first_batch
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.status import ReplicaStatus, is_served
from gossipkv.replication.stream.cursors import CatchUpCursor, LogRead, OutgoingEntries
from gossipkv.replication.stream.log_tail import size_bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gossipkv.replication._replication import LogEntry, OpenEntry
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.stream.log_tail import Beginnings, LogTail

    Origins = Callable[[Replica, int], bool]  # True if the link to an origin's node is broken.

# Limits of one message: encoding or accepting a larger one would delay other peers.
MESSAGE_BYTES: Final = 128 << 10
MESSAGE_ENTRIES: Final = 256
MAX_UNDER_WAY: Final = 4
MAX_OF_CURSORS: Final = 2  # Catch-up cursors may have so many of the messages under way.
MAX_LOOKS: Final = 4  # Cursors for which the log is read at a time.
MAX_OPEN: Final = 1 << 16  # Entries passed and not covered by the target; further ones wait in the log.
MAX_SLICES: Final = 64  # Parts of the log that are read at a time: some 8 MiB.
RELAYED_FOR: Final = 5  # Keep relaying for so many relay times.
_REPLICA: Final = attrgetter("replica")


@final
class LogSender(EntryFeed):
    """The sender of log entries to one node."""

    def __init__(
        self, tail: LogTail, place: int, *, relay_s: float, is_broken: Origins, beginnings: Beginnings
    ) -> None:
        self.statuses = {}
        self.kept_positions: dict[int, int] = {}  # By the target's assignment: saved cursor positions.
        self._tail = tail
        self._place = place  # The place before the connection, while the target lacks entries from before it.
        self._relay_s = relay_s
        self._is_broken = is_broken
        self._beginnings = beginnings
        self._connected = False
        self._back = False
        self._shared = CatchUpCursor(place)
        self._cursors = {}
        self._lagging = {}
        self._joined: dict[int, CatchUpCursor] = {}  # By space: the newest cursor that replicas share.
        self._late_from = place  # Start of the cursor of a replica that the target reports late.
        self._gap = {}  # The log has the entries that these replicas lack from `place` on.
        self._since = 0.0
        self._messages: dict[int, tuple[CatchUpCursor, list[OpenEntry]]] = {}  # Those under way, by number.
        self._under_way = {}
        self._number = 0
        self._begun = False  # A cursor was begun: `next` looks at the cursors once more.
        self.turned: dict[Replica, None] = {}  # Replicas newly below or no longer below, to be reported.
        self._relayed = {}
        self._strangers = {}
        # Resume positions of split replicas that the target has not reported yet.
        self._resumes: dict[Replica, int] = {}

    # -- events ------------------------------------------------------------------------------------------------------

    def connected(self, statuses: Mapping[Replica, ReplicaStatus], now: float, *, goes_back: bool) -> None:
        """Begin a connection with the target's status; `goes_back`: go back now, not only if nobody else feeds."""
        positions, place = {**self.kept_positions, **self.positions}, self.place
        self._connected, self.statuses = True, dict(statuses)
        self._messages.clear()
        self._under_way.clear()
        self._relayed.clear()
        hosts = {replica: status for replica, status in statuses.items() if replica.feeds(status.assignment)}
        self._strangers = {replica: None for replica in statuses if replica not in hosts}
        joining = {replica: status for replica, status in hosts.items() if status.span is not None}
        lacking = [replica for replica in hosts if replica not in joining and not self._covers(replica, replica.synced)]
        self._gap = {replica: replica.synced for replica in lacking}
        self.turned |= {replica: None for replica, cursor in self._cursors.items() if cursor.needs}
        self._cursors, self._lagging, self._joined = {}, {}, {}
        for replica, status in hosts.items():
            at = positions.get(status.assignment)
            if at is None and replica in self._gap and replica in self._resumes:
                at = self._resumes.pop(replica)
            if at is None and replica in joining:
                at = self._beginnings.of(replica, status.assignment)
            if at is not None or not status.can_take:
                self._begin(replica, place if at is None else at, is_alone=not status.can_take)
        self.kept_positions = {}
        self._late_from = self._place = place
        self._back, self._since = goes_back or not self._gap, now
        self._shared.restart(place if self._back else self._tail.end)

    def disconnected(self) -> None:
        """Stop sending; entries under way may have arrived or not."""
        self._connected = False

    def hears(self, replica: Replica, status: ReplicaStatus, now: float) -> None:
        """Apply a replica's status; over the two links an older one may arrive later."""
        before = self.statuses.get(replica)
        is_known = before is not None and before.assignment == status.assignment
        if replica in self._strangers if is_known else not replica.feeds(status.assignment):
            self.let_go(replica)
            self.statuses[replica] = status
            self._strangers[replica] = None
            return
        self._strangers.pop(replica, None)
        if before is not None and is_known:
            merged = clock.merge(before.clock, status.clock)
            if (before.span is None) is not (status.span is None):
                status = self._completed(replica, status)
            if merged != before.clock and replica in self._gap:
                self._since = now
            if merged != status.clock or status.config < before.config:
                status = status._replace(clock=merged, config=max(status.config, before.config))
        elif self._connected:
            self._shared.look_anew()  # The running read lacks this replica.
            if not clock.covers(status.clock, replica.synced):
                self._begin_late(replica, status)
        self.statuses[replica] = status
        self._resumes.pop(replica, None)
        if not status.can_take:
            self._stay_alone(replica)
        if replica in self._gap and self._covers(replica, self._gap[replica]):
            del self._gap[replica]

    def _completed(self, replica: Replica, status: ReplicaStatus) -> ReplicaStatus:
        """Return the status of a target that has become complete, or was before, and stays so."""
        if status.span is not None:
            return status._replace(span=None)
        # The target took no entries while its load ended; without a cursor, this node did not hear of that.
        if self._connected and replica not in self._cursors and not clock.covers(status.clock, replica.synced):
            self._begin(replica, self.place)
        return status

    def adopted(self, replica: Replica, now: float) -> None:
        """Re-evaluate the target's status after a replica adopted a placement or departed."""
        status = self.statuses.get(replica)
        if status is None:
            return
        if replica.feeds(status.assignment) is (replica in self._strangers):
            self.let_go(replica)
            self.hears(replica, status, now)
        if (available := is_served(status.assignment, replica)) is not status.available:
            self.statuses[replica] = status._replace(available=available)

    def let_go(self, replica: Replica) -> None:
        """Forget a replica that is gone here or at the target."""
        self.statuses.pop(replica, None)
        self._gap.pop(replica, None)
        self._leave(replica)
        self._strangers.pop(replica, None)
        self._resumes.pop(replica, None)

    def divided(self, replica: Replica, children: Iterable[Replica]) -> None:
        """Replace a split replica by its children; each resumes at its position once the target reports the child."""
        cursor = self._cursors.get(replica)
        items = [item.position - 1 for item in self._shared.open if item.replica is replica]
        at = min([self._shared.at, *items] if cursor is None else [cursor.covered_to])
        at = min(at, self._resumes.get(replica, at))
        is_told = replica in self.statuses or replica in self._resumes
        self._shared.open = deque(item for item in self._shared.open if item.replica is not replica)
        self.let_go(replica)
        if is_told and replica not in self._strangers:
            self._resumes.update(dict.fromkeys(children, at))

    def has_moved(self, replica: Replica) -> None:
        """Restart a replica whose log begins in a new space; older entries are no longer sent."""
        self._shared.open = deque(item for item in self._shared.open if item.replica is not replica)
        self._shared.look_anew()  # The running read is of the old space.
        self._gap.pop(replica, None)
        self._leave(replica)
        if replica in self.statuses and not self._covers(replica, replica.synced):
            self._begin(replica, replica.made_at)

    def answered(self, number: int, news: Sequence[tuple[Replica, int]], now: float) -> None:
        """Handle an answer, after `hears` for its clocks; `news`: origins of which the target lacked entries."""
        _, items = self._messages.pop(number)
        self._return(items, now)
        for replica, origin in news:
            if (replica, origin) in self._relayed:
                self._relayed[replica, origin] = now + RELAYED_FOR * self._relay_s

    def read(self, request: LogRead, entries: Sequence[LogEntry], position: int, *, is_cut: bool = False) -> None:
        """Take the result of a log read; `is_cut`: the log begins behind the asked position."""
        if not request.is_stale:
            if is_cut:
                request.cursor.met.clear()
                passed = self.statuses if request.cursor is self._shared else ()
                # The log may have dropped the entries that the replica lacks.
                for replica in [replica for replica in passed if replica not in self._cursors]:
                    if self.statuses[replica].span is None and not self._covers(replica, replica.synced):
                        self._begin(replica, replica.made_at)
            request.cursor.is_reading = False
            request.cursor.read.extend(entries)
            request.cursor.read_to = position

    # -- the next step -----------------------------------------------------------------------------------------------

    def next(self, now: float) -> OutgoingEntries | LogRead | None:
        """Return the next step; None: wait for an event or `due`."""
        if not self._connected:
            return None
        self._advance(now)
        if (self._shared.open or self._gap) and self.due(now) <= now:
            item = self._shared.open[0] if self._shared.open and not self._gap else None
            if item is not None and not item.is_own and self._stuck_at(item) <= now:
                for origin in item.origins:
                    self._relayed[item.replica, origin] = now + RELAYED_FOR * self._relay_s
            place, self._back, self._since = self.place, True, now
            self._shared.restart(place)
        done: OutgoingEntries | LogRead | None = None
        self._begun = True
        while done is None and self._begun and len(self._messages) < MAX_UNDER_WAY:
            self._begun = False
            done = self._pass_cursors(now) if self._lagging else None
            if done is None and (self._shared.at < self._tail.end or self._shared.read or self._back):
                done = self._pass(self._shared, now)
        return done

    @property
    def has_more(self) -> bool:
        """True if `next` may return another step at once, messages under way aside."""
        return self._shared.at < self._tail.end or bool(self._shared.read or self._lagging)

    @property
    def is_passing(self) -> bool:
        """True if entries of other origins may have to be sent at once, or a cursor waits for the end of the log."""
        return bool(self._relayed or self._back or self._gap or self._lagging)

    def rests(self, now: float) -> bool:
        """Drop covered entries; return True if there is nothing to do until the next event, and `due` is unchanged."""
        self._advance(now)
        is_even = not (self.has_more or self._back or self._gap or self.turned)
        return is_even and (not self._shared.open or self._shared.open[0].under_way)

    def _pass_cursors(self, now: float) -> OutgoingEntries | LogRead | None:
        if sum(cursor.replicas is not None for cursor, _ in self._messages.values()) >= MAX_OF_CURSORS:
            return None
        is_reading = sum(cursor.is_reading for cursor in self._lagging) >= MAX_LOOKS
        for cursor in [*self._lagging]:
            if is_reading and not cursor.read and cursor.at < self._tail.first:
                continue
            if cursor.is_alone and cursor.replicas:
                (replica,) = cursor.replicas
                if not self.statuses[replica].can_take or not self._covers(replica, cursor.needs):
                    continue
                if cursor.needs:
                    self.turned[replica] = None
                    cursor.needs = b""
            done = self._pass(cursor, now)
            if done is not None:
                return done
        return None

    def due(self, now: float) -> float:
        """The time from which the sender must go back, as an entry has lain too long; inf: none can.

        A sender that goes back begins again at an answered entry that the target lacks: it took no entry behind it.
        """
        if not self._connected:
            return inf
        item = self._shared.open[0] if self._shared.open else None
        was_sent = item is None or item.is_own or item.under_way or item.answered is not None
        if item is not None and not was_sent and any(map(partial(self._is_broken, item.replica), item.origins)):
            return now
        if self._gap and not self._back:
            return self._since + self._relay_s
        return inf if item is None or item.under_way else self._stuck_at(item)

    @property
    def place(self) -> int:
        """The position up to which the target covers all, catch-up cursors aside."""
        return self._place if self._gap and not self._back else self._shared.covered_to

    @property
    def positions(self) -> dict[int, int]:
        """The catch-up cursors' positions by the target's assignment, saved with `place`."""
        cursors = self._cursors.items()
        return {self.statuses[replica].assignment: cursor.covered_to for replica, cursor in cursors}

    def oldest_open(self, replica: Replica) -> float | None:
        """Return the time since when a replica has an uncovered entry; None: it has none."""
        cursors = [self._shared, *([cursor] if (cursor := self._cursors.get(replica)) is not None else [])]
        noted = (item.noted for cursor in cursors for item in cursor.open if item.replica is replica)
        return min(noted, default=None) if self._connected else None

    def is_below(self, replica: Replica) -> bool:
        """Return True if the target's replica lacks entries from before the local log: it needs a bulk load."""
        cursor = self._cursors.get(replica)
        return cursor is not None and bool(cursor.needs)

    @property
    def is_caught_up(self) -> bool:
        """True if the target is not known to lack anything."""
        return self._connected and not (self._back or self._gap or self._cursors or self._shared.open)

    # -- places ------------------------------------------------------------------------------------------------------

    def lacks(self, replica: Replica, after: bytes) -> bool:
        """Return True if the target has reported a clock that does not cover this one."""
        return not self._covers(replica, after)

    def _stuck_at(self, item: OpenEntry) -> float:
        """Return the time from which an entry has lain at the resume position for too long."""
        return max(self._since, item.noted, item.answered or 0.0) + self._relay_s

    def _begin(self, replica: Replica, at: int, *, is_alone: bool = False) -> CatchUpCursor:
        """Move a replica to a catch-up cursor at a position: the newest of its space unless that has passed more."""
        self._leave(replica)
        cursor = None if is_alone else self._joined.get(replica.space)
        if cursor is None or not cursor.replicas or cursor.at > max(at, cursor.begun):
            cursor = CatchUpCursor(at, {}, is_alone=is_alone)
            if not is_alone:
                self._joined[replica.space] = cursor
        elif cursor.at > at:  # The cursor has passed nothing yet.
            cursor.restart(at)
            cursor.begun = at
        else:
            cursor.look_anew()  # The running read lacks this replica.
            cursor.read.clear()
            cursor.read_to = 0
        assert cursor.replicas is not None
        cursor.replicas[replica] = None
        self._cursors[replica] = cursor
        self._lagging[cursor] = None
        return cursor

    def _begin_late(self, replica: Replica, status: ReplicaStatus) -> None:
        """Begin with a replica that the target reports late: the shared cursor passed its entries."""
        at = self._resumes.get(replica, max(replica.made_at, self._late_from))
        self._begin(replica, at if status.span is None else self._beginnings.of(replica, status.assignment))

    def _stay_alone(self, replica: Replica) -> None:
        """Give a replica that cannot accept entries a cursor of its own."""
        cursor = self._cursors.get(replica)
        if cursor is None or not cursor.is_alone:
            self._begin(replica, self.place if cursor is None else cursor.covered_to, is_alone=True)

    def _leave(self, replica: Replica) -> None:
        cursor = self._cursors.pop(replica, None)
        if cursor is not None and cursor.replicas is not None:
            del cursor.replicas[replica]
            if not cursor.replicas:
                del self._lagging[cursor]

    # -- passing the log ---------------------------------------------------------------------------------------------

    def _pass(self, cursor: CatchUpCursor, now: float) -> OutgoingEntries | LogRead | None:
        """Pass entries until a message is ready or the end is reached."""
        entries: list[LogEntry] = []
        items: list[OpenEntry] = []
        size_bytes = 0
        while batch := self._ahead(cursor):
            is_full = len(cursor.open) >= MAX_OPEN or len(entries) >= MESSAGE_ENTRIES
            is_full |= bool(entries) and size_bytes + size_bytes_of(batch) > MESSAGE_BYTES
            are_met = cursor.met.issuperset(map(_REPLICA, batch))
            if is_full or not (are_met or all(self._may_pass(cursor, entry) for entry in batch)):
                break
            size_bytes += self._open(cursor, batch, now, entries, items)
            # The position is passed only if none of its entries are left for the next message.
            position = batch[0].position
            cursor.at = position - bool(cursor.read and cursor.read[0].position == position)
        else:
            if cursor.at >= self._tail.first:
                if self._back or cursor.replicas is not None:
                    self._at_end(cursor, now)
            elif not entries and not cursor.is_reading:
                cursor.is_reading = True
                # All entries are sent in their order, so those of a long way may be joined.
                slices = cursor.slices if self._back and cursor.replicas is None else 1
                cursor.slices = min(2 * cursor.slices, MAX_SLICES)
                return LogRead(cursor, cursor.serial, cursor.at, slices)
        return self._ship(cursor, entries, items) if entries else None

    def _ahead(self, cursor: CatchUpCursor) -> Sequence[LogEntry]:
        """Return a cursor's next batch if it is in memory, at most one message."""
        if cursor.read:
            return first_batch(cursor.read, MESSAGE_ENTRIES, MESSAGE_BYTES)
        cursor.at = max(cursor.at, cursor.read_to)
        return self._tail.next(cursor.at) if self._tail.first <= cursor.at < self._tail.end else ()

    def _needs(self, cursor: CatchUpCursor, replica: Replica, before: bytes) -> None:
        """Begin at the space's start if the cursor began later, as a target may lose its disk; else mark it below."""
        if cursor.begun > replica.made_at:
            if self._joined.get(replica.space) is cursor:
                del self._joined[replica.space]
            self._begin(replica, replica.made_at)
            self._begun = True
            return
        self.turned[replica] = None
        alone = self._begin(replica, cursor.at, is_alone=True)
        alone.begun, alone.needs = cursor.begun, before

    def _may_pass(self, cursor: CatchUpCursor, entry: LogEntry) -> bool:
        """Return True if the cursor may pass the entry; False once all its replicas use other cursors.

        A replica that lacks entries from before the log moves to its own cursor: it needs a bulk load.
        """
        replica = entry.replica
        if not self._is_of(cursor, entry) or replica in cursor.met:
            return True
        if self._covers(replica, entry.before) or self.statuses[replica].span is not None:
            cursor.met.add(replica)
            self._gap.pop(replica, None)
        elif cursor.replicas is not None:
            self._needs(cursor, replica, entry.before)
            return bool(cursor.replicas)
        elif self._back:
            self._begin(replica, replica.made_at)
            self._begun = True
        return True

    def _ship(self, cursor: CatchUpCursor, entries: list[LogEntry], items: list[OpenEntry]) -> OutgoingEntries:
        self._number += 1
        self._messages[self._number] = cursor, items
        self._depart(items)
        return OutgoingEntries(self._number, entries)

    def _at_end(self, cursor: CatchUpCursor, now: float) -> None:
        if cursor.replicas is None:
            if self._back:
                # The missing entries precede `place`.
                for replica in [replica for replica in self._gap if replica not in self._cursors]:
                    self._begin(replica, replica.made_at)
                self._begun |= bool(self._gap)
                self._gap.clear()
            self._back = False
            return
        for replica in [*cursor.replicas]:
            is_incomplete = self.statuses[replica].span is not None
            if replica in cursor.met or is_incomplete or self._covers(replica, replica.synced):
                self._leave(replica)
            else:
                self._needs(cursor, replica, replica.synced)
        self._shared.open = deque(sorted([*self._shared.open, *cursor.open], key=attrgetter("position")))
        self._since = now
