"""The log sender: sends one other node the entries of the partitions that both nodes hold.

The store's log is the send buffer. `place` is the resume position: the target's reported clocks cover every entry up to
there. It is saved, so a restarted sender resumes there.

* A sender that is level with its target sends local writes as they are synced; origins send their own records.
* An entry that stays at the resume position for the relay time makes the sender *go back*: it sends all uncovered
  entries from there, whatever their origin. So records of dead nodes still reach all. Entries under way do not count;
  if the link to an origin is broken, the sender goes back at once.
* After that, entries of that origin and partition are relayed at once, for a while and as long as they prove news.
* A replica that cannot accept entries, or lacks earlier ones, gets its own *cursor* and does not hold up the others.
  Lagging replicas of one space share a cursor, so their log is read once.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from gossipkv.replication.replica import clock
from gossipkv.replication.replica.status import ReplicaStatus, is_served
from gossipkv.replication.stream.cursors import CatchUpCursor, LogRead, OpenEntry, OutgoingEntries
from gossipkv.replication.stream.log_tail import size_bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gossipkv.replication.replica.replica import LogEntry, Replica
    from gossipkv.replication.stream.log_tail import Beginnings, LogTail

    Origins = Callable[[Replica, int], bool]  # True if the link to an origin's node is broken.

# Limits of one message: encoding or accepting a larger one would delay other peers.
MESSAGE_BYTES: Final = 128 << 10
MESSAGE_ENTRIES: Final = 256
MAX_UNDER_WAY: Final = 4
MAX_OF_LANES: Final = 2  # Catch-up cursors may have so many of the messages under way.
MAX_LOOKS: Final = 4  # Cursors for which the log is read at a time.
MAX_OPEN: Final = 1 << 16  # Entries passed and not covered by the target; further ones wait in the log.
RELAYED_FOR: Final = 5  # Keep relaying for so many relay times.


@final
class LogSender:
    """The sender of log entries to one node."""

    def __init__(
        self, tail: LogTail, place: int, *, relay_s: float, is_broken: Origins, beginnings: Beginnings
    ) -> None:
        self.told: dict[Replica, ReplicaStatus] = {}
        self.kept_lanes: dict[int, int] = {}  # By the target's assignment: saved cursor positions.
        self._tail = tail
        self._place = place
        self._relay_s = relay_s
        self._is_broken = is_broken
        self._beginnings = beginnings
        self._connected = False
        self._back = False
        self._shared = CatchUpCursor(place)
        self._lanes: dict[Replica, CatchUpCursor] = {}  # Replicas that do not use the shared cursor.
        self._others: dict[CatchUpCursor, None] = {}  # The cursors of `_lanes`, each once.
        self._joined: dict[int, CatchUpCursor] = {}  # By space: the newest cursor that replicas share.
        self._untold_from = place  # Start of the cursor of a replica that the target reports late.
        # Replicas that lacked entries on connecting, and up to which clock; the log has those from `place` on.
        self._gap: dict[Replica, bytes] = {}
        self._since = 0.0  # Time since when the resume position has not moved.
        self._flight: dict[int, tuple[CatchUpCursor, list[OpenEntry]]] = {}
        self._flying: dict[tuple[int, Replica], OpenEntry] = {}  # Entries under way by position and replica.
        self._number = 0
        self._begun = False  # A cursor was begun: `next` looks at the cursors once more.
        self.turned: set[Replica] = set()  # Replicas newly below or no longer below, to be reported.
        # Time until which an origin's entries are relayed at once.
        self._relayed: dict[tuple[Replica, int], float] = {}
        # Replicas reported by a node that the local placement does not name as host: not fed.
        self._strangers: dict[Replica, None] = {}
        # Resume positions of split replicas that the target has not reported yet.
        self._resumes: dict[Replica, int] = {}

    # -- events ------------------------------------------------------------------------------------------------------

    def connected(self, told: Mapping[Replica, ReplicaStatus], now: float, *, goes_back: bool) -> None:
        """Begin a connection with the target's status; `goes_back`: go back now, not only if nobody else feeds."""
        self._connected, self.told = True, dict(told)
        self._flight.clear()
        self._flying.clear()
        self._relayed.clear()
        hosts = {copy: one for copy, one in told.items() if copy.feeds(one.assignment)}
        self._strangers = {copy: None for copy in told if copy not in hosts}
        joining = {copy: one for copy, one in hosts.items() if one.span is not None}
        self._gap = {copy: copy.synced for copy in hosts if not self._covers(copy, copy.synced) and copy not in joining}
        lanes = {**self.kept_lanes, **self.lanes}
        self.turned.update(copy for copy, lane in self._lanes.items() if lane.needs)
        self._lanes, self._others, self._joined = {}, {}, {}
        for copy, one in hosts.items():
            at = lanes.get(one.assignment)
            if at is None and copy in self._gap and copy in self._resumes:
                at = self._resumes.pop(copy)
            if at is None and copy in joining:
                at = self._beginnings.of(copy, one.assignment)
            if at is not None or not one.can_take:
                self._begin(copy, self._place if at is None else at, is_alone=not one.can_take)
        self.kept_lanes = {}
        self._untold_from = self._place
        self._since = now
        if goes_back or not self._gap:
            self._go_back(now)
        else:
            self._back = False
            self._shared.restart(self._tail.end)

    def disconnected(self) -> None:
        """Stop sending; entries under way may have arrived or not."""
        self._connected = False

    def hears(self, copy: Replica, told: ReplicaStatus, now: float) -> None:
        """Apply a replica's status; over the two links an older one may arrive later."""
        if not copy.feeds(told.assignment):
            self.let_go(copy)
            self.told[copy] = told
            self._strangers[copy] = None
            return
        self._strangers.pop(copy, None)
        before = self.told.get(copy)
        if before is not None and before.assignment == told.assignment:
            merged = clock.merge(before.clock, told.clock)
            if before.span is None and told.span is not None:  # A complete replica stays complete.
                told = told._replace(span=None)
            if merged != before.clock and copy in self._gap:
                self._since = now
            if merged != told.clock or told.config < before.config:
                told = told._replace(clock=merged, config=max(told.config, before.config))
        elif self._connected:
            self._shared.look_anew()  # The running read lacks this replica.
            if not clock.covers(told.clock, copy.synced):
                self._begin_late(copy, told)
        self.told[copy] = told
        self._resumes.pop(copy, None)
        if not told.can_take:
            self._stay_alone(copy)
        if copy in self._gap and self._covers(copy, self._gap[copy]):
            del self._gap[copy]

    def adopted(self, copy: Replica, now: float) -> None:
        """Re-evaluate the target's status after a replica adopted a placement or departed."""
        told = self.told.get(copy)
        if told is None:
            return
        if copy.feeds(told.assignment) is (copy in self._strangers):
            self.let_go(copy)
            self.hears(copy, told, now)
        self.told[copy] = told._replace(available=is_served(told.assignment, copy))

    def let_go(self, copy: Replica) -> None:
        """Forget a replica that is gone here or at the target."""
        self.told.pop(copy, None)
        self._gap.pop(copy, None)
        self._leave(copy)
        self._strangers.pop(copy, None)
        self._resumes.pop(copy, None)

    def divided(self, copy: Replica, heirs: Iterable[Replica]) -> None:
        """Replace a split replica by its children; each resumes there once the target reports it."""
        lane = self._lanes.get(copy)
        items = [item.position - 1 for item in self._shared.open if item.copy is copy]
        at = min([self._shared.at, *items] if lane is None else [self._first_open(lane)])
        at = min(at, self._resumes.get(copy, at))
        is_told = copy in self.told or copy in self._resumes
        self._shared.open = deque(item for item in self._shared.open if item.copy is not copy)
        self.let_go(copy)
        if is_told and copy not in self._strangers:
            self._resumes.update(dict.fromkeys(heirs, at))

    def has_moved(self, copy: Replica) -> None:
        """Restart a replica whose log begins in a new space; older entries are no longer sent."""
        self._shared.open = deque(item for item in self._shared.open if item.copy is not copy)
        self._shared.look_anew()  # The running read is of the old space.
        self._gap.pop(copy, None)
        self._leave(copy)
        if copy in self.told and not self._covers(copy, copy.synced):
            self._begin(copy, copy.made_at)

    def answered(self, number: int, news: Sequence[tuple[Replica, int]], now: float) -> None:
        """Take note of an answer, whose clocks were heard; `news`: origins of which the target lacked entries."""
        _, items = self._flight.pop(number)
        for item in items:
            item.under_way, item.answered = False, now
            self._flying.pop((item.position, item.copy), None)
        for copy, origin in news:
            if (copy, origin) in self._relayed:
                self._relayed[copy, origin] = now + RELAYED_FOR * self._relay_s

    def read(self, look: LogRead, entries: Sequence[LogEntry], position: int, *, is_cut: bool = False) -> None:
        """Take the result of a log read; `is_cut`: the log begins behind the asked position."""
        if not look.is_stale:
            if is_cut:
                look.lane.met.clear()
                passed = self.told if look.lane is self._shared else ()
                # The log may have dropped the entries that the replica lacks.
                for copy in [one for one in passed if one not in self._lanes]:
                    if self.told[copy].span is None and not self._covers(copy, copy.synced):
                        self._begin(copy, copy.made_at)
            look.lane.looks = False
            look.lane.read.extend(entries)
            look.lane.read_to = position

    # -- the next step -----------------------------------------------------------------------------------------------

    def next(self, now: float) -> OutgoingEntries | LogRead | None:
        """Return the next step; None: wait for an event or `due`."""
        if not self._connected:
            return None
        self._advance(now)
        if self._lies(now):
            self._go_back(now)
        if len(self._flight) >= MAX_UNDER_WAY:
            return None
        done = self._pass_lanes(now) or self._pass(self._shared, now)
        while done is None and self._begun:
            self._begun = False
            done = self._pass_lanes(now) or self._pass(self._shared, now)
        self._move_place()
        return done

    def _pass_lanes(self, now: float) -> OutgoingEntries | LogRead | None:
        if sum(lane.copies is not None for lane, _ in self._flight.values()) >= MAX_OF_LANES:
            return None
        is_reading = sum(lane.looks for lane in self._others) >= MAX_LOOKS
        for lane in [*self._others]:
            if is_reading and not lane.read and lane.at < self._tail.first:
                continue
            if lane.is_alone and lane.copies:
                (copy,) = lane.copies
                if not self.told[copy].can_take or not self._covers(copy, lane.needs):
                    continue
                if lane.needs:
                    self.turned.add(copy)
                    lane.needs = b""
            done = self._pass(lane, now)
            if done is not None:
                return done
        return None

    def due(self, now: float) -> float | None:
        """The time when an entry may have lain too long; None: none can."""
        if not self._connected or self._back:
            return None
        item = self._shared.open[0] if self._shared.open else None
        if item is None or item.under_way:
            return self._since + self._relay_s if self._gap else None
        return now if self._is_orphaned(item) else max(now, self._lies_from(item) + self._relay_s)

    @property
    def place(self) -> int:
        """The position up to which the target covers all, catch-up cursors aside."""
        return self._place

    @property
    def lanes(self) -> dict[int, int]:
        """The catch-up cursors' positions by the target's assignment, saved with `place`."""
        return {self.told[copy].assignment: self._first_open(lane) for copy, lane in self._lanes.items()}

    def lag(self, copy: Replica) -> int:
        """Return the number of a replica's records that the target lacks; ended assignments do not count."""
        told = self.told.get(copy)
        if told is None:
            return 0
        wanted = clock.entries(clock.named(copy.synced, copy.named))
        lacks = ((count, clock.counter(told.clock, origin)) for origin, count in wanted)
        return sum(max(0, count - theirs) for count, theirs in lacks)

    def oldest_open(self, copy: Replica) -> float | None:
        """Return the time since when a replica has an uncovered entry; None: it has none."""
        lanes = [self._shared, *([lane] if (lane := self._lanes.get(copy)) is not None else [])]
        noted = (item.noted for lane in lanes for item in lane.open if item.copy is copy)
        return min(noted, default=None) if self._connected else None

    def is_below(self, copy: Replica) -> bool:
        """Return True if the target's replica lacks entries from before the local log: it needs a bulk load."""
        lane = self._lanes.get(copy)
        return lane is not None and bool(lane.needs)

    @property
    def is_level(self) -> bool:
        """True if the target is not known to lack anything."""
        return self._connected and not (self._back or self._gap or self._lanes or self._shared.open)

    # -- places ------------------------------------------------------------------------------------------------------

    def lacks(self, copy: Replica, after: bytes) -> bool:
        """Return True if the target has reported a clock that does not cover this one."""
        return not self._covers(copy, after)

    def _covers(self, copy: Replica, after: bytes) -> bool:
        """Return True unless the target is known to lack something; assignments no longer named have ended."""
        told = self.told.get(copy)
        if told is None or copy in self._strangers or clock.covers(told.clock, after):
            return True
        left = clock.named(after, copy.named)
        return clock.covers(told.clock, left) or (told.span is not None and clock.covers(told.span.after, left))

    @staticmethod
    def _first_open(lane: CatchUpCursor) -> int:
        return min(lane.at, lane.open[0].position - 1) if lane.open else lane.at

    def _advance(self, now: float) -> None:
        for lane in (self._shared, *self._others):
            moved = False
            while lane.open and not self._is_open(lane, lane.open[0]):
                lane.open.popleft()
                moved = True
            if lane is self._shared and moved:
                self._since = now
        self._move_place()

    def _move_place(self) -> None:
        if not self._gap or self._back:
            self._place = self._first_open(self._shared)

    def _is_open(self, lane: CatchUpCursor, item: OpenEntry) -> bool:
        """Return True if a passed entry still holds its cursor: the replica uses it and lacks the entry."""
        return self._goes_by(lane, item.copy) and not self._covers(item.copy, item.after)

    def _goes_by(self, lane: CatchUpCursor, copy: Replica) -> bool:
        return self._lanes.get(copy, self._shared) is lane

    def _lies_from(self, item: OpenEntry) -> float:
        return max(self._since, item.noted, item.answered or 0.0)

    def _lies(self, now: float) -> bool:
        """Return True if the entry at the resume position has lain there too long."""
        if self._back:
            return False
        # Compare as `due` does: with other rounding it would never fire.
        if self._gap and now >= self._since + self._relay_s:
            return True
        if not self._shared.open:
            return False
        item = self._shared.open[0]
        if item.under_way:
            return False
        if now >= self._lies_from(item) + self._relay_s:
            if not item.is_own:
                for origin in item.origins:
                    self._relayed[item.copy, origin] = now + RELAYED_FOR * self._relay_s
            return True
        return self._is_orphaned(item)

    def _is_orphaned(self, item: OpenEntry) -> bool:
        """Return True if the entry was never sent and a link to an origin of it is broken."""
        was_sent = item.answered is not None
        return not item.is_own and not was_sent and any(self._is_broken(item.copy, one) for one in item.origins)

    def _begin(self, copy: Replica, at: int, *, is_alone: bool = False) -> CatchUpCursor:
        """Move a replica to a catch-up cursor at a position: the shared one of its space unless that passed more."""
        self._leave(copy)
        lane = None if is_alone else self._joined.get(copy.space)
        if lane is None or not lane.copies or lane.at > max(at, lane.begun):
            lane = CatchUpCursor(at, {}, is_alone=is_alone)
            if not is_alone:
                self._joined[copy.space] = lane
        elif lane.at > at:  # The cursor has passed nothing yet.
            lane.restart(at)
            lane.begun = at
        else:
            lane.look_anew()  # The running read lacks this replica.
            lane.read.clear()
            lane.read_to = 0
        assert lane.copies is not None
        lane.copies[copy] = None
        self._lanes[copy] = lane
        self._others[lane] = None
        return lane

    def _begin_late(self, copy: Replica, told: ReplicaStatus) -> None:
        """Begin with a replica that the target reports late: the shared cursor passed its entries."""
        at = self._resumes.get(copy, max(copy.made_at, self._untold_from))
        self._begin(copy, at if told.span is None else self._beginnings.of(copy, told.assignment))

    def _stay_alone(self, copy: Replica) -> None:
        """Give a replica that cannot accept entries a cursor of its own."""
        lane = self._lanes.get(copy)
        if lane is None or not lane.is_alone:
            self._begin(copy, self._place if lane is None else self._first_open(lane), is_alone=True)

    def _leave(self, copy: Replica) -> None:
        lane = self._lanes.pop(copy, None)
        if lane is not None and lane.copies is not None:
            del lane.copies[copy]
            if not lane.copies:
                del self._others[lane]

    def _go_back(self, now: float) -> None:
        self._back, self._since = True, now
        self._shared.restart(self._place)

    # -- passing the log ---------------------------------------------------------------------------------------------

    def _pass(self, lane: CatchUpCursor, now: float) -> OutgoingEntries | LogRead | None:
        """Pass entries until a message is ready or the end is reached."""
        entries: list[LogEntry] = []
        items: list[OpenEntry] = []
        size_bytes = 0
        while batch := self._ahead(lane):
            size_bytes += size_bytes_of(batch)
            is_full = len(lane.open) >= MAX_OPEN or len(entries) >= MESSAGE_ENTRIES
            is_full |= bool(entries) and size_bytes > MESSAGE_BYTES
            if is_full or not all(self._may_pass(lane, entry) for entry in batch):
                break
            for entry in batch:
                if lane.read:
                    lane.read.popleft()
                item = self._opened(lane, entry, now)
                if item is not None and not item.under_way and self._goes(lane, entry, now):
                    entries.append(entry)
                    items.append(item)
            # The position is passed only if none of its entries are left for the next message.
            position = batch[0].position
            lane.at = position - bool(lane.read and lane.read[0].position == position)
        else:
            if lane.at < self._tail.first and not entries:
                return self._look(lane)
            if lane.at >= self._tail.first:
                self._at_end(lane, now)
        return self._ship(lane, entries, items) if entries else None

    def _ahead(self, lane: CatchUpCursor) -> Sequence[LogEntry]:
        """Return a cursor's next batch if it is in memory, at most one message."""
        if lane.read:
            position = lane.read[0].position
            return [*takewhile(lambda entry: entry.position == position, islice(lane.read, MESSAGE_ENTRIES))]
        lane.at = max(lane.at, lane.read_to)
        return () if lane.at < self._tail.first else self._tail.next(lane.at)

    @staticmethod
    def _look(lane: CatchUpCursor) -> LogRead | None:
        if lane.looks:
            return None
        lane.looks = True
        return LogRead(lane, lane.serial, lane.at)

    def _is_of(self, lane: CatchUpCursor, entry: LogEntry) -> bool:
        """Return True if the entry belongs to the cursor; entries from before the replica's space are obsolete."""
        copy = entry.copy
        if copy not in self.told or entry.position <= copy.made_at:
            return False
        return self._goes_by(lane, copy)

    def _needs(self, lane: CatchUpCursor, copy: Replica, before: bytes) -> None:
        """Begin at the space's start if the cursor began later (a target may lose its disk); else mark it below."""
        if lane.begun > copy.made_at:
            if self._joined.get(copy.space) is lane:
                del self._joined[copy.space]
            self._begin(copy, copy.made_at)
            self._begun = True
            return
        self.turned.add(copy)
        alone = self._begin(copy, lane.at, is_alone=True)
        alone.begun, alone.needs = lane.begun, before

    def _may_pass(self, lane: CatchUpCursor, entry: LogEntry) -> bool:
        """Return True if the cursor may pass the entry; False once all its replicas use other cursors.

        A replica that lacks entries from before the log moves to its own cursor: it needs a bulk load.
        """
        copy = entry.copy
        if not self._is_of(lane, entry) or copy in lane.met:
            return True
        if self._covers(copy, entry.before) or self.told[copy].span is not None:
            lane.met.add(copy)
            self._gap.pop(copy, None)
        elif lane.copies is not None:
            self._needs(lane, copy, entry.before)
            return bool(lane.copies)
        elif self._back:
            self._begin(copy, copy.made_at)
            self._begun = True
        return True

    def _opened(self, lane: CatchUpCursor, entry: LogEntry, now: float) -> OpenEntry | None:
        """Return the open item of an entry; None: the target covers the entry or it belongs to another cursor."""
        if not self._is_of(lane, entry) or self._covers(entry.copy, entry.after):
            return None
        item = self._flying.get((entry.position, entry.copy))
        if item is None or item.after != entry.after:  # A page of a split replica may have held less.
            item = OpenEntry(entry.position, entry.copy, entry.after, entry.origins, entry.is_own, now)
        lane.open.append(item)
        return item

    def _goes(self, lane: CatchUpCursor, entry: LogEntry, now: float) -> bool:
        """Return True if this node must send the entry."""
        return (
            entry.is_own
            or self._back
            or lane.copies is not None
            or not self.told[entry.copy].available
            or any(self._relayed.get((entry.copy, origin), 0.0) > now for origin in entry.origins)
        )

    def _ship(self, lane: CatchUpCursor, entries: list[LogEntry], items: list[OpenEntry]) -> OutgoingEntries:
        self._number += 1
        self._flight[self._number] = lane, items
        for item in items:
            item.under_way = True
            self._flying[item.position, item.copy] = item
        return OutgoingEntries(self._number, entries)

    def _at_end(self, lane: CatchUpCursor, now: float) -> None:
        if lane.copies is None:
            if self._back:
                # The missing entries precede `place`.
                for copy in [one for one in self._gap if one not in self._lanes]:
                    self._begin(copy, copy.made_at)
                self._begun |= bool(self._gap)
                self._gap.clear()
            self._back = False
            return
        for copy in [*lane.copies]:
            if copy in lane.met or self._covers(copy, copy.synced) or self.told[copy].span is not None:
                self._leave(copy)
            else:
                self._needs(lane, copy, copy.synced)
        self._shared.open = deque(sorted([*self._shared.open, *lane.open], key=attrgetter("position")))
        self._since = now
