"""The rebalancer of range tables: its requests, from a given map and the reports of hosts."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from math import inf
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from gossipkv.errors import Unavailable
from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.lately import LATELY_S
from gossipkv.placement.measures import HostMeasures, MeasureLimits, RangeMeasure, SeriesWrites
from gossipkv.placement.moves import next_moves, standing
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.placement.ranges import LARGE_S, Move, plan, wanted
from gossipkv.placement.spread import SpreadNode
from gossipkv.register.metadata.operations import OperationOutcome
from gossipkv.register.metadata.partitions import RANGE, TableMeta
from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers import plan as planning
from gossipkv.table.controllers.plan import ASK_S, PLAN_PAUSE, RETRY_S, RangeHosts, steps_of
from gossipkv.table.controllers.rebalancer import Rebalancer
from tests.unit.placement.ranged import Ranged
from tests.unit.placement.test_ranges import drawn
from tests.unit.table.edited_maps import judged
from tests.unit.table.local_tables import local_tables
from tests.unit.table.moved_map import TABLE, MovedMap, node

MIB = 1 << 20
LIMITS = MeasureLimits(512 * MIB, 0)


class Ranges(MovedMap):
    """A range table; `slots` lists the node numbers of each range."""

    def __init__(self, slots, *, nodes=4, time_key=None):
        self.table = TableMeta(TABLE, "t", RANGE, len(slots[0]), 0, time_key=time_key)
        super().__init__(nodes=nodes, replication=len(slots[0]), servers=range(1, nodes + 1))
        ranges = {
            b"%03d" % at if at else b"": Partition.of(
                at + 1,
                [Assignment(100 * at + one + 1, node(n), one, AssignmentState.AVAILABLE) for one, n in enumerate(some)],
            )
            for at, some in enumerate(slots)
        }
        self.refused = 0
        self._begin(self.table, ranges)

    async def transact(self, table, operations, timeout_s):
        """Judge the operations, and count the refused ones."""
        self.asked += [(one.name, one.argument) for one in operations]
        base, answers = judged(self._base, operations)
        self.refused += sum(answer.outcome is OperationOutcome.REFUSED for answer in answers)
        self._take(base)

    def arrive(self):
        """Finish all moves."""
        ranges = {entry.key: one for entry, one in zip(self.view(TABLE).scan(), self.partitions, strict=True)}
        done = {}
        for key, one in ranges.items():
            coming = {each.slot for each in one.assignments if each.state is not AssignmentState.AVAILABLE}
            stay = [
                each
                for each in one.assignments
                if each.slot not in coming or each.state is not AssignmentState.AVAILABLE
            ]
            done[key] = Partition.of(one.id, [each._replace(state=AssignmentState.AVAILABLE) for each in stay])
        if done != ranges:
            self._begin(self.table, done, self.config + 1)

    @property
    def held(self):
        return Counter(one.node[0] for partition in self.partitions for one in partition.assignments)


class Planner:
    """The rebalancer of a node that sees itself as the first live node."""

    def __init__(self, world, number=1, *, alive=(1, 2, 3, 4), is_on=True, sizes=(), plan_s=0.0):
        self.sizes, self.asked, self.divided, self.plan_s = [*sizes], 0, [], plan_s
        self.series = []
        self.world, self.alive = world, alive
        self.me, self.view = SimpleNamespace(node=node(number)), world.view
        tables = local_tables(
            metadata=self, catalogue=world, alive=lambda: [*map(node, self.alive)], beside=self._beside,
            random=world.random, settings=TableSettings(max_moves=2),
        )  # fmt: skip
        self.moving = Rebalancer(tables, RangeHosts(self._measures, self._divide, LIMITS, is_on))

    @property
    def known(self):
        return self.world.known

    async def _measures(self, table, nodes):
        self.asked += 1
        ids = [one.id for one in self.world.partitions]
        measures = {id_: RangeMeasure(size) for id_, size in zip(ids, self.sizes, strict=False) if size is not None}
        return HostMeasures(measures, self.series)

    async def _divide(self, table, host, partition):
        self.divided.append((partition, host[0]))
        raise Unavailable("another one may do so")

    async def _beside(self, do):
        await trio.sleep(self.plan_s)
        return do()


def during(*planners, seconds=3600, then=None):
    """Run rebalancers, and finish moves some seconds after their start."""

    async def scenario():
        async with trio.open_nursery() as nursery:
            for one in planners:
                nursery.start_soon(one.moving.run)
            for at in range(seconds // 5):
                await trio.sleep(5)
                planners[0].world.arrive()
                if then is not None:
                    then(at * 5)
            nursery.cancel_scope.cancel()

    trio.run(scenario, clock=MockClock(autojump_threshold=0))


def test_what_people_ask_for_is_done_without_the_planner():
    """Operators' changes are executed if the planner is off or no measures are known."""
    for is_on, sizes in ((False, [MIB] * 8), (True, [])):
        world = Ranges([(1, 2)] * 8)
        during(Planner(world, is_on=is_on, sizes=sizes), seconds=60)
        assert world.asked == []
        world.named[node(2)] = world.named[node(2)]._replace(weight=0)
        during(Planner(world, is_on=is_on, sizes=sizes), seconds=120)
        assert (len(world.asked), world.held[2]) == (8, 0)


