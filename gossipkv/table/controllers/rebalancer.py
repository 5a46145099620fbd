"""The rebalancer: turns the difference between the present and the wanted map into assignments.

Each metadata server of a table has a rebalancer; by convention the first live server acts, and two are harmless. A
rebalancer begins a limited number of moves per node, and cancels unwanted ones. The hosts do the rest
(`controllers.migrator`). The wanted map of a hash table is computed in a worker thread when nodes or groups change; a
move towards that map does not change it. Partitions of a range table and their measures change all the time, so
`controllers.plan` picks the next steps for them.

A target that was given up twice is passed over for an hour. Only nodes of tables in the catalogue get partitions;
while the catalogue names no node, nothing moves.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError
from gossipkv.log import Log
from gossipkv.placement import ranges
from gossipkv.placement.moves import next_moves, standing
from gossipkv.placement.partition import AssignmentState
from gossipkv.placement.ranges import Situation
from gossipkv.placement.spread import regroup, spread
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.known import entries_of
from gossipkv.register.metadata.nodes import placed
from gossipkv.register.metadata.operations import MAX_OPERATIONS, OPERATION_ID_BYTES, Operation
from gossipkv.register.metadata.partitions import RANGE, decode_partition, decode_table
from gossipkv.table.controllers.abandoned_restores import AbandonedRestores
from gossipkv.table.controllers.pause import Pause
from gossipkv.table.controllers.plan import ASK_FACTOR, ASK_S, RangePlanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gossipkv.placement.measures import RangeMeasure
    from gossipkv.placement.moves import MoveStep
    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Slots, SpreadNode
    from gossipkv.register.entries import Leaf
    from gossipkv.register.metadata.known import KnownMap, MapEntry, MapView
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.plan import RangeHosts

LOOK_S: Final = 1.0  # Usual time between two rounds while no map changes.
DONE_S: Final = 5.0  # Timeout of a transaction.
FAILURES: Final = 2
PASSED_OVER_S: Final = 3600.0


class TablePlan(NamedTuple):
    """A table's present map, and the wanted one."""

    table: TableMeta
    partitions: Sequence[Partition]
    wanted: Sequence[Slots]
    groups: Sequence[Sequence[bytes]]  # Groups of nodes, with new nodes.
    ranges: ranges.RangePlan = ranges.RangePlan((), ())  # The plan from which a range table's wanted map follows.

    def moves(self) -> list[tuple[Partition, int, bytes | None, bytes]]:
        """Return partition, slot, source and target of each move that has not begun."""
        return [
            (partition, slot, stands[slot] if slot < len(stands) else None, target)
            for partition, slots in zip(self.partitions, self.wanted, strict=True)
            for stands in [standing(partition)]
            for slot, target in enumerate(slots)
            if target is not None and target not in stands
        ]


def grouped(table: TableMeta, nodes: Sequence[SpreadNode]) -> Sequence[Sequence[bytes]]:
    """Return a table's groups, extended by the nodes added since the groups were formed."""
    if not table.groups:
        return ()
    try:
        return regroup(nodes, len(table.groups), table.replication, table.groups)
    except ValueError:  # A reshard at the same time as a removal has left too few nodes.
        return table.groups


def planned(tree: MapView, nodes: Sequence[SpreadNode], situation: Situation | None = None) -> TablePlan:
    """Return the wanted map of a table; slow for thousands of partitions.

    `situation`: the situation of a range table, apart from its map; None: no measures, and all nodes alive.
    """
    table = decode_table(tree.meta)
    if table.kind == RANGE:
        situation = laid_out(tree, situation or Situation(nodes=nodes, alive={node.id for node in nodes}))
        made = ranges.plan(situation)
        stands = [*map(standing, situation.partitions)]
        return TablePlan(table, situation.partitions, ranges.wanted(stands, made.moves), (), made)
    partitions = [decode_partition(entry.record) for entry in tree.scan()]
    groups = grouped(table, nodes)
    wanted = spread(nodes, table.replication, [*map(standing, partitions)], [*map(set, groups)])
    return TablePlan(table, partitions, wanted, groups)


def laid_out(tree: MapView, situation: Situation) -> Situation:
    """Return the situation of a range table with the partitions of its map; slow for a large table."""
    partitions = [decode_partition(entry.record) for entry in tree.scan()]
    return replace(situation, partitions=partitions, replication=decode_table(tree.meta).replication)


class _MapLeaf(NamedTuple):
    """Consecutive partitions by their first keys, and the moving ones among them."""

    partitions: dict[bytes, Partition]
    moving: list[Partition]

    @classmethod
    def of(cls, entries: Iterable[MapEntry]) -> _MapLeaf:
        partitions = {entry.key: decode_partition(entry.record) for entry in entries}
        return cls(partitions, [partition for partition in partitions.values() if partition.moves])


