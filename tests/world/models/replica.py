"""A node of the model: its log, its copies, the feeds to its peers, and loading.  What it runs in is `feed.py`.

The names of planted bugs stand where the rule that they break stands.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from operator import ge
from typing import TYPE_CHECKING, NamedTuple, final

from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.world.models.feed import Run

RELAY_AFTER = 200 * MS
MOVE_STALL = SECOND  # The source of a load waits so long for what the loading copy originated.
LOAD_TIMEOUT = 3 * SECOND
UNDER_WAY = 4
APART_UNDER_WAY = 2  # Of those four, what copies with a place of their own have at most.
PAGES = 3

Clock = tuple[int, ...]  # A counter for each node: the dots of that origin that a copy has.
Dot = tuple[int, int]


class Broken(Exception):
    """A promise was broken: which."""


class Record(NamedTuple):
    """What was written; of two of a key the greater stays."""

    time: int
    origin: int
    counter: int
    key: int
    write: int
    is_tombstone: bool


class Told(NamedTuple):
    """What a node said of its copy: its clock, where its log begins, and whether the copy can take."""

    clock: Clock
    floor: Clock
    is_able: bool


def covers(one: Clock, other: Clock) -> bool:
    """Whether every counter of `other` is at most that of `one`."""
    return all(map(ge, one, other))


def merge(one: Clock, other: Clock) -> Clock:
    """The greater of each."""
    return tuple(map(max, one, other))


@dataclass(slots=True)
class Entry:
    """One batch of the log: the records that won, and how the copy's clock moved."""

    partition: int
    is_own: bool
    before: Clock
    after: Clock
    time: int
    records: list[Record]
    dots: dict[Dot, Record]  # All that its clock moved by, losers too; only checkers look at the values.
    synced_us: int = 0

    def origins(self) -> set[int]:
        return {origin for origin, _ in self.dots}


@dataclass(slots=True)
class State:
    """What a copy consists of, either as it was appended or as it is synced, which is what can be read."""

    clock: Clock
    records: dict[int, Record] = field(default_factory=dict)
    time: int = 0
    start: int = 0  # Where its space begins in the log: earlier entries are of a space that was dropped.

    def put(self, records: Iterable[Record]) -> None:
        for record in records:
            self.records[record.key] = max(record, self.records.get(record.key, record))

    def duplicate(self) -> State:
        return replace(self, records=dict(self.records))


@dataclass(slots=True)
class Load:
    """A copy that is being loaded to the side."""

    source: int
    began_us: int
    aside: State
    own: int  # What the loading copy originated when it asked.
    space: State | None = None  # Of the source, and where its log's entries since begin.
    since: int = 0
    is_last: bool = False  # Its last page has come: meanwhile nothing is originated or taken.


@dataclass(slots=True)
class Copy:
    """A replica of a partition on a node."""

    appended: State
    synced: State
    floor: Clock  # Who covers it can be fed from the log.
    unable_until_us: int = 0
    behind_since_us: int | None = None
    load: Load | None = None


@dataclass(slots=True, eq=False)
class Feed:
    """One end of a connection: what was said and kept on it, and where the feed to its other end stands."""

    owner: Node
    target: int
    other: Feed = field(init=False)
    is_broken: bool = False
    has_begun: bool = False  # The target's clocks have come.
    held: deque[Callable[[], None]] = field(default_factory=deque)  # By a cut on the way to the target.
    said: dict[int, Told] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)  # By the target.
    kept: list[tuple[int, Entry]] = field(default_factory=list)  # Of the target's entries, what cannot be taken yet.
    place: int = 0  # The first entry that the target does not cover,
    since_us: int = 0  # and since when it is, or was answered as not taken.
    next: int = 0  # The next own entry.
    back: int | None = None  # How far going back has come.
    reached: int = 0  # How far it ever came on this connection.
    apart: dict[int, int] = field(default_factory=dict)  # Places of partitions that have one of their own.
    under_way: deque[set[int]] = field(default_factory=deque)  # Which entries each message has.
    like_own: dict[Dot, int] = field(default_factory=dict)  # (partition, origin): until when.