def test_a_dead_node_gets_nothing():
    """A dead node neither gets nor gives ranges."""
    world = Ranges([(1,), (1,), (1,), (1,), (3,), (3,)])
    during(Planner(world, alive=(1, 2, 4), sizes=[MIB] * 6))
    assert world.held == {1: 2, 2: 1, 3: 2, 4: 1}


def test_when_people_change_the_nodes_nothing_has_to_rest():
    """A node that was removed and returns gets its share at once."""
    world = Ranges([(1,), (1,), (1,), (2,), (2,), (2,)], nodes=3)
    world.named[node(2)] = world.named[node(2)]._replace(weight=0)
    held = []

    def look(at):
        if at == 120:
            held.append(dict(world.held))
            world.named[node(2)] = world.named[node(2)]._replace(weight=1)

    during(Planner(world, alive=(1, 2, 3), sizes=[MIB] * 6), seconds=300, then=look)
    assert held == [{1: 3, 3: 3}]
    assert world.held == {1: 2, 2: 2, 3: 2}


def test_hosts_are_asked_to_divide():
    """A minute after a range was seen over the limit, hosts are asked in turn for ten minutes."""
    world = Ranges([(1, 2, 3)])
    planner = Planner(world, alive=(1, 3, 4), sizes=[513 * MIB])
    times = []

    def look(at):
        times.append((at, len(planner.divided)))

    during(planner, then=look)
    assert planner.divided[:3] == [(1, 3), (1, 1), (1, 3)]
    assert len(planner.divided) in range(int(LATELY_S / RETRY_S), int(LATELY_S / RETRY_S) + 2)
    first = next(at for at, count in times if count)
    assert LARGE_S <= first <= LARGE_S + ASK_S + 5
    assert world.asked == []


def test_a_large_table_is_not_planned_all_the_time(monkeypatch):
    """Earlier plans continue while no new plan is made."""
    world, made = Ranges([(1, 2)] * 24), []

    def counted(situation):
        made.append(situation.now)
        return plan(situation)

    monkeypatch.setattr(planning, "plan", counted)
    during(Planner(world, sizes=[MIB] * 24, plan_s=3.0), seconds=300)
    assert all(after >= before + 3.0 * PLAN_PAUSE for before, after in pairwise(made))
    assert world.held == dict.fromkeys((1, 2, 3, 4), 12)
    assert len(made) < 12


def test_a_change_of_nodes_is_planned_for_at_once(monkeypatch):
    """The rest after a long plan is for changes that come by themselves."""
    world, made = Ranges([(1, 2)] * 24), []
    monkeypatch.setattr(planning, "plan", lambda situation: made.append(situation.now) or plan(situation))
    planner = Planner(world, sizes=[MIB] * 24, plan_s=30.0)

    def look(at):
        if at == 100:
            world.named[node(2)] = world.named[node(2)]._replace(weight=0)

    during(planner, seconds=200, then=look)
    assert [at for at in made if 100 < at <= 200], made


