"""A time series at ten times the capacity of a range's hosts is smeared by the waiting cores of six nodes.

At this rate a range of the usual size covers five seconds, so without smearing all puts go to one range at a time.
Hosts take a limited number of puts a second of a range and refuse the rest. A smearing node restarts meanwhile with its
synced puts, and some answers are lost. The time is simulated.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter, defaultdict

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.replication.replica.hlc import ms_of
from gossipkv.replication.replica.smeared import LATEST_MS
from gossipkv.table.controllers.smear_schedule import MAX_WAIT_MS, SmearSchedule

TAKEN = 200  # The number of puts of a range that its hosts take in a second.
RATE = 10 * TAKEN  # The number of puts that arrive in a second.
RANGE_S, RANGES = 5, 24
TICK_S = 0.25
LOST = 0.01  # The share of lost answers.
WINDOW_S = 20
TIME_KEY = TimeKey(0, 8, "ms")
TABLE = bytes(16)
WALL_MS = 1_700_000_000_000


class Smearer:
    """A node that hosts none of these ranges: its waiting core, and the rows of its store."""

    def __init__(self, seed):
        self.seed = seed
        self.rows = []
        self.begin(0.0)

    def begin(self, now):
        self.seed += 100
        self.core = SmearSchedule(random.Random(self.seed))
        self.core.begin(now, WALL_MS + int(now * 1000), self.rows[-1].at if self.rows else None)
        for put in self.rows:
            self.core.count(put)
        self.core.is_counted = True

    def put(self, key, now):
        if not self.core.admits(len(key), WALL_MS + int(now * 1000), 0):
            return False
        put = self.core.accept(TABLE, key, key, now, WALL_MS + int(now * 1000))
        insort(self.rows, put)
        self.core.is_there(put)
        return True

    def forward(self, now, take):
        """Forward due puts to hosts; `take` returns True if a host has confirmed the put."""
        while (span := self.core.span(now)) is not None:
            first, end = (bisect_left(self.rows, bound, key=lambda put: put.at) for bound in span)
            puts = self.core.send(self.rows[first:end])
            for put in puts:
                is_taken = take(put)
                self.rows.pop(bisect_left(self.rows, put))
                if is_taken:
                    self.core.forget(put)
                else:
                    again = self.core.later(put, now)
                    insort(self.rows, again)
                    self.core.is_put_off(put, again)
            if not puts:
                return


class Series:
    """The hosts of all ranges, with the puts that each took in each second, and the smearing nodes."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.nodes = [Smearer(seed + number) for number in range(6)]
        self.taken = defaultdict(Counter)  # By range and second.
        self.had = Counter()  # The number of arrivals by key.
        self.refused = self.not_kept = 0
        self.now = 0.0

    def take(self, put):
        """Write a put and confirm it, unless the range is over its capacity or the answer is lost."""
        second, number = int(self.now), self.range_of(put.key)
        if self.taken[number][second] >= TAKEN:
            self.refused += 1
            return False
        assert int(self.now * 1000) + WALL_MS - ms_of(put.time) < LATEST_MS
        self.had[put.key] += 1
        if self.had[put.key] == 1:
            self.taken[number][second] += 1
        return self.random.random() >= LOST

    @staticmethod
    def range_of(key):
        return (int.from_bytes(key[:8], "big") - WALL_MS) // (RANGE_S * 1000)

    def run(self):
        """Run the series to its end, until no put waits."""
        count = 0
        while any(node.rows for node in self.nodes) or count < RATE * RANGE_S * RANGES:
            self.now += TICK_S
            while count < min(RATE * self.now, RATE * RANGE_S * RANGES):
                at_ms = WALL_MS + count * 1000 // RATE
                key = at_ms.to_bytes(8, "big") + b"/%d" % count
                self.not_kept += not self.random.choice(self.nodes).put(key, self.now)
                count += 1
            if self.now == RANGE_S * RANGES / 2:
                self.nodes[0].begin(self.now)
            for node in self.nodes:
                node.forward(self.now, self.take)
        return count


def test_ranges_are_filled_evenly_and_nothing_is_lost():
    """Each range fills over at least two minutes, within a tenth of its mean rate, and is never refused."""
    first, end = (WALL_MS.to_bytes(8, "big"), (WALL_MS + RANGE_S * 1000).to_bytes(8, "big"))
    assert TIME_KEY.is_short(first, end)
    series = Series(seed=1)
    count = series.run()
    assert (len(series.had), series.refused, series.not_kept) == (count, 0, 0)
    assert series.now <= RANGE_S * RANGES + MAX_WAIT_MS / 1000 + 15  # Some answers were lost.
    for number in range(RANGES):
        begins = number * RANGE_S + RANGE_S  # By then all puts of the range have arrived.
        taken = series.taken[number]
        assert sum(taken.values()) == RATE * RANGE_S
        whole = (MAX_WAIT_MS // 1000 - RANGE_S) // WINDOW_S
        windows = [sum(taken[begins + at * WINDOW_S + one] for one in range(WINDOW_S)) for at in range(whole)]
        even = RATE * RANGE_S * WINDOW_S / (MAX_WAIT_MS / 1000)
        assert all(0.9 * even <= window <= 1.1 * even for window in windows), (number, even, windows)
        assert max(taken.values()) < TAKEN
        assert max(taken) - min(taken) >= MAX_WAIT_MS / 1000