@final
class Node:
    """One log, its copies, and the feeds to the connected."""

    def __init__(self, run: Run, index: int, skew_ms: int) -> None:
        self.run, self.index, self.skew_ms, self.planted = run, index, skew_ms, run.planted
        held = [partition for partition, hosts in enumerate(run.hosts) if index in hosts]
        self.copies = {partition: Copy(State(run.zero), State(run.zero), run.zero) for partition in held}
        self.log: list[Entry] = []
        self.base = self.synced = 0  # Positions in the log: of its first entry, and where what is synced ends.
        self.places: dict[int, int] = {}
        self.kept_places: dict[int, int] = {}
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.is_up, self.is_aside, self.started_us = True, False, self.run.now_us
        self.feeds: dict[int, Feed] = {}
        self.queue: list[Callable[[], None]] = []
        self.syncing = self.queued = self.done = 0
        self.open: Entry | None = None  # The last one appended, while its sync has not begun.
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.unconfirmed: list[tuple[int, Record, int]] = []
        del self.log[self.synced - self.base :]
        self.places = dict(self.kept_places)
        for partition, copy in self.copies.items():
            copy.appended, copy.load, copy.behind_since_us = copy.synced.duplicate(), None, None
            if "time_not_restored" in self.planted:
                copy.appended.time = 0
            befores = (entry.before for _, entry in self.entries(partition, self.base))
            copy.floor = next(befores, copy.synced.clock)

    # The store: what is appended is synced by and by, in groups.

    def store(self, effect: Callable[[], None]) -> None:
        self.queue.append(effect)
        self.queued += 1
        self._sync()

    def _sync(self) -> None:
        if not self.syncing and self.queue:
            self.syncing, self.open = len(self.queue), None
            self.run.after(self.run.sync_ms, partial(self._synced, self.life))

    def _synced(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        group, self.queue = self.queue[: self.syncing], self.queue[self.syncing :]
        self.done, self.syncing = self.done + len(group), 0
        for effect in group:
            effect()
        due = [then for number, then in self.waiting if number <= self.done]
        self.waiting = [(number, then) for number, then in self.waiting if number > self.done]
        for then in due:
            then()
        self.confirm()
        self._sync()
        self.pump_all()

    def when_synced(self, then: Callable[[], None]) -> None:
        if self.done == self.queued:
            then()
        else:
            self.waiting.append((self.queued, then))

    def _append(self, partition: int, dots: dict[Dot, Record], won: list[Record], *, is_own: bool) -> None:
        copy = self.copies[partition]
        before = copy.appended.clock
        after = tuple(max([count, *(n for o, n in dots if o == origin)]) for origin, count in enumerate(before))
        copy.appended.clock = after
        copy.appended.put(won)
        if "clock_without_records" in self.planted:
            copy.synced.clock = after
        last, is_mixed = self.open, "own_and_taken_mixed" in self.planted
        is_alike = last is not None and last.partition == partition and (last.is_own == is_own or is_mixed)
        if last and is_alike and self.run.chance.random() < 0.5:  # One batch, if it happens to be filled still.
            last.after, last.time = after, copy.appended.time
            last.records += won
            last.dots |= dots
            return
        self.open = entry = Entry(partition, is_own, before, after, copy.appended.time, won, dots)
        self.log.append(entry)
        self.store(partial(self._entry_synced, entry))

    def _entry_synced(self, entry: Entry) -> None:
        self.run.check_counters(entry)
        self.synced += 1
        entry.synced_us = self.run.now_us
        state = self.copies[entry.partition].synced
        state.clock, state.time = entry.after, entry.time
        for record in entry.records:  # As a batch of the store does: what is later in the log stands.
            state.records[record.key] = record

    def write(self, partition: int) -> None:
        copy = self.copies.get(partition)
        hosts = self.run.hosts[partition]
        asked = all(host in self.feeds and self.feeds[host].has_begun for host in hosts if host != self.index)
        asked |= self.run.now_us - self.started_us >= SECOND or "counter_of_former_life" in self.planted
        if not self.is_up or copy is None or not self._can_take(copy) or self.is_aside or not asked:
            return
        time = max(copy.appended.time + 1, self.run.now_us // MS + self.skew_ms)
        record = self.run.new_record(partition, time, self.index, copy.appended.clock[self.index] + 1)
        seen = copy.appended.records.get(record.key)
        if seen is not None and seen > record:
            raise Broken("backwards")
        copy.appended.time = time
        self.unconfirmed.append((partition, record, self.run.now_us))
        self._append(partition, {(self.index, record.counter): record}, [record], is_own=True)

    def confirm(self) -> None:
        for waiting in list(self.unconfirmed):
            partition, record, began_us = waiting
            hosts = self.run.hosts[partition]
            clocks = [feed.told[partition].clock for feed in self.feeds.values() if partition in feed.told]
            clocks.append(self.copies[partition].synced.clock)
            if sum(clock[self.index] >= record.counter for clock in clocks) > len(hosts) // 2:
                self.unconfirmed.remove(waiting)
                self.run.acknowledged(partition, record, began_us)

    # The target: takes what follows on what it has, keeps the rest for a while, and tells its clocks.

    def _can_take(self, copy: Copy) -> bool:
        is_last = copy.load is not None and copy.load.is_last and "taken_during_last_page" not in self.planted
        return copy.unable_until_us <= self.run.now_us and not is_last

    def _take(self, entry: Entry) -> bool:
        copy = self.copies[entry.partition]
        state, clock = copy.appended, copy.appended.clock
        is_next = covers(clock, entry.before) or "before_ignored" in self.planted
        if not is_next or not self._can_take(copy):
            return False
        dots = {dot: record for dot, record in entry.dots.items() if dot[1] > clock[dot[0]]}
        is_again = "covered_merged_again" in self.planted
        if not dots and not is_again:
            return True
        for origin, count in enumerate(clock):
            if any((origin, n) not in dots for n in range(count + 1, entry.after[origin] + 1)):
                raise Broken("gap")
        if "time_not_merged" not in self.planted:
            state.time = max(state.time, entry.time)
        have = copy.synced.records if "merged_with_readable" in self.planted else state.records
        won = [record for record in entry.records if is_again or record.counter > clock[record.origin]]
        won = [record for record in won if record.key not in have or record > have[record.key]]
        self._append(entry.partition, dots, won, is_own=False)
        return True

    def take_kept(self) -> None:
        if "kept_not_retried" in self.planted:
            return
        kept = [(feed, item) for feed in self.feeds.values() for item in feed.kept]
        took = [(feed, item) for feed, item in kept if self._take(item[1])]
        for feed, item in took:
            feed.kept.remove(item)
        if took:
            self.take_kept()

    def on_entries(self, feed: Feed, entries: list[Entry]) -> None:
        """Take what comes; answer once it is synced, and say for which origins it was news."""
        new = [e for e in entries if not covers(self.copies[e.partition].appended.clock, e.after)]
        news = {(entry.partition, origin) for entry in new for origin in entry.origins()}
        for entry in entries:
            is_able = self.copies[entry.partition].unable_until_us <= self.run.now_us
            if is_able and not self._take(entry) and len(feed.kept) < self.run.most_kept:
                feed.kept.append((self.run.now_us, entry))
        self.take_kept()
        answer = partial(self._answer, feed, {entry.partition for entry in entries}, news)
        self.when_synced(answer) if "confirmed_before_synced" not in self.planted else answer()

    def _say(self, feed: Feed, partitions: Iterable[int]) -> dict[int, Told]:
        states = {}
        for partition in partitions:
            copy = self.copies[partition]
            state = copy.appended if "confirmed_before_synced" in self.planted else copy.synced
            states[partition] = Told(state.clock, copy.floor, copy.unable_until_us <= self.run.now_us)
        changed = {partition: told for partition, told in states.items() if feed.said.get(partition) != told}
        feed.said.update(changed)
        return changed

    def _answer(self, feed: Feed, partitions: set[int], news: set[Dot]) -> None:
        self.run.send(feed, partial(feed.other.owner.on_answer, feed.other, self._say(feed, partitions), news))

    def tell(self, feed: Feed) -> None:
        is_first = not feed.said
        states = self._say(feed, self.run.shared(self.index, feed.target))
        if states or is_first:
            self.run.send(feed, partial(feed.other.owner.on_clocks, feed.other, states))

    # The feeder.

    def _hear(self, feed: Feed, states: dict[int, Told]) -> None:
        feed.told.update(states)
        if "counter_of_former_life" not in self.planted:  # An older copy of this disk issued them.
            appended = {partition: self.copies[partition].appended.clock for partition in states}
            self.is_aside |= any(told.clock[self.index] > appended[p][self.index] for p, told in states.items())
        self.confirm()

    def on_clocks(self, feed: Feed, states: dict[int, Told]) -> None:
        self._hear(feed, states)
        if not feed.has_begun:
            self._begin(feed)
        self.pump(feed)

    def _begin(self, feed: Feed) -> None:
        place = max(self.places.get(feed.target, 0), self.base)
        shared = self.run.shared(self.index, feed.target)
        feed.has_begun, feed.place, feed.next, feed.since_us = True, place, self.synced, self.run.now_us
        others = {host for partition in shared for host in self.run.hosts[partition] if host != feed.target}
        if not any(host < self.index and host in self.feeds for host in others):
            feed.back = place
        for partition in shared:
            befores = (entry.before for _, entry in self.entries(partition, place))
            before = next(befores, self.copies[partition].appended.clock)
            is_behind = not covers(feed.told[partition].clock, before)
            if is_behind and "place_kept_for_who_is_behind" not in self.planted:
                feed.apart[partition] = self.base

    def on_answer(self, feed: Feed, states: dict[int, Told], news: set[Dot]) -> None:
        self._hear(feed, states)
        if feed.place in feed.under_way.popleft():
            feed.since_us = self.run.now_us
        for dot in news & feed.like_own.keys():
            feed.like_own[dot] = self.run.now_us + 5 * RELAY_AFTER
        self.pump(feed)

    def _end(self) -> int:
        return self.base + len(self.log) if "fed_before_synced" in self.planted else self.synced

    def entries(self, partition: int | None, position: int) -> Iterator[tuple[int, Entry]]:
        """What the log has from there, of the spaces that are there now: of a partition, or of all."""
        for at in range(max(position, self.base), self._end()):
            entry = self.log[at - self.base]
            if partition in (None, entry.partition) and at >= self.copies[entry.partition].synced.start:
                yield at, entry

    def _uncovered(self, feed: Feed, partition: int | None, position: int) -> Iterator[tuple[int, Entry]]:
        for at, entry in self.entries(partition, position):
            if entry.partition in feed.told and not covers(feed.told[entry.partition].clock, entry.after):
                yield at, entry

    def _move_place(self, feed: Feed) -> None:
        skips = "place_beyond_uncovered" in self.planted
        left = self._uncovered(feed, None, feed.place)
        stays = (at for at, e in left if e.partition not in feed.apart and not (skips and e.is_own and at < feed.next))
        place = next(stays, self._end())
        if place != feed.place:
            feed.place, feed.since_us = place, self.run.now_us
        self.places[feed.target] = place

    def _ship(self, feed: Feed, found: Iterator[tuple[int, Entry]]) -> int:
        batch = list(islice(found, self.run.message_entries))
        if batch:
            feed.under_way.append({at for at, _ in batch})
            self.run.count_sent([entry for _, entry in batch])
            self.run.send(feed, partial(feed.other.owner.on_entries, feed.other, [entry for _, entry in batch]))
        return batch[-1][0] + 1 if len(batch) == self.run.message_entries else self._end()

    def pump_all(self) -> None:
        for feed in list(self.feeds.values()):
            self.pump(feed)

    def pump(self, feed: Feed) -> None:
        """Send what can be sent: own places first, then what has to go back, or own entries."""
        if feed.is_broken or not feed.has_begun:
            return
        floors = {partition: self.copies[partition].floor for partition in feed.told}
        cannot = {p for p, told in feed.told.items() if not told.is_able or not covers(told.clock, floors[p])}
        for partition in cannot - feed.apart.keys():
            feed.apart[partition] = feed.place
        for partition in feed.apart.keys() - cannot:
            self._pump_apart(feed, partition)
        self._move_place(feed)
        self._look_for_lying(feed)
        while len(feed.under_way) < UNDER_WAY:
            if feed.back is not None:
                found = self._uncovered(feed, None, max(feed.back, feed.place))
                whole = "others_never_sent" not in self.planted
                found = (item for item in found if item[1].partition not in feed.apart and (whole or item[1].is_own))
                feed.back = self._ship(feed, found)
                feed.reached = max(feed.reached, feed.back)
                if feed.back >= self._end():
                    feed.back, feed.next = None, self._end()
            elif feed.next < self._end():
                found = self._uncovered(feed, None, feed.next)
                feed.next = self._ship(feed, (item for item in found if self._goes_at_once(feed, item[1])))
            else:
                break

    def _goes_at_once(self, feed: Feed, entry: Entry) -> bool:
        until_us = max((feed.like_own.get((entry.partition, origin), 0) for origin in entry.origins()), default=0)
        return entry.partition not in feed.apart and (entry.is_own or until_us > self.run.now_us)

    def _pump_apart(self, feed: Feed, partition: int) -> None:
        while len(feed.under_way) < APART_UNDER_WAY and feed.apart[partition] < self._end():
            feed.apart[partition] = self._ship(feed, self._uncovered(feed, partition, feed.apart[partition]))
        if feed.apart[partition] >= self._end():
            del feed.apart[partition]
            left = next(self._uncovered(feed, partition, self.base), None)
            if left is not None and left[0] < feed.place:
                feed.place, feed.since_us = left[0], self.run.now_us

    def _look_for_lying(self, feed: Feed) -> None:
        """Go back to what lies at the place."""
        if feed.back is not None or feed.place >= self._end():
            return
        if any(feed.place in message for message in feed.under_way) and "unanswered_lies" not in self.planted:
            return
        entry, now_us = self.log[feed.place - self.base], self.run.now_us
        has_lain = now_us - max(feed.since_us, entry.synced_us) >= RELAY_AFTER
        gone = entry.origins() - self.feeds.keys() - {self.index, feed.target}
        if has_lain or (gone and not entry.is_own and feed.place >= feed.reached):
            if has_lain and not entry.is_own and "never_like_own" not in self.planted:
                for origin in entry.origins():
                    feed.like_own[entry.partition, origin] = now_us + 5 * RELAY_AFTER
            feed.back, feed.since_us = feed.place, now_us

    # Loading, to the side.

    def look_for_loads(self) -> None:
        for partition, copy in self.copies.items():
            clock, now_us = copy.appended.clock, self.run.now_us
            told = {peer: feed.told[partition] for peer, feed in self.feeds.items() if partition in feed.told}
            ahead = [peer for peer in told if not covers(clock, told[peer].clock)]
            logs = [peer for peer in told if covers(clock, told[peer].floor)]
            reached = tuple(max([count, *(told[p].clock[o] for p in logs)]) for o, count in enumerate(clock))
            if "loads_only_without_logs" in self.planted and logs:
                ahead = []
            if copy.load or copy.unable_until_us > now_us or all(covers(reached, told[p].clock) for p in ahead):
                copy.behind_since_us = None
                continue
            copy.behind_since_us = copy.behind_since_us or now_us
            if now_us - copy.behind_since_us >= RELAY_AFTER:
                source = max(ahead, key=lambda peer: sum(map(max, told[peer].clock, clock)))
                copy.load = load = Load(source, now_us, State(self.run.zero), clock[self.index])
                feed = self.feeds[source]
                self.run.send(feed, partial(feed.other.owner.on_load, feed.other, partition, load))

    def on_load(self, feed: Feed, partition: int, load: Load) -> None:
        state = self.copies[partition].synced
        load.aside.clock, load.since, load.space = state.clock, self.synced, state
        self._send_page(feed, partition, load, 0)

    def _send_page(self, feed: Feed, partition: int, load: Load, page: int) -> None:
        state = self.copies[partition].synced
        if feed.is_broken or load.since < self.base or state is not load.space:
            return  # Torn: its log or its space is not there any more.  Who asked begins again.
        is_stalled = state.clock[feed.target] < load.own and self.run.now_us - load.began_us < MOVE_STALL
        is_last = page == PAGES and not is_stalled
        message = State(state.clock, time=state.time)
        message.put(record for record in state.records.values() if record.key % PAGES == page)
        if is_last and "load_not_exact" in self.planted:
            message.clock = load.aside.clock
        elif is_last:
            message.put(record for _, entry in self.entries(partition, load.since) for record in entry.records)
        self.run.send(feed, partial(feed.other.owner.on_page, partition, load, message, is_last=is_last))
        if not is_last:
            self.run.after((5, 130), partial(self._send_page, feed, partition, load, min(page + 1, PAGES)))

    def on_page(self, partition: int, load: Load, page: State, *, is_last: bool) -> None:
        """Put a page aside; from the last one on the copy stands still until it has changed its space."""
        if self.copies[partition].load is load:
            load.aside.put(page.records.values())
            if is_last or "clock_before_last_page" in self.planted:
                load.is_last, load.aside.clock, load.aside.time = is_last, page.clock, page.time
                self.run.after((20, 200), partial(self.when_synced, partial(self._switch, partition, load)))

    def _switch(self, partition: int, load: Load) -> None:
        copy, aside = self.copies[partition], load.aside.duplicate()
        if copy.load is not load:
            return
        copy.load = None if load.is_last else load
        if covers(copy.appended.clock, aside.clock) and load.is_last:
            return
        if "old_records_forgotten" not in self.planted:
            old = copy.synced.records.values()
            aside.put(record for record in old if record.counter > aside.clock[record.origin])
        aside.clock = merge(aside.clock, copy.appended.clock)
        aside.time = copy.appended.time if "time_not_loaded" in self.planted else max(aside.time, copy.appended.time)
        aside.start = copy.synced.start
        if "floor_unmoved" not in self.planted:
            aside.start, copy.floor = self.base + len(self.log), aside.clock
        self.open, copy.appended = None, aside.duplicate()
        self.run.counts["loads"] += 1
        self.store(partial(setattr, copy, "synced", aside))
        self.take_kept()

    # Time.

    def tick(self) -> None:
        """Every 50 ms: let go of what was kept too long, look what lies, and trim the log."""
        if not self.is_up:
            return
        now_us = self.run.now_us
        for feed in self.feeds.values():
            feed.kept = [(since_us, entry) for since_us, entry in feed.kept if now_us - since_us < RELAY_AFTER]
        for copy in self.copies.values():
            if copy.load and now_us - copy.load.began_us >= LOAD_TIMEOUT:
                copy.load = None
        self.look_for_loads()
        self.pump_all()
        while self.synced - self.base > self.run.log_entries:
            entry = self.log.pop(0)
            copy = self.copies[entry.partition]
            if self.base >= copy.appended.start:
                copy.floor = merge(copy.floor, entry.after)
            self.base += 1

    def tell_all(self) -> None:
        for feed in self.feeds.values():
            self.tell(feed)

    def keep_places(self) -> None:
        self.kept_places = dict(self.places) if self.is_up else self.kept_places