def test_the_plan_of_a_table_at_rest_holds_until_its_measures_are_others(monkeypatch):
    world, made = Ranges([(1, 2), (3, 4)]), []
    monkeypatch.setattr(planning, "plan", lambda situation: made.append(situation.now) or plan(situation))
    planner = Planner(world, sizes=[MIB] * 2)

    def look(at):
        if at == 600:
            planner.sizes[0] = 2 * MIB

    during(planner, seconds=1200, then=look)
    assert planner.asked >= 1200 / ASK_S - 2
    *begun, later = made
    assert begun <= [0.0, 1.0], "without measures, and with the first ones"
    assert 600 <= later <= 600 + ASK_S + 10
    assert world.asked == []


def test_what_a_plan_is_told_to_people_goes_by():
    """The planning node uses its own memory; other nodes treat a large range as old."""
    planner, measures = Planner(Ranges([(1, 2, 3)]), sizes=[513 * MIB]), {1: RangeMeasure(513 * MIB)}
    nodes = [SpreadNode(node(1), "", 1)]

    async def ask():
        return planner.moving.known(TABLE, nodes, measures)

    known = trio.run(ask)
    assert (known.lately.large, known.measures) == ({1: -inf}, measures)
    during(planner, seconds=60)
    assert trio.run(ask).lately.large[1] > -inf
    planner.me.node = node(2)  # The node plans no more.
    assert trio.run(ask).lately.large == {1: -inf}


@pytest.mark.parametrize("is_on", [True, False])
def test_a_time_series_is_divided_ahead(is_on):
    """The next period gets ranges on all nodes once, unless operators plan."""
    world = Ranges([[1, 2]], time_key=TimeKey(0, 8, "s"))
    planner = Planner(world, is_on=is_on, sizes=[600 * MIB])
    planner.series = [SeriesWrites(b"", 100_000, 103_600, 2048 * MIB, 3600)]
    during(planner, seconds=600)
    divided = [argument for name, argument in world.asked if name == "divide"]
    assert len(divided) == is_on
    if not is_on:
        return
    (division,) = divided
    assert [int.from_bytes(one.first, "big") for one in division.children[1:]] == [
        103_900 + 450 * at for at in range(8)
    ]
    assert world.refused == 0
    assert {*world.held.values()} <= {4, 5}  # Nine ranges have two replicas each.


@given(st.randoms(use_true_random=False))
def test_the_steps_are_those_of_a_walk_over_the_whole_map(random):
    table, before = drawn(random), None
    for _ in range(4):
        situation, most = table.situation(), random.randint(1, 3)
        now, able = situation.partitions, {*situation.alive}.difference(situation.shunned)
        made, steps = steps_of(situation, [one for one in now if one.moves], before, most)
        stands, planned = [*map(standing, now)], made.moves
        if before is None:
            before = [(now[move.partition].id, move) for move in planned]
        else:
            planned = [
                move
                for _, move in before
                for slots in [(*stands[move.partition], *[None] * situation.replication)]
                if slots[move.slot] == move.source and move.target not in slots
            ]
        assert steps == next_moves(now, wanted(stands, planned), most, able=able.__contains__)
        for step in steps:
            held = [one for one in now[step.partition].assignments if one.id != step.unassign]
            if step.unassign is None:
                state = random.choice((AssignmentState.PROPOSED, AssignmentState.INITIALIZING))
                held.append(Assignment(next(table.ids), step.target, step.slot, state))
            if random.random() < 0.7:
                table.put(step.partition, Partition.of(now[step.partition].id, held))
        table.shunned = {one for one in table.nodes if random.random() < 0.2}


def test_a_round_makes_no_more_calls_in_a_larger_map():
    """A few moves of a plan are left; most partitions stay where they are."""
    calls = []
    for count in (200, 2000):
        table = Ranged([(1,)] * count, nodes=2, replication=1)
        situation, called = table.situation(), []
        table_nodes = [one.id for one in situation.nodes]
        before = [(one.id, Move(at, 0, *table_nodes, "")) for at, one in enumerate(situation.partitions[:150])]
        profile = sys.getprofile()
        sys.setprofile(lambda frame, event, _, called=called: called.append(event) if event == "call" else None)
        _, steps = steps_of(situation, [], before, 16)
        sys.setprofile(profile)
        assert len(steps) == 16
        calls.append(len(called))
    assert calls[1] < 1.05 * calls[0]
