"""Ranges of a time series split ahead of the writes: the rules of the planner, with six nodes in made-up time.

Writes come at a steady rate in the order of time, so each hour has several ranges. Every half minute the planner sees
the
measures; its splits and moves take effect at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.ahead import MAX_AHEAD, ahead
from gossipkv.placement.measures import RangeMeasure, SeriesWrites
from gossipkv.placement.moves import standing
from gossipkv.table.controllers.plan import ASK_S
from tests.unit.placement.ranged import LIMITS, Ranged

KEY = TimeKey(0, 8, "s")
HOUR_S = 3600
NODES = 6
PERIOD_BYTES = 24 * LIMITS.size_bytes // 2  # Per hour: 24 ranges of the usual size.
RATE = 1000.0
TEN_TIMES = 10  # The writes, in multiples of one range's load.


def at(second):
    return second.to_bytes(8, "big")


class Series(Ranged):
    """The table, with the time at which each range was made and last moved."""

    def __init__(self):
        super().__init__([[1]], nodes=NODES, replication=1)
        self.made, self.moved = {b"": 0}, {}

    def cut(self, key, keys):
        (held,) = self.map[key].assignments
        self.map |= {first: self.partition([int(held.node)]) for first in (key, *keys)}
        self.map = dict(sorted(self.map.items()))
        self.made |= dict.fromkeys(keys, self.now)

    def look_ahead(self, second):
        """Give the planner the writes up to this second, and apply its plan."""
        usual = RangeMeasure(LIMITS.size_bytes // 2, 0, RATE)
        written = SeriesWrites(
            b"", max(0, second - HOUR_S), second, PERIOD_BYTES * min(second, HOUR_S) // HOUR_S, min(second, HOUR_S)
        )
        found = ahead(KEY, [*self.map], [written], usual)
        for cut in found.cuts:
            self.cut([*self.map][cut.number], cut.keys)
        coming = ahead(KEY, [*self.map], [written], usual).coming
        firsts = [int.from_bytes(first, "big") for first in self.map]
        for number, (one, first, end) in enumerate(
            zip(self.map.values(), firsts, [*firsts[1:], 1 << 40], strict=True)
        ):  # fmt: skip
            size = PERIOD_BYTES * max(0, min(end, second) - first) // HOUR_S
            self.measures[one.id] = coming.get(number) or RangeMeasure(size, 0, RATE if first <= second < end else 0.0)
        self.look()
        before = {key: standing(one) for key, one in self.map.items()}
        made = self.plan()
        self.do(made._replace(splits=()))
        for key, one in self.map.items():
            if standing(one) != before[key]:
                self.moved[key] = self.now

    def taken(self, first, end):
        """Return the load that nodes take if ten times one node's load is spread evenly over a stretch."""
        starts = [*self.map]
        held = Counter()
        for second in range(first, end):
            (node,) = standing(self.map[starts[bisect_right(starts, at(second)) - 1]])
            held[node] += 1
        return sum(min(1.0, TEN_TIMES * count / (end - first)) for count in held.values())


def test_the_next_period_is_there_before_it_is_written_to():
    """For hours, ranges exist a minute before their writes, mostly on their final nodes.

    Few ranges are ahead, and none once writes stop.
    """
    series, reached, late = Series(), 0, 0
    for second in range(0, 5 * HOUR_S, int(ASK_S)):
        series.now = second
        series.look_ahead(second)
        ahead_of = [key for key in series.map if key > at(second)]
        assert len(ahead_of) <= MAX_AHEAD
        for key in [key for key in series.map if at(second - int(ASK_S) if second else 0) < key <= at(second)]:
            reached += 1
            due = int.from_bytes(key, "big") - 60
            assert series.made[key] <= due, (key, series.made[key])
            late += series.moved.get(key, 0) > due
    assert reached >= 80
    assert late <= reached / 10, (late, reached)
    assert not ahead(KEY, [*series.map], [], RangeMeasure(1)).cuts


def test_all_nodes_take_it():
    """Late data that fill a whole period get at least five times the load of one range's hosts."""
    series = Series()
    for second in range(0, 2 * HOUR_S, int(ASK_S)):
        series.now = second
        series.look_ahead(second)
    *_, first, last = [int.from_bytes(key, "big") for key in series.map][-25::24]  # Both keys delimit a whole period.
    assert series.taken(first, last) >= 5
    assert Series().taken(0, HOUR_S) == 1.0