@dataclass(eq=False)
class _TableView:
    """The decoded map of one table, and the state of its moves."""

    known_map: KnownMap | None = None
    leaves: dict[Leaf, _MapLeaf] = field(default_factory=dict)
    partitions: dict[bytes, Partition] = field(default_factory=dict)
    moving: list[Partition] = field(default_factory=list)
    changed: list[Partition] = field(default_factory=list)  # Partitions in leaves that the map before had not.
    wanted_of: object = None  # Input of `wanted`: nodes, table, first keys.
    wanted: Sequence[Slots] = ()
    targets: dict[int, bytes] = field(default_factory=dict)  # Incoming assignments, and their nodes.
    is_quiet: bool = False  # True if this map and these nodes leave nothing to do.
    planning: RangePlanner | None = None  # None for a hash table.

    def read(self, known_map: KnownMap) -> None:
        """Read a map; unchanged leaves are not decoded again. If that raises, the view stays at the map before."""
        leaves = known_map.view.leaves
        changed = {leaf: _MapLeaf.of(entries_of(leaf)) for leaf in leaves if leaf not in self.leaves}
        self.leaves = {leaf: changed.get(leaf) or self.leaves[leaf] for leaf in leaves}
        self.partitions, self.moving = {}, []
        for leaf in self.leaves.values():
            self.partitions |= leaf.partitions
            self.moving += leaf.moving
        self.changed = [partition for leaf in changed.values() for partition in leaf.partitions.values()]
        self.known_map, self.is_quiet = known_map, False


