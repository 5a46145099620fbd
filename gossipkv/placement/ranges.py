"""The planner of a range table: moves of partitions between nodes, and splits.

A node's *load* is the share of its partitions in those of all live nodes, divided by the share of its weight: 1 is
even. The load is the larger of two, by bytes and by requests. A small constant is added for each partition, so that
empty partitions are spread by number. A partition of unknown size counts as the mean; if many sizes are unknown,
nothing is moved for balance. `plan` lists the rules.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.lately import LATELY_S, Lately
from gossipkv.placement.measures import MeasureLimits, RangeMeasure
from gossipkv.placement.moves import standing
from gossipkv.placement.partition import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Slots, SpreadNode

CLEAR: Final = 0.1  # Least difference of two nodes' loads between which partitions move, as a part of an even load.
LEFT: Final = 0.25  # The target stays below the source's load before by this part of their difference.
SMALL: Final = 1 / 16  # Part of the mean that is added to each partition.
SMALL_BYTES: Final = 64 << 10  # Least bytes added: smaller partitions are spread by number, which does not fluctuate.
BUSY: Final = 100.0  # Requests a second at each node that count as no load.
KNOWN: Final = 0.8  # Least part of partitions with a known size before any is moved for balance.
MAX_MOVES: Final = 4096  # Moves for balance in one plan; fewer run at once.
MAX_LOOKED_AT: Final = 4096  # Partitions of a node that are examined before the node counts as having nothing to give.
LARGE_S: Final = 60.0  # Time over the limit in which the hosts should have divided a partition.
DIVIDED_S: Final = 60.0  # Time after a split in which measures of the children may be missing.
MIN_ROWS: Final = 1024  # Least rows of a busy partition to divide, since a single key may be busy.
MIB: Final = 1 << 20


class Move(NamedTuple):
    """A slot that must go to another node."""

    partition: int  # Number of the partition in the map.
    slot: int
    source: bytes | None
    target: bytes
    why: str  # Shown to operators; `{source}` is replaced by the source's name.


class Split(NamedTuple):
    """A partition to divide, since its hosts have not done so."""

    partition: int
    why: str


class RangePlan(NamedTuple):
    """Moves, the most urgent first, and splits."""

    moves: Sequence[Move]
    splits: Sequence[Split]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The input of a plan."""

    nodes: Sequence[SpreadNode]  # Nodes that may hold partitions.
    alive: Collection[bytes]
    partitions: Sequence[Partition] = ()  # Ordered by their keys.
    replication: int = 1
    measures: Mapping[int, RangeMeasure] = field(default_factory=dict)  # Partitions without a report are missing.
    limits: MeasureLimits = MeasureLimits(0, 0)  # noqa: RUF009  # Limits are immutable.
    lately: Lately = field(default_factory=Lately)
    now: float = 0.0
    shunned: Collection[bytes] = ()  # These nodes get no partitions for now.
    is_on: bool = True  # False: plan only what operators have asked for.


def plan(situation: Situation) -> RangePlan:
    """Return the plan for a situation.

    * First, in any case: an empty slot is filled, as far apart from the others as possible, and the slot of a removed
      node goes to another node.
    * No target is dead or shunned, and partitions on a dead node stay there.
    * No node has a partition twice, and no partition's replicas come closer together.
    * Partitions whose replicas could be farther apart are moved.
    * Other moves go from a full node to a clearly emptier one, which stays clearly below the source's load before. So
      small fluctuations move nothing, and the sorted loads fall with each move until no move is left.
    * Slots that moved, or partitions that were divided, rest; nothing moves back soon in the direction it came from.
    """
    planner = _Planner(situation)
    planner.fill()
    splits: list[Split] = []
    if situation.is_on and planner.knows_enough:
        planner.level()
        splits = [*planner.splits()]
        planner.part()
        planner.balance()
    return RangePlan(planner.moves, splits)


def wanted(now: Sequence[Slots], moves: Sequence[Move]) -> list[Slots]:
    """Return the map after these moves, from the present nodes of the slots."""
    slots = [*now]
    for move in moves:
        here = [*slots[move.partition]]
        here += [None] * (move.slot + 1 - len(here))
        here[move.slot] = move.target
        slots[move.partition] = tuple(here)
    return slots


