"""The plan of one range table, remembered between the rounds of the rebalancer (`placement.ranges`).

A worker thread makes a new plan when the map, the nodes, the live nodes or the measures have changed. Plans of a large
table take long, so they are made at intervals; until the next plan, the rebalancer continues the last one.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.placement.ahead import ahead
from gossipkv.placement.lately import Lately
from gossipkv.placement.measures import HostMeasures, RangeMeasure
from gossipkv.placement.moves import next_moves, standing
from gossipkv.placement.partition import AssignmentState
from gossipkv.placement.ranges import RangePlan, plan, wanted
from gossipkv.table.controllers.splitter import DIVIDE, division

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from random import Random

    from gossipkv.placement.measures import MeasureLimits
    from gossipkv.placement.moves import MoveStep
    from gossipkv.placement.partition import Partition
    from gossipkv.placement.ranges import Move, Situation
    from gossipkv.placement.spread import Slots
    from gossipkv.register.maps import Beside
    from gossipkv.register.metadata.partitions import TableMeta

ASK_S: Final = 30.0  # Mean interval at which hosts are asked for measures.
ASK_FACTOR: Final = 0.8, 1.2  # Vary the interval: two rebalancers in step would level the same nodes for ever.
NEW_S: Final = 1.0  # Delay before new ranges are measured, since more may follow.
PAUSE: Final = 10.0  # Rest this many times the duration of a survey of all hosts,
PLAN_PAUSE: Final = 30.0  # or of a plan: its moves go on, and each of them makes a new map.
RETRY_S: Final = 60.0  # After this time, another host is asked to divide a range that is still whole.
DIVIDE_S: Final = 6.0  # Timeout of a request to divide a range.
MAX_ASKED: Final = 16  # Divisions requested in one round.
FIRST_FACTOR: Final = 4  # Planned moves that are looked at first, times the moves that may run at a node.


class RangeHosts(NamedTuple):
    """Requests to the hosts of range tables, and the settings of the planner."""

    measures: Callable[[bytes, Collection[bytes]], Awaitable[HostMeasures]]  # Parameters: table, nodes.
    divide: Callable[[bytes, bytes, int], Awaitable[object]]  # Parameters: table, node, partition.
    limits: MeasureLimits
    is_on: bool  # The setting `planner`.


@final
class RangePlanner:
    """The planner of one table."""

    def __init__(self) -> None:
        self.lately = Lately()
        self.reported = HostMeasures({})
        self.measures: Mapping[int, RangeMeasure] = {}  # `reported`, with estimates for ranges of the next period.
        self._ahead_of: object = None
        self._cuts: Sequence[tuple[bytes, Sequence[bytes]]] = ()  # First key of a range, first keys of its children.
        self.measured = 0  # Counts the surveys with news.
        self.ask_at = -inf
        self._rests_until = -inf  # Hosts are not asked before this time.
        self._moves: Sequence[tuple[int, Move]] = ()  # Partition ids and moves of the last plan.
        self._splits: Collection[int] = ()  # Ids of the partitions that the last plan divides.
        self._nodes: object = None
        self._of: object = None
        self._plan_at = -inf
        self._is_left = True  # Work was left or under way in the last round.

    def sees(self, partitions: Mapping[bytes, Partition], now: float) -> None:
        """Process a map: partitions by their first keys."""
        self.lately.read(partitions, now)
        if any(partition.id not in self.reported.measures for partition in partitions.values()):
            self.ask_at = min(self.ask_at, max(now + NEW_S, self._rests_until))

    def takes(self, measures: HostMeasures, limits: MeasureLimits, now: float, *, asked: float) -> None:
        """Process the measures of a survey that began at `asked`."""
        self._rests_until = now + PAUSE * (now - asked)
        self.lately.measured(measures.measures, limits, now)
        if self.measured and measures == self.reported and self.lately.is_over:
            return  # The last plan holds.
        self.reported, self.measures, self.measured = measures, measures.measures, self.measured + 1

    def look_ahead(self, table: TableMeta, seen: Mapping[bytes, Partition], limits: MeasureLimits, of: object) -> None:
        """Plan for the next period of a time series (`placement.ahead`); `of`: the map of `seen`."""
        if table.time_key is None or self._ahead_of == (self.measured, of):
            return
        self._ahead_of, measures = (self.measured, of), self.reported.measures.values()
        self.measures, self._cuts = self.reported.measures, []
        row_bytes = sum(measure.size_bytes for measure in measures) / (sum(measure.rows for measure in measures) or 1)
        full = min(limits.size_bytes or inf, limits.rows * row_bytes or inf)
        if full < inf:
            usual = RangeMeasure(int(full / 2) or 1, 0, sum(measure.rate for measure in measures))
            firsts, partitions = [*seen], [*seen.values()]
            found = ahead(table.time_key, firsts, self.reported.series, usual)
            coming = {partitions[at].id: measure for at, measure in found.coming.items()}
            self.measures = {**self.reported.measures, **coming}
            self._cuts = [(firsts[cut.number], cut.keys) for cut in found.cuts]

    def cuts(self, seen: Mapping[bytes, Partition], random: Random) -> list[tuple[str, object]]:
        """Return operations for the planned divisions of ranges that do not move; `seen`: the map of `look_ahead`."""
        due = [(first, seen[first], keys) for first, keys in self._cuts]
        return [
            (DIVIDE, division(first, partition, keys, random))
            for first, partition, keys in due
            if not (partition.moves or partition.has_too_many_former)
        ]

    async def steps(
        self, situation: Situation, moving: Sequence[Partition], of: object, most: int, beside: Beside
    ) -> list[MoveStep]:
        """Return the moves to begin or cancel now.

        `moving`: the partitions that move. `of`: the state planned for, whose change asks for a new plan.
        """
        if self._nodes not in (None, situation.nodes):
            self.lately.rests()
            self._plan_at = -inf  # Operators change nodes, which is rare.
        self._nodes = situation.nodes
        is_due = of != self._of and situation.now >= self._plan_at
        made, steps = await beside(partial(steps_of, situation, moving, None if is_due else self._moves, most))
        if is_due:
            ended = trio.current_time()
            self._of, self._plan_at = of, ended + PLAN_PAUSE * (ended - situation.now)
            ids = [partition.id for partition in situation.partitions]
            self._splits = {ids[split.partition] for split in made.splits}
            self._moves = [(ids[move.partition], move) for move in made.moves]
        self._is_left = bool(steps or moving or self._moves or self._splits)
        return steps

    def is_quiet(self, of: object) -> bool:
        """True if the plan for the state `of` left nothing to do."""
        return of == self._of and not self._is_left

    async def divide(
        self, table: bytes, partitions: Sequence[Partition], alive: Collection[bytes], ask: RangeHosts
    ) -> None:
        """Ask hosts to divide the planned partitions; each retry asks the next host of a partition."""
        now, asked = trio.current_time(), self.lately.asked
        there = [partition for partition in partitions if partition.id in self._splits] if self._splits else []
        due = [partition for partition in there if partition.id not in asked or now >= asked[partition.id][1] + RETRY_S]
        async with trio.open_nursery() as nursery:
            for partition in due[:MAX_ASKED]:
                self.lately.asks(partition.id, now)
                hosts = [assignment.node for assignment in partition.assignments if assignment.node in alive]
                if hosts:
                    nursery.start_soon(_divide, ask, table, hosts[int(now / RETRY_S) % len(hosts)], partition.id)


async def _divide(ask: RangeHosts, table: bytes, node: bytes, partition: int) -> None:
    with contextlib.suppress(GossipKVError):  # Another host is asked later.
        await ask.divide(table, node, partition)


def steps_of(
    situation: Situation, moving: Sequence[Partition], before: Sequence[tuple[int, Move]] | None, most: int
) -> tuple[RangePlan, list[MoveStep]]:
    """Return a plan and its steps: a new plan, or only the steps of the moves `before` that have not begun.

    `most`: as for `next_moves`, which would find the same steps among all partitions.
    """
    now = situation.partitions
    numbers = {partition.id: at for at, partition in enumerate(now)}
    made = RangePlan((), ()) if before is not None else plan(situation)
    ids = before if before is not None else [(now[move.partition].id, move) for move in made.moves]
    moves = sorted(((numbers[id_], move) for id_, move in ids if id_ in numbers), key=itemgetter(0))
    able = {*situation.alive}.difference(situation.shunned)
    move_now = {numbers[partition.id] for partition in moving}
    coming = Counter(
        assignment.node
        for partition in moving
        for assignment in partition.assignments
        if assignment.state < AssignmentState.AVAILABLE
    )
    # Moves begin in the order of partitions, but slots without a node are filled first. The rest need not be looked at
    # once no target takes more.
    count = len(moves) if any(move.source is None for _, move in moves) else FIRST_FACTOR * most
    while True:
        while 0 < count < len(moves) and moves[count][0] == moves[count - 1][0]:
            count += 1
        rest = [(number, move) for number, move in moves[count:] if number not in move_now]
        left = {move.target for _, move in rest} & able
        due = moves if not rest else [*moves[:count], *(some for some in moves[count:] if some[0] in move_now)]
        steps = _steps(now, move_now, due, partial(next_moves, most=most, able=able.__contains__))
        begun = coming + Counter(step.target for step in steps if step.unassign is None)
        if all(begun[target] >= most for target in left):
            return made, steps
        count *= FIRST_FACTOR


def _steps(
    now: Sequence[Partition],
    move_now: Collection[int],
    moves: Sequence[tuple[int, Move]],
    next_of: Callable[[Sequence[Partition], Sequence[Slots]], list[MoveStep]],
) -> list[MoveStep]:
    """Return the steps of the moves that have not begun, by the numbers of partitions, and of those that move now."""
    stands = {number: standing(now[number]) for number in sorted({*move_now, *(number for number, _ in moves)})}
    places = {number: at for at, number in enumerate(stands)}
    left: list[Move] = []
    for number, move in moves:
        slots = stands[number]
        source = slots[move.slot] if move.slot < len(slots) else None
        if source == move.source and move.target not in slots:
            left.append(move._replace(partition=places[number]))
    steps = next_of([now[number] for number in stands], wanted([*stands.values()], left))
    here = [*stands]
    return [step._replace(partition=here[step.partition]) for step in steps]