@final
class Rebalancer:
    """The rebalancer of a node."""

    def __init__(self, tables: LocalTables, hosts: RangeHosts) -> None:
        self._metadata, self._catalogue = tables.metadata, tables.catalogue
        self._alive, self._beside, self._random = tables.alive, tables.beside, tables.random
        self._max_moves = tables.settings.max_moves  # Concurrent moves per table and node.
        self._stall_s = tables.stall_s
        self._hosts = hosts
        self._seen: dict[bytes, _TableView] = {}
        self._failures: Counter[bytes] = Counter()
        self._failed_at: dict[bytes, float] = {}  # Failures soon afterwards have the same cause.
        self.passed_over: dict[bytes, float] = {}  # Nodes that are no targets until these times.
        self._abandoned_restores = AbandonedRestores(tables, self.mover_of)
        self._is_measuring = False
        self.pause = Pause(LOOK_S)
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Begin moves, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                began = trio.current_time()
                for look in (self.look, self._abandoned_restores.look):
                    with contextlib.suppress(GossipKVError):  # The next round tries again.
                        await look()
                if not self._is_measuring and any(seen.planning for seen in self._seen.values()):
                    self._is_measuring = True
                    nursery.start_soon(self._measure)
                is_quiet = all(seen.is_quiet for seen in self._seen.values()) and self._abandoned_restores.is_quiet
                await self.pause.rest(began, is_quiet=is_quiet)

    async def _measure(self) -> None:
        """Ask hosts for the measures of range tables at intervals, while there are such tables."""
        hosts = self._hosts
        while any(seen.planning for seen in self._seen.values()):
            for table, seen in [*self._seen.items()]:
                planning = seen.planning
                if planning is None or trio.current_time() < planning.ask_at or not self._acts(table):
                    continue
                nodes = {
                    assignment.node for partition in seen.partitions.values() for assignment in partition.assignments
                }
                began = trio.current_time()
                measures = await hosts.measures(table, nodes & {*self._alive()})
                planning.takes(measures, hosts.limits, trio.current_time(), asked=began)
                planning.ask_at = trio.current_time() + ASK_S * self._random.uniform(*ASK_FACTOR)
                self.pause.end()
            await rest(LOOK_S)
        self._is_measuring = False

    async def look(self) -> None:
        """Begin or cancel the next moves of the tables for which this node acts.  Raises GossipKVError."""
        nodes = placed(self._catalogue.nodes.named())
        tables = {table.id for table in self._catalogue.tables().values()}
        self._seen = {table: seen for table, seen in self._seen.items() if table in tables}
        for table in sorted(tables) if nodes else ():
            if self._acts(table):
                with contextlib.suppress(GossipKVError):  # For example, a page is missing here.
                    await self._look_at(table, nodes)

    def mover_of(self, table: bytes) -> bytes:
        """Return the node that begins a table's moves, as far as known here; empty if no such node is alive."""
        known_map = self._metadata.known.get(table)
        if known_map is None or known_map.ended:
            return b""
        servers = {acceptor.node for acceptor in known_map.acceptors.new}
        return min(servers.intersection(self._alive()), default=b"")

    def _acts(self, table: bytes) -> bool:
        return self._metadata.me.node == self.mover_of(table)

    async def _look_at(self, table: bytes, nodes: list[SpreadNode]) -> None:
        known_map, seen = self._metadata.known[table], self._seen.setdefault(table, _TableView())
        tree = self._metadata.view(table)
        described = decode_table(tree.meta)
        if seen.known_map is not known_map:
            seen.read(known_map)
            self._count_failures(seen)
            if described.kind == RANGE:
                seen.planning = seen.planning or RangePlanner()
                seen.planning.sees(seen.partitions, trio.current_time())
        if seen.planning is not None:
            await self._look_at_ranges(described, known_map.config, seen, seen.planning, nodes)
            return
        wanted_of = nodes, described, [*seen.partitions]
        if seen.wanted_of == wanted_of and seen.is_quiet:
            return
        groups = grouped(described, nodes)
        if groups != described.groups:
            await self._transact(table, known_map.config, [("set_groups", tuple(b"".join(group) for group in groups))])
            return
        if seen.wanted_of != wanted_of:
            seen.wanted = (await self._beside(partial(planned, tree, nodes))).wanted
            seen.wanted_of = wanted_of
        partitions = [*seen.partitions.values()]
        able = {*self._alive()} - self.passed_over_s().keys()
        asked = self._asked(seen, next_moves(partitions, seen.wanted, self._max_moves, able=able.__contains__))
        is_left = bool(asked or seen.moving)
        # A target may be dead or passed over for a while: then no step is possible, but moves are left.
        seen.is_quiet = not (is_left or TablePlan(described, partitions, seen.wanted, groups).moves())
        await self._transact(table, known_map.config, asked)

    async def _look_at_ranges(
        self, table: TableMeta, base: int, seen: _TableView, planning: RangePlanner, nodes: Sequence[SpreadNode]
    ) -> None:
        planning.look_ahead(table, seen.partitions, self._hosts.limits, seen.known_map)
        around = self._around(planning, nodes)
        of = seen.known_map, nodes, table, around.alive, around.shunned, planning.measured
        if planning.is_quiet(of):
            return
        partitions = [*seen.partitions.values()]
        situation = replace(around, partitions=partitions, replication=table.replication)
        steps = await planning.steps(situation, seen.moving, of, self._max_moves, self._beside)
        await self._transact(table.id, base, self._asked(seen, steps))
        if around.is_on and (cuts := planning.cuts(seen.partitions, self._random)):
            await self._transact(table.id, base, cuts)
        await planning.divide(table.id, partitions, around.alive, self._hosts)

    def known(self, table: bytes, nodes: Sequence[SpreadNode], measures: Mapping[int, RangeMeasure]) -> Situation:
        """Return the situation of a range table for `plan` commands; only the table's mover knows recent changes."""
        seen = self._seen.get(table)
        planning = seen.planning if seen is not None and self._acts(table) else None
        if planning is None or not planning.measured:
            planning = RangePlanner()
            planning.lately.measured(measures, self._hosts.limits, -inf)
        return replace(self._around(planning, nodes), measures=measures)

    def _around(self, planning: RangePlanner, nodes: Sequence[SpreadNode]) -> Situation:
        return Situation(
            nodes=nodes,
            alive={*self._alive()},
            shunned={*self.passed_over_s()},
            measures=planning.measures,
            limits=self._hosts.limits,
            lately=planning.lately,
            now=trio.current_time(),
            is_on=self._hosts.is_on,
        )

    def passed_over_s(self) -> dict[bytes, float]:
        """Return the nodes that are no targets now, and for how many more seconds."""
        now = trio.current_time()
        return {node: until - now for node, until in self.passed_over.items() if now < until}

    def _asked(self, seen: _TableView, steps: Sequence[MoveStep]) -> list[tuple[str, object]]:
        partitions = [(key, partition.id) for key, partition in seen.partitions.items()] if steps else []
        asked: list[tuple[str, object]] = []
        for step in steps:
            key, id_ = partitions[step.partition]
            if step.unassign is not None:
                seen.targets.pop(step.unassign, None)  # A cancelled move is no failure of the target.
                asked.append(("unassign", (key, id_, step.unassign)))
            else:
                asked.append(("assign", (key, id_, draw_id(self._random), step.target, step.slot)))
        return asked

    def _count_failures(self, seen: _TableView) -> None:
        """Count the targets that were given up; reset the counts of targets that became AVAILABLE."""
        # A target of the map before that is in no changed leaf still comes.
        partitions = chain(seen.changed, seen.moving)
        stands = {assignment.id: assignment for partition in partitions for assignment in partition.assignments}
        now = trio.current_time()
        for assignment, node in seen.targets.items():
            if assignment not in stands:
                if now < self._failed_at.get(node, -inf) + self._stall_s:
                    continue
                self._failed_at[node] = now
                self._failures[node] += 1
                if self._failures[node] >= FAILURES:
                    self._failures[node] = 0
                    self.passed_over[node] = now + PASSED_OVER_S
                    self._log.warning("target_passed_over", node=node.hex(), seconds=PASSED_OVER_S)
            elif stands[assignment].state is AssignmentState.AVAILABLE:
                self._failures.pop(node, None)
        seen.targets = {
            assignment.id: assignment.node
            for assignment in stands.values()
            if assignment.state in {AssignmentState.PROPOSED, AssignmentState.INITIALIZING}
        }

    async def _transact(self, table: bytes, base: int, asked: Sequence[tuple[str, object]]) -> None:
        operations = [
            Operation(self._random.randbytes(OPERATION_ID_BYTES), base, name, 1, argument) for name, argument in asked
        ]
        for at in range(0, len(operations), MAX_OPERATIONS):
            await self._catalogue.transact(table, operations[at : at + MAX_OPERATIONS], DONE_S)