def successor(situation: Situation, partition: int, slot: int) -> bytes | None:
    """Return the node to take a slot of a partition, by its id; None if every live node has the partition."""
    target = _Planner(situation).farthest(_number_of(situation, partition), slot)
    return None if target is None else sorted(situation.nodes)[target].id


def slot_to_take(situation: Situation, partition: int, comer: bytes) -> int:
    """Return the slot of a partition, by its id, that a new node takes."""
    return _Planner(situation).slot_to_take(_number_of(situation, partition), comer)


def _number_of(situation: Situation, id_: int) -> int:
    return next(at for at, partition in enumerate(situation.partitions) if partition.id == id_)


@final
class _Planner:
    """One plan in the making. Nodes and partitions are referred to by their numbers."""

    def __init__(self, situation: Situation) -> None:
        self._now = situation
        self.moves: list[Move] = []
        self._nodes = sorted(situation.nodes)
        self._number: dict[bytes | None, int] = {node.id: at for at, node in enumerate(self._nodes)}
        self._groups: dict[bytes | None, str | bytes | None] = {
            node.id: node.isolation_group or node.id for node in self._nodes
        }
        able = {*situation.alive}.difference(situation.shunned)
        self._living = [at for at, node in enumerate(self._nodes) if node.id in situation.alive]
        self._able = [at for at, node in enumerate(self._nodes) if node.id in able]
        self._slots = min(situation.replication, len(self._nodes))
        self._here: list[Slots] = [*map(standing, situation.partitions)]
        self._busy: set[int] = set()  # Partitions that must not be moved for balance,
        self._fixed: set[tuple[int, int]] = set()  # and such slots of other partitions.
        self._passed: set[tuple[int, int]] = set()  # Pairs of source and target of planned moves.
        self._costs = self._measured()
        self._loads = [[0.0] * len(self._nodes) for _ in self._costs]
        for at, slots in enumerate(self._here):
            for node in slots:
                if (number := self._number.get(node)) is not None:
                    self._carry(at, number)
        self._first = self._loads  # The loads before any move for balance.

    def _measured(self) -> tuple[list[float], list[float]]:
        """Return each partition's cost for each of its nodes, by bytes and by requests; costs add up to weights."""
        found = [self._now.measures.get(partition.id) for partition in self._now.partitions]
        reported = [measure for measure in found if measure is not None]
        self.knows_enough = len(reported) >= KNOWN * len(found)
        count, slots = max(1, len(reported)), max(1, self._slots)
        mean_bytes = sum(measure.size_bytes for measure in reported) // count
        mean = RangeMeasure(mean_bytes, 0, sum(measure.rate for measure in reported) / count)
        self._is_small = mean.size_bytes < SMALL_BYTES
        small = max(mean.size_bytes * SMALL, SMALL_BYTES)
        by_bytes = [(measure or mean).size_bytes + small for measure in found]
        # Add a rate in proportion to bytes, so an idle table is balanced by bytes alone.
        few = max(mean.rate * SMALL, BUSY * len(self._nodes) / max(1, len(found)))
        part = few * max(1, len(found)) / (sum(by_bytes) or 1.0)
        by_rate = [(measure or mean).rate + part * size for measure, size in zip(found, by_bytes, strict=True)]
        weights = sum(node.weight for node in self._nodes) / slots
        scales = [weights / (sum(costs) or 1.0) for costs in (by_bytes, by_rate)]
        return [cost * scales[0] for cost in by_bytes], [cost * scales[1] for cost in by_rate]

    def _carry(self, partition: int, node: int, times: int = 1) -> None:
        weight = self._nodes[node].weight
        for loads, costs in zip(self._loads, self._costs, strict=True):
            loads[node] += times * costs[partition] / weight

    def _load(self, node: int) -> float:
        return max(self._loads[0][node], self._loads[1][node])

    def _go(self, partition: int, slot: int, target: int, why: str) -> None:
        slots = [*self._here[partition]]
        slots += [None] * (slot + 1 - len(slots))
        source, slots[slot] = slots[slot], self._nodes[target].id
        self._here[partition] = tuple(slots)
        if source in self._number:
            self._carry(partition, self._number[source], -1)
            self._passed.add((self._number[source], target))
        self._carry(partition, target)
        self._fixed.add((partition, slot))
        self.moves.append(Move(partition, slot, source, self._nodes[target].id, why))

    # -- moves in any case ---------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Give each slot that is empty, or of a removed node, to the emptiest of the farthest nodes."""
        for at, slots in enumerate(self._here):
            if len(slots) == self._slots and None not in slots and all(node in self._number for node in slots):
                continue
            stand = sum(node in self._number for node in slots if node is not None)
            removed = [slot for slot, node in enumerate(slots) if node is not None and node not in self._number]
            empty = [slot for slot in range(self._slots) if slot >= len(slots) or slots[slot] is None]
            for slot in [*removed, *empty][: max(0, self._slots - stand)]:
                target = self._back(at, slot)
                if target is None:
                    target = self.farthest(at, slot)
                if target is not None:
                    why = "{source} was removed" if slot in removed else f"{stand} of {self._slots} replicas"
                    self._go(at, slot, target, why)

    def _back(self, partition: int, slot: int) -> int | None:
        """Return the node whose slot was moving to a removed node: it keeps the slot."""
        for assignment in self._now.partitions[partition].assignments:
            if assignment.slot == slot and assignment.state is AssignmentState.AVAILABLE:
                return None if assignment.node in self._here[partition] else self._number.get(assignment.node)
        return None

    def farthest(self, partition: int, slot: int) -> int | None:
        """Return the emptiest of the nodes that are farthest from a partition's other slots."""
        here = self._here[partition]
        # Leaving nodes count, too.
        there = {assignment.node for assignment in self._now.partitions[partition].assignments}
        alike = Counter(self._groups.get(node) for at, node in enumerate(here) if node is not None and at != slot)
        best, target = (inf, inf), None
        for at in self._able:
            node = self._nodes[at]
            order = alike[self._groups[node.id]], self._load(at) + self._costs[0][partition] / node.weight
            if order < best and node.id not in here and node.id not in there:
                best, target = order, at
        return target

    def slot_to_take(self, partition: int, comer: bytes) -> int:
        """Return an empty slot, else the slot of the most dispensable host.

        The removal of that host leaves the others farthest apart. Of equal hosts a live one goes first, since a dead
        host's records are awaited, and then the fullest; a node that the catalogue does not name counts as full.
        """
        here, target = self._here[partition], self._number[comer]
        hosts = [slot for slot, node in enumerate(here) if node is not None]
        if len(hosts) < self._now.replication:
            return next(slot for slot in range(self._now.replication) if slot not in hosts)

        def missed(slot: int) -> tuple[int, bool, float, int]:
            node = self._number.get(here[slot])
            load = inf if node is None else self._load(node)
            return self._nearer(here, slot, target), here[slot] not in self._now.alive, -load, slot

        return min(hosts, key=missed)

    # -- planned moves -------------------------------------------------------------------------------------------------

    def level(self) -> None:
        """Scale loads to the partitions of live nodes, and collect what must not move."""
        weight = sum(self._nodes[at].weight for at in self._living)
        for loads, costs in zip(self._loads, self._costs, strict=True):
            carried = sum(loads[at] * self._nodes[at].weight for at in self._living)
            scale = weight / carried if carried else 1.0
            loads[:] = [load * scale for load in loads]
            costs[:] = [cost * scale for cost in costs]
        self._first = [[*loads] for loads in self._loads]
        lately = self._now.lately
        for at, partition in enumerate(self._now.partitions):
            if partition.moves:
                self._busy.add(at)
            elif lately.moved:
                slots = range(len(self._here[at]))
                moved = (slot for slot in slots if self._is_recent(lately.moved.get((partition.id, slot)), LATELY_S))
                self._fixed.update((at, slot) for slot in moved)

    def _is_recent(self, at: float | None, within_s: float) -> bool:
        return at is not None and self._now.now < at + within_s

    def splits(self) -> Iterator[Split]:
        """Yield the partitions to divide; they are not moved."""
        lately, now = self._now.lately, self._now.now
        for at, partition in enumerate(self._now.partitions):
            measure = self._now.measures.get(partition.id)
            if measure is None or self._is_recent(lately.divided.get(partition.id), DIVIDED_S):
                continue
            since = lately.large.get(partition.id)
            why = self._too_large(measure) if since is not None else self._too_busy(at, measure)
            # Splits do not help, so a single key seems to be busy or large.
            if not why or now >= lately.asked.get(partition.id, (inf, inf))[0] + LATELY_S:
                continue
            if partition.moves or partition.has_too_many_former:
                continue
            self._busy.add(at)
            if since is None or now >= since + LARGE_S:
                yield Split(at, why)

    def _too_large(self, measure: RangeMeasure) -> str:
        limits = self._now.limits
        if 0 < limits.size_bytes < measure.size_bytes:
            return f"{measure.size_bytes / MIB:,.1f} MiB, over split_bytes"
        return f"{measure.rows:,} rows, over split_rows" if 0 < limits.rows < measure.rows else ""

    def _too_busy(self, at: int, measure: RangeMeasure) -> str:
        """Return the reason to divide a partition with more requests than a node's even share; empty if none."""
        if measure.rows < MIN_ROWS or measure.rate < BUSY * self._slots or not self._living:
            return ""
        even = sum(self._nodes[number].weight for number in self._living) / len(self._living)
        here = self._here[at]
        has_room = any(self._loads[1][number] < 1.0 and self._nodes[number].id not in here for number in self._able)
        if self._costs[1][at] <= even or not has_room:
            return ""
        return f"{measure.rate:,.0f} requests a second, more than a node's even share"

    def part(self) -> None:
        """Move partitions whose replicas could be farther apart."""
        groups = {self._groups[self._nodes[at].id] for at in self._able}
        for at, slots in enumerate(self._here):
            held = [self._groups.get(node) for node in slots if node is not None]
            if len(set(held)) == len(held) or at in self._busy or len(self.moves) >= MAX_MOVES:
                continue
            alike = Counter(held)
            free = min((alike[group] for group in groups), default=self._slots)
            crowded = [slot for slot, node in enumerate(slots) if alike[self._groups.get(node)] > free + 1]
            for slot in crowded:
                source, target = self._number.get(slots[slot]), self.farthest(at, slot)
                if source not in self._living or target is None or (at, slot) in self._fixed:
                    continue
                if self._is_apart(slots, slot, target, strictly=True) and not self._has_come(target, source):
                    self._go(at, slot, target, "replicas share an isolation group")
                    break

    def balance(self) -> None:
        """Move partitions from the fullest node to the emptiest, while that is clearly better."""
        order = sorted((self._load(at), at) for at in self._living)
        giving = _Giving(self._costs, self._giveable(), self._may_take)
        able, spent = {*self._able}, set[int]()
        while len(self.moves) < MAX_MOVES:
            source = next((at for _, at in reversed(order) if at not in spent), None)
            if source is None:
                return
            found = self._find(source, [at for _, at in order if at in able], giving)
            if found is None:
                spent.add(source)
                continue
            at, slot, target = found
            for node in (source, target):
                order.remove((self._load(node), node))
            self._go(at, slot, target, self._words(source))
            giving.gave(source)
            for node in (source, target):
                insort(order, (self._load(node), node))

    def _giveable(self) -> list[list[tuple[int, int]]]:
        held: list[list[tuple[int, int]]] = [[] for _ in self._nodes]
        for at, slots in enumerate(self._here):
            if at not in self._busy:
                for slot, node in enumerate(slots):
                    if (giver := self._number.get(node)) is not None and (at, slot) not in self._fixed:
                        held[giver].append((at, slot))
        return held

    def _find(self, source: int, targets: Sequence[int], giving: _Giving) -> tuple[int, int, int] | None:
        """Return the partition that a node gives first, its slot, and its target."""
        had, left = self._load(source), MAX_LOOKED_AT
        kind = 0 if self._loads[0][source] >= self._loads[1][source] else 1
        for target in targets:
            gap = had - self._load(target)
            if gap < CLEAR or left <= 0:
                return None
            if self._has_come(target, source):
                continue
            most, weight = had - LEFT * gap, self._nodes[target].weight
            room = (most - self._loads[kind][target]) * weight
            # With this part, both nodes become even.
            part = self._nodes[source].weight / (self._nodes[source].weight + weight)
            for at, slot in giving.near(source, kind, target, min(room, gap * weight * part), room):
                left -= 1
                if self._fits(at, slot, target, most):
                    return at, slot, target
                if left <= 0:
                    break
        return None

    def _has_come(self, source: int, target: int) -> bool:
        """Return True if a partition went from one node to the other lately, or is planned to."""
        at = self._now.lately.passed.get((self._nodes[source].id, self._nodes[target].id))
        return (source, target) in self._passed or self._is_recent(at, LATELY_S)

    def _may_take(self, partition: int, slot: int, target: int) -> bool:
        """Return True if a slot may go to a target, which lacks the partition."""
        return (partition, slot) not in self._fixed and self._nodes[target].id not in self._here[partition]

    def _fits(self, partition: int, slot: int, target: int, most: float) -> bool:
        """Return True if a target that may take a slot gets a load of at most `most`, and no replicas come closer."""
        slots, node = self._here[partition], self._nodes[target]
        for loads, costs in zip(self._loads, self._costs, strict=True):
            if loads[target] + costs[partition] / node.weight > most:
                return False
        return self._is_apart(slots, slot, target)

    def _is_apart(self, slots: Slots, slot: int, target: int, *, strictly: bool = False) -> bool:
        """Return True if a partition's replicas do not come closer together when a target takes a slot."""
        return self._nearer(slots, slot, target) < (0 if strictly else 1)

    def _nearer(self, slots: Slots, slot: int, target: int) -> int:
        """Return the number of additional pairs in one isolation group when a target takes a slot."""
        groups = [self._groups.get(node, node) for node in slots]
        before = groups.pop(slot)
        return groups.count(self._groups[self._nodes[target].id]) - groups.count(before)

    def _words(self, source: int) -> str:
        loads = [first[source] for first in self._first]
        what = "requests" if loads[1] > loads[0] else "partitions" if self._is_small else "bytes"
        return f"{{source}} has {max(loads):.2f} x its share of {what}"


