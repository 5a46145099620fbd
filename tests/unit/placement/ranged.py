"""A range table for tests of its planner: a map, its measures, and the effects of a plan."""

from __future__ import annotations

from collections import Counter
from itertools import count

from gossipkv.placement.lately import Lately
from gossipkv.placement.measures import MeasureLimits, RangeMeasure
from gossipkv.placement.moves import standing
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.placement.ranges import Situation, plan
from gossipkv.placement.spread import SpreadNode
from tests.unit.placement.hosted import node

MIB = 1 << 20
LIMITS = MeasureLimits(512 * MIB, 2_000_000)


class Ranged:
    """A range table whose moves and splits are done as soon as they are planned."""

    def __init__(self, slots, *, nodes=None, replication=3, weights=None, groups=None):
        """`slots` has the node numbers of each partition; `nodes` is the number of nodes."""
        self.ids = count(1)
        self.replication = replication
        numbers = range(1, 1 + (nodes or max(max(some, default=1) for some in slots)))
        weights, groups = weights or {}, groups or {}
        self.nodes = {one: SpreadNode(node(one), groups.get(one, ""), weights.get(one, 1)) for one in numbers}
        self.dead, self.shunned = set(), set()
        self.map = {b"%06d" % at if at else b"": self.partition(some) for at, some in enumerate(slots)}
        self.measures = {}
        self.lately = Lately()
        self.now, self.is_on = 0.0, True
        self.look()

    def partition(self, slots, former=()):
        """Return a partition on these nodes; 0 is an empty slot."""
        id_ = next(self.ids)
        held = (
            Assignment(next(self.ids), node(one), slot, AssignmentState.AVAILABLE)
            for slot, one in enumerate(slots)
            if one
        )
        return Partition.of(id_, held)._replace(former=tuple(former))

    def measure(self, *sizes, rates=()):
        """Set the bytes and the requests a second of partitions, in order."""
        rates = [*rates] + [0.0] * (len(sizes) - len(rates))
        for partition, size, rate in zip(self.map.values(), sizes, rates, strict=False):
            if size is not None:
                self.measures[partition.id] = RangeMeasure(size, size // 1000, rate)
        self.look()
        return self

    def look(self):
        """Show the planner the current map and sizes."""
        self.lately.read(dict(self.map), self.now)
        self.lately.measured(self.measures, LIMITS, self.now)

    def put(self, at, partition):
        self.map[[*self.map][at]] = partition
        self.look()

    def situation(self, **changed):
        held = {
            "partitions": [*self.map.values()],
            "replication": self.replication,
            "nodes": [*self.nodes.values()],
            "alive": {node(one) for one in self.nodes if one not in self.dead},
            "shunned": {*map(node, self.shunned)},
            "measures": self.measures,
            "limits": LIMITS,
            "lately": self.lately,
            "now": self.now,
            "is_on": self.is_on,
        }
        return Situation(**(held | changed))

    def plan(self):
        return plan(self.situation())

    def moves(self):
        """Return the moves of a plan: partition, slot, and the numbers of source and target."""
        return [(one.partition, one.slot, one.source and int(one.source), int(one.target)) for one in self.plan().moves]

    def do(self, made):
        keys = [*self.map]
        for move in made.moves:
            before = self.map[keys[move.partition]]
            stay = [one for one in before.assignments if one.slot != move.slot]
            come = Assignment(next(self.ids), move.target, move.slot, AssignmentState.AVAILABLE)
            self.map[keys[move.partition]] = Partition.of(before.id, [*stay, come])
        for split in made.splits:
            self.divide(keys[split.partition])
        self.look()

    def divide(self, key):
        """Split a partition into two halves, on the same nodes."""
        parent = self.map[key]
        children = [self.partition([int(one.node) for one in parent.assignments]) for _ in range(2)]
        had = self.measures.pop(parent.id, None)
        keys = key, key + b"5"
        while keys[1] in self.map:
            keys = key, keys[1] + b"5"
        for first, child in zip(keys, children, strict=True):
            self.map[first] = child
            if had is not None:
                self.measures[child.id] = RangeMeasure(had.size_bytes // 2, had.rows // 2, had.rate / 2)
        self.map = dict(sorted(self.map.items()))

    def rest(self, most=50, each_s=601.0):
        """Plan and carry out until nothing is planned; return the number of rounds."""
        for times in range(most):
            made = self.plan()
            if not made.moves and not made.splits:
                return times
            self.do(made)
            self.now += each_s
            self.look()
        raise AssertionError(f"{most} plans, and no end")

    def loads(self):
        """Return the load of each living node by weight, relative to the even load."""
        held = Counter()
        for partition in self.map.values():
            for one in standing(partition):
                held[one] += self.measures[partition.id].size_bytes
        living = [one for number, one in self.nodes.items() if number not in self.dead]
        even = sum(held[one.id] for one in living) / sum(one.weight for one in living)
        return {int(one.id): held[one.id] / one.weight / even for one in living}
