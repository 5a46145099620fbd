"""A model of how copies of a partition are fed and loaded: one log a node, one feed to each peer, in virtual time.

It came before the code, to find the rules and the runs that each prevents.  A number makes a run: a storm of crashes,
cuts one way, trimmed logs, copies that cannot take and lost disks; of ten one is calm, one has a link cut, one a disk
put back to an older copy, one short logs.  `python -m tests.world.models.feed FIRST COUNT [PLANTED...]` counts
verdicts, with those rules broken.  The rules are in `replica.py`; here are the wire, the faults, and the checkers.
Simplified: clocks are tuples with a counter for each node, tombstones go by a look at all disks at once, a message has
a number of entries, and a write waits for a majority of slots.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, final

from tests.world.models.counting import count_verdicts
from tests.world.models.replica import Broken, Clock, Dot, Entry, Feed, Node, Record, covers, merge
from tests.world.scheduler import MS, SECOND, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

PLANTED = {  # A rule that is broken: a seed that shows it, and by what.
    "fed_before_synced": (45, "repeat"),
    "confirmed_before_synced": (26, "lost"),
    "merged_with_readable": (0, "unequal"),
    "covered_merged_again": (10, "unequal"),
    "before_ignored": (1, "gap"),
    "clock_without_records": (0, "unequal"),
    "own_and_taken_mixed": (0, "travels"),
    "place_beyond_uncovered": (4, "stuck"),
    "others_never_sent": (1, "stuck"),
    "place_kept_for_who_is_behind": (7, "stuck"),
    "unanswered_lies": (0, "travels"),
    "never_like_own": (1, "slow"),
    "kept_not_retried": (10, "travels"),
    "time_not_merged": (1, "backwards"),
    "time_not_restored": (3, "backwards"),
    "time_not_loaded": (3, "backwards"),
    "counter_of_former_life": (2, "repeat"),
    "loads_only_without_logs": (43, "stuck"),
    "load_not_exact": (5, "ahead"),
    "clock_before_last_page": (3, "unequal"),
    "taken_during_last_page": (853, "lost"),
    "old_records_forgotten": (3, "unequal"),
    "floor_unmoved": (9, "stuck"),
}
KINDS = ("calm", "cut", "old disk", "loads", "storm")
WRITES_US = 6 * SECOND
HEALED_US = 15 * SECOND
QUIET_US = 12 * SECOND  # After healing: from then on nothing is sent.
BREAKS_US = 600 * MS  # A connection breaks when one of its ways is cut so long.


@final
class Run:
    """A few nodes, what strikes them, and what is promised."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset()) -> None:
        self.chance = chance = Random(seed)
        self.kind = KINDS[min(seed % 10, 4)]
        self.planted = planted
        self.scheduler = Scheduler()
        is_storm, is_rough = self.kind in ("storm", "loads"), self.kind not in ("cut", "old disk")
        nodes, replicas = chance.choice(((3, 3), (3, 3), (3, 2), (4, 3), (5, 5))) if is_storm else (3, 3)
        self.delay_ms = chance.choice(((0.5, 3), (0.5, 3), (1, 30), (40, 90), (100, 160)) if is_rough else ((0.5, 3),))
        self.sync_ms = chance.choice(((1, 4), (1, 4), (1, 60), (100, 300)) if is_rough else ((1, 4),))
        self.message_entries = chance.choice((3, 16)) if is_storm else 16
        self.most_kept = chance.choice((4, 64)) if is_storm else 64
        self.log_entries = chance.choice((15, 15, 60, 300, 1 << 30)) if is_storm else 1 << 30
        self.rate = chance.choice((10, 40, 80)) if is_storm else 200
        if self.kind == "loads":
            self.log_entries, self.rate = 15, 120
        partitions = 3 if nodes < 5 else 2
        self.hosts = [sorted((first + i) % nodes for i in range(replicas)) for first in range(partitions)]
        self.zero: Clock = (0,) * nodes
        self.counts: Counter[str] = Counter()
        self.cuts: dict[tuple[int, int], int] = {}
        self.arrivals: dict[tuple[int, int], int] = {}
        self.gone: set[int] = set()
        self.acked: list[tuple[int, Record]] = []
        self.latencies: list[tuple[int, int]] = []
        self.issued: dict[tuple[int, Dot], Record] = {}
        self.collected: dict[tuple[int, int], Record] = {}
        self.nodes = [Node(self, i, chance.choice((0, 30, -30, -3000))) for i in range(nodes)]
        self.most_lost = (replicas - 1) // 2

    # What nodes ask of it.

    @property
    def now_us(self) -> int:
        return self.scheduler.now_us

    def after(self, range_ms: tuple[float, float], do: Callable[[], None]) -> None:
        self.scheduler.after(int(self.chance.uniform(*range_ms) * MS), do)

    def shared(self, one: int, other: int) -> list[int]:
        return [partition for partition, hosts in enumerate(self.hosts) if one in hosts and other in hosts]

    def new_record(self, partition: int, time: int, origin: int, counter: int) -> Record:
        self.counts["writes"] += 1
        key = self.chance.randrange(6)
        return Record(time, origin, counter, key, self.counts["writes"], self.chance.random() < 0.25)

    def count_sent(self, entries: list[Entry]) -> None:
        self.counts["sent"] += sum(len(entry.dots) for entry in entries)
        self.counts["late"] += self.now_us > WRITES_US + QUIET_US

    def acknowledged(self, partition: int, record: Record, began_us: int) -> None:
        self.acked.append((partition, record))
        self.latencies.append((began_us, self.now_us - began_us))

    def check_counters(self, entry: Entry) -> None:
        """Nobody has anything else under a dot that is synced."""
        for dot, record in entry.dots.items():
            if self.issued.setdefault((entry.partition, dot), record) != record:
                raise Broken("repeat")

    # The wire.

    def send(self, feed: Feed, receive: Callable[[], None]) -> None:
        """Send a message: it comes in order, late where its way is cut, or never where the connection breaks."""
        way = feed.owner.index, feed.target
        at_us = self.now_us + int(self.chance.uniform(*self.delay_ms) * MS)
        self.arrivals[way] = max(at_us, self.arrivals.get(way, 0) + 1)
        self.scheduler.at(self.arrivals[way], partial(self._arrive, feed, way, receive))

    def _arrive(self, feed: Feed, way: tuple[int, int], receive: Callable[[], None]) -> None:
        if feed.is_broken:
            return
        if way in self.cuts or feed.held:
            feed.held.append(receive)
        else:
            receive()

    def _heal(self, one: int, other: int) -> None:
        self.cuts.pop((one, other), None)
        feed = self.nodes[one].feeds.get(other)
        while feed and feed.held and not feed.is_broken:
            feed.held.popleft()()

    def _break(self, feed: Feed) -> None:
        for end in (feed, feed.other):
            end.is_broken = True
            del end.owner.feeds[end.target]
            for copy in end.owner.copies.values():
                if copy.load and copy.load.source == end.target:
                    copy.load = None

    def _connect(self, one: Node, other: Node) -> None:
        feed, back = Feed(one, other.index), Feed(other, one.index)
        feed.other, back.other = back, feed
        one.feeds[other.index], other.feeds[one.index] = feed, back
        one.tell(feed)
        other.tell(back)

    def _watch_connections(self) -> None:
        for one in self.nodes:
            for other in self.nodes[: one.index]:
                ways = ((one.index, other.index), (other.index, one.index))
                cut_us = min((self.cuts[way] for way in ways if way in self.cuts), default=self.now_us)
                if other.index in one.feeds:
                    if self.now_us - cut_us > BREAKS_US:
                        self._break(one.feeds[other.index])
                elif self.cuts.keys().isdisjoint(ways) and one.is_up and other.is_up and self.chance.random() < 0.7:
                    self._connect(one, other)

    # What strikes.

    def _crash(self, node: Node) -> None:
        if node.is_up:
            self.counts["crashes"] += 1
            for feed in list(node.feeds.values()):
                self._break(feed)
            node.is_up = False

    def _return(self, node: Node) -> None:
        if not node.is_up and node.index not in self.gone:
            node.start()

    def _strike(self) -> None:
        if self.now_us > WRITES_US:
            return
        self.after((30, 400), self._strike)
        node, other = self.chance.sample(self.nodes, 2)
        drawn = self.chance.random()
        if node.index in self.gone:
            return
        if drawn < 0.2:
            self._crash(node)
            self.scheduler.after(self.chance.choice((5, 300, 2500)) * MS, partial(self._return, node))
        elif drawn < 0.3 and other.index in node.feeds:
            self._break(node.feeds[other.index])
        elif drawn < 0.7 and len(self.cuts) < len(self.nodes):
            self.cuts.setdefault((node.index, other.index), self.now_us)
            heal = partial(self._heal, node.index, other.index)
            self.scheduler.after(self.chance.choice((50, 300, 1500, 4000)) * MS, heal)
        elif drawn < 0.8 and node.copies:
            copy = node.copies[self.chance.choice(sorted(node.copies))]
            copy.unable_until_us = self.now_us + self.chance.choice((300, 1500)) * MS

    def _lose_disks(self) -> None:
        self.gone |= {node.index for node in self.chance.sample(self.nodes, self.chance.choice((0, self.most_lost)))}
        is_everywhere = self.chance.random() < 0.5  # The power of all of them.
        for node in self.nodes:
            if is_everywhere or node.index in self.gone:
                self._crash(node)

    def _cut_link(self) -> None:
        for way in self.chance.choice((((1, 2), (2, 1)), ((1, 2),), ((2, 1),))):
            self.cuts[way] = self.now_us

    def _copy_disk(self) -> None:
        node = self.nodes[0]
        states = {partition: copy.synced.duplicate() for partition, copy in node.copies.items()}
        log, synced, places = node.log[: node.synced - node.base], node.synced, dict(node.kept_places)

        def put_back() -> None:
            self._crash(node)
            for partition, state in states.items():
                node.copies[partition].synced = state
            node.log, node.synced, node.kept_places = log, synced, places
            node.start()

        self.scheduler.after(2 * SECOND, put_back)

    def _heal_all(self) -> None:
        for way in list(self.cuts):
            self._heal(*way)
        for node in self.nodes:
            for copy in node.copies.values():
                copy.unable_until_us = 0
            self._return(node)

    # What is promised.

    def _copies(self, partition: int) -> list[Node]:
        left = [self.nodes[host] for host in self.hosts[partition]]
        return [node for node in left if node.index not in self.gone and not node.is_aside]

    def _check_equal(self) -> None:
        """No record is ahead of its copy's clock; live records are equal where clocks are."""
        for partition, hosts in enumerate(self.hosts):
            shown: dict[Clock, dict[int, Record]] = {}
            for node in self._copies(partition):
                state = node.copies[partition].synced
                if any(record.counter > state.clock[record.origin] for record in state.records.values()):
                    raise Broken("ahead")
                live = {key: record for key, record in state.records.items() if not record.is_tombstone}
                if shown.setdefault(state.clock, live) != live:
                    raise Broken("unequal")
            self._collect(partition, [self.nodes[host].copies[partition].synced.clock for host in hosts])

    def _collect(self, partition: int, clocks: list[Clock]) -> None:
        joined = self.zero
        for clock in clocks:
            joined = merge(joined, clock)
        for node in self._copies(partition):
            copy = node.copies[partition]
            if copy.load:
                continue
            for key, record in list(copy.synced.records.items()):
                is_settled = all(clock[record.origin] >= record.counter for clock in clocks)
                if record.is_tombstone and is_settled and covers(copy.synced.clock, joined):
                    self.collected[partition, key] = max(record, self.collected.get((partition, key), record))
                    del copy.synced.records[key]
                    if copy.appended.records.get(key) == record:
                        del copy.appended.records[key]

    def _is_level(self) -> bool:
        each = range(len(self.hosts))  # Equal clocks, equal records: that is looked at all the time.
        return all(len({node.copies[p].synced.clock for node in self._copies(p)}) == 1 for p in each)

    def _write(self) -> None:
        self.after((500 / self.rate, 1500 / self.rate), self._write)
        if self.now_us < WRITES_US:
            partition = self.chance.randrange(len(self.hosts))
            self.nodes[self.chance.choice(self.hosts[partition])].write(partition)

    def _p99(self, from_us: int, until_us: int) -> float:
        found = sorted(took_us for began_us, took_us in self.latencies if from_us <= began_us < until_us)
        return found[len(found) * 99 // 100] / MS if found else 0.0

    def verdict(self) -> str:
        """Run, and say what was broken, or `right`."""
        every = self.scheduler.every
        for node in self.nodes:
            self.after((0, 50), partial(every, 50 * MS, node.tick))
            self.after((0, 100), partial(every, 100 * MS, node.tell_all))
            self.after((0, 1000), partial(every, SECOND, node.keep_places))
        every(100 * MS, self._watch_connections)
        every(50 * MS, self._check_equal)
        self.scheduler.at(int((300 + 2 * self.delay_ms[1]) * MS), self._write)
        if self.kind in ("storm", "loads"):
            self.scheduler.at(SECOND // 2, self._strike)
            self.scheduler.at(WRITES_US - self.chance.choice((50 * MS, SECOND)), self._lose_disks)
            self.scheduler.at(WRITES_US, self._heal_all)
        elif self.kind == "cut":
            self.scheduler.at(2 * SECOND, self._cut_link)
        elif self.kind == "old disk":
            self.scheduler.at(SECOND, self._copy_disk)
        try:
            self.scheduler.run(WRITES_US + (HEALED_US if self.kind in ("storm", "loads") else 3 * SECOND))
        except Broken as broken:
            return str(broken)
        return self._final_verdict()

    def _final_verdict(self) -> str:
        if not self._is_level():
            return "stuck"
        for partition, record in self.acked:
            left = self._copies(partition)[0].copies[partition].synced.records.get(record.key)
            if max(filter(None, (left, self.collected.get((partition, record.key)))), default=(0,)) < record:
                return "lost"
        if self.kind == "calm" and self.counts["sent"] > 2.1 * self.counts["writes"]:
            return "travels"
        if self.kind == "cut" and self._p99(2700 * MS, WRITES_US) > 2 * self._p99(0, 2 * SECOND):
            return "slow"
        return "restless" if self.counts["late"] else "right"


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds, and name the first of each that is not right."""
    count_verdicts(Run, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