@final
class _Giving:
    """Slots that each node may give, by cost."""

    def __init__(
        self,
        costs: Sequence[Sequence[float]],
        held: Sequence[Sequence[tuple[int, int]]],
        may_take: Callable[[int, int, int], bool],
    ) -> None:
        """`held`: partitions and slots by node; `may_take`: called with a partition, a slot and a target."""
        self._costs, self._held, self._may_take = costs, held, may_take
        self._ordered: dict[tuple[int, int], list[tuple[float, tuple[int, int]]]] = {}
        self._left: dict[int, dict[tuple[int, int], list[tuple[float, tuple[int, int]]]]] = {}  # By target.

    def near(self, node: int, kind: int, target: int, cost: float, most: float) -> Iterator[tuple[int, int]]:
        """Yield a node's slots that cost at most `most` and that a target may take, those closest to `cost` first."""
        left = self._left_for(node, kind, target)
        end, high = bisect_right(left, most, key=_cost), bisect_right(left, cost, key=_cost)
        low = high - 1
        while low >= 0 or high < end:
            is_high = low < 0 or (high < end and left[high][0] - cost < cost - left[low][0])
            at = high if is_high else low
            place = left[at][1]
            if self._may_take(*place, target):
                yield place
                high += is_high
            else:  # The target never may, unless it gives something: do not look at the slot again.
                del left[at]
                high -= not is_high
                end -= 1
            low -= not is_high

    def gave(self, node: int) -> None:
        """Look at all slots again for a node that has given one, since it may take another of that partition."""
        self._left.pop(node, None)

    def _left_for(self, node: int, kind: int, target: int) -> list[tuple[float, tuple[int, int]]]:
        if (node, kind) not in self._ordered:
            costs = self._costs[kind]
            self._ordered[node, kind] = sorted((costs[place[0]], place) for place in self._held[node])
        left = self._left.setdefault(target, {})
        if (node, kind) not in left:
            left[node, kind] = [*self._ordered[node, kind]]
        return left[node, kind]


def _cost(slot: tuple[float, tuple[int, int]]) -> float:
    return slot[0]
