"""The wanted map of a table: the nodes of each partition, from the nodes and the present map.

The result is the same on every node. Invariants of every wanted map:

* A partition has min(replication, nodes) slots, and no node twice.
* Its slots are as far apart as possible: their numbers in the isolation groups differ as little as the groups' sizes
  allow, so with enough isolation groups no two slots share one.
* A node's load is its ideal, rounded down or up. The ideal is by weight as far as a partition allows, filled like
  water: a node holds a partition at most once, an isolation group no more of it than the line above says.

The wanted map among these has the **fewest moves** from the present map (`_Seating`). So a wanted map that is
taken as the present one needs no move, and each move towards it leaves one fewer.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.placement.partition import least_of_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

Slots = tuple[bytes | None, ...]  # The node in each slot of one partition; None for no node.

_MIXED: Final = 1 << 32
_NEVER: Final = 1 << 60  # More than all other costs together.


class SpreadNode(NamedTuple):
    """A node's own description for its share."""

    id: bytes
    isolation_group: str  # The nodes that fail together; empty for this node alone.
    weight: int  # 1 or more.


def spread(
    nodes: Sequence[SpreadNode], replication: int, now: Sequence[Slots], groups: Sequence[Collection[bytes]] = ()
) -> list[Slots]:
    """Return the wanted map: the slots of each partition, without trailing empty ones.

    With `groups`, partition s lies on nodes of `groups[s % len(groups)]` alone. A node that stays keeps its slot; a new
    node takes the slot of one that leaves, or else the lowest empty one.

    Adding or removing a node moves its ideal share. No map moves less with uneven isolation groups, or with a node so
    heavy that it holds nearly every partition: up to 1.7 times the share was seen, with few nodes.

    Requires: a node is in one group at most.
    """
    wanted: list[Slots] = [()] * len(now)
    for shape, partitions in _shapes(nodes, replication, len(now), groups):
        index = {node: at for at, node in enumerate(shape.nodes)}
        was = [[index[node] for node in now[at] if node in index] for at in partitions]
        for at, seats in zip(partitions, _Seating(shape, was).best(), strict=True):
            wanted[at] = _in_slots(now[at], [shape.nodes[seat] for seat in seats])
    return wanted


def lacks(nodes: Sequence[SpreadNode], replication: int, groups: Sequence[Collection[bytes]] = ()) -> str:
    """Say if there are fewer isolation groups than replicas; empty if there are enough."""
    for group in groups or [{node.id for node in nodes}]:
        isolation = [node.isolation_group or node.id for node in nodes if node.id in group]
        if (count := len({*isolation})) < replication:
            return (
                f"{replication} replicas have only {len(isolation)} nodes in {count} isolation groups: "
                "some share a group, or are missing"
            )
    return ""


def regroup(
    nodes: Sequence[SpreadNode], count: int, replication: int, now: Sequence[Sequence[bytes]] = ()
) -> tuple[tuple[bytes, ...], ...]:
    """Put nodes into `count` groups for a reshard, each with as many isolation groups as possible; 0 for none.

    If the number of groups stays, only new nodes move, to the group that has lost most, then to the smallest; other
    nodes move only into a group that is too small.

    Raises:
        ValueError: there are too few nodes.
    """
    least = least_of_group(replication)
    if count and len(nodes) < count * least:
        raise ValueError(f"{len(nodes)} nodes are too few for {count} groups of at least {least}")
    isolation = {node.id: _isolation(node) for node in sorted(nodes)}
    if len(now) != count:
        sizes = Counter(isolation.values())
        dealt = sorted(isolation, key=lambda node: (-sizes[isolation[node]], repr(isolation[node]), node))
        return tuple(tuple(sorted(dealt[at::count])) for at in range(count))
    kept = [[node for node in group if node in isolation] for group in now]
    lost = [len(group) - len(here) for group, here in zip(now, kept, strict=True)]

    def alike(node: bytes, at: int) -> int:
        return sum(isolation[other] == isolation[node] for other in kept[at])

    for node in sorted(isolation.keys() - {node for group in kept for node in group}):
        at = min(range(count), key=lambda at: (-lost[at], len(kept[at]), alike(node, at), at))
        kept[at].append(node)
        lost[at] = max(0, lost[at] - 1)
    while count and len(min(kept, key=len)) < least:
        small = kept.index(min(kept, key=len))
        large = kept.index(max(kept, key=len))
        node = max(sorted(kept[large]), key=lambda node: alike(node, large) - alike(node, small))
        kept[large].remove(node)
        kept[small].append(node)
    return tuple(tuple(sorted(group)) for group in kept)


def _isolation(node: SpreadNode) -> str | bytes:
    return node.isolation_group or node.id


def _in_slots(now: Slots, held: Collection[bytes]) -> Slots:
    slots = [node if node in held else None for node in now]
    slots += [None] * len(held)
    empty = [at for at, node in enumerate(slots) if node is None]
    # First slots of leaving nodes, which are replaced.
    empty.sort(key=lambda at: (at >= len(now) or now[at] is None, at))
    for at, node in zip(empty, sorted(set(held) - set(now)), strict=False):
        slots[at] = node
    return tuple(slots[: max((at + 1 for at, node in enumerate(slots) if node is not None), default=0)])


class _Shape(NamedTuple):
    """The shape of every partition on these nodes."""

    nodes: list[bytes]
    isolation: list[int]  # The number of each node's isolation group.
    slots: int
    of_group: list[tuple[int, int]]  # The least and the most slots of a partition in each isolation group.
    ideal: list[Fraction]  # The part of the partitions of which each node should have a slot.


def _shapes(
    nodes: Sequence[SpreadNode], replication: int, partitions: int, groups: Sequence[Collection[bytes]]
) -> Iterator[tuple[_Shape, range]]:
    """Yield each group's shape and partitions; without groups, all nodes are one group."""
    assert len({node.id for node in nodes}) == len(nodes), "a node is told twice"
    assert all(node.weight >= 1 for node in nodes), nodes
    for number, group in enumerate(groups or [{node.id for node in nodes}]):
        chosen = sorted(node for node in nodes if node.id in group)
        yield _shape(chosen, replication), range(number, partitions, len(groups) or 1)


def _shape(nodes: list[SpreadNode], replication: int) -> _Shape:
    slots = min(replication, len(nodes))
    numbers: dict[str | bytes, int] = {}
    isolation = [numbers.setdefault(_isolation(node), len(numbers)) for node in nodes]
    weights: list[list[int]] = [[] for _ in numbers]
    for node, number in zip(nodes, isolation, strict=True):
        weights[number].append(node.weight)
    sizes = [len(group) for group in weights]
    level = max(level for level in range(slots + 1) if sum(min(size, level) for size in sizes) <= slots)
    low = [min(size, level) for size in sizes]
    spare = slots - sum(low)
    most = [min(size, least + 1) if spare else least for size, least in zip(sizes, low, strict=True)]
    of_group = list(zip(low, most, strict=True))

    def of_all(water: Fraction) -> Fraction:
        return sum(map(of_one, weights, of_group, [water] * len(weights)), Fraction())

    def of_one(group: list[int], bounds: tuple[int, int], water: Fraction) -> Fraction:
        return min(max(_share(group, water), Fraction(bounds[0])), Fraction(bounds[1]))

    kinks = {Fraction(1, node.weight) for node in nodes}
    for group, bounds in zip(weights, of_group, strict=True):
        kinks |= {_water(group, Fraction(bound)) for bound in bounds}
    water = _level(of_all, kinks, Fraction(slots))
    waters = [_water(group, of_one(group, bounds, water)) for group, bounds in zip(weights, of_group, strict=True)]
    ideal = [min(Fraction(1), node.weight * waters[at]) for node, at in zip(nodes, isolation, strict=True)]
    return _Shape([node.id for node in nodes], isolation, slots, of_group, ideal)


def _share(weights: list[int], water: Fraction) -> Fraction:
    """Return the part of a partition that nodes hold together, each up to `water` times its weight, at most 1."""
    return sum((min(Fraction(1), water * weight) for weight in weights), Fraction())


def _water(weights: list[int], share: Fraction) -> Fraction:
    """Return the water level at which nodes hold this share together."""
    return _level(lambda water: _share(weights, water), {Fraction(1, weight) for weight in weights}, share)


def _level(filled: Callable[[Fraction], Fraction], kinks: Collection[Fraction], wanted: Fraction) -> Fraction:
    """Return the argument at which a function that ascends from 0, linear between its kinks, reaches `wanted`."""
    levels = [Fraction(), *sorted(kinks)]
    at = bisect_left(levels, wanted, key=filled)
    if at == 0:
        return levels[0]
    low, high = filled(levels[at - 1]), filled(levels[at])
    return levels[at - 1] + (levels[at] - levels[at - 1]) * (wanted - low) / (high - low)


# Partitions in which a node passes a seat: to or from another isolation group, and within its own. Each has those of
# the present map, and the others.
_Kinds = tuple[tuple[int, int], tuple[int, int]]
_NOWHERE: Final[_Kinds] = ((0, 0), (0, 0))


class _Seating:
    """Partitions of one shape, and the nodes with a seat in each; nodes and partitions are numbers.

    The fewest moves are found as a flow of least cost. Seats pass from node to node within a partition that stays as
    far apart as it was. A pass costs 1 if it is a new move, -1 if it cancels a move, and else 0. A round of nodes with
    negative cost is turned, one seat each, until there is none: the map is then optimal (Klein's theorem). A load
    outside its bounds costs more than all moves of a round. Sets of partitions are bits of whole numbers.

    Invariant after `_seat`: each partition has its slots, no node twice, and is as far apart as possible.
    """

    def __init__(self, shape: _Shape, was: list[list[int]]) -> None:
        """`was`: the nodes with a seat in each partition."""
        self._shape = shape
        self._seats = was
        self._numbers = range(len(shape.nodes))
        self._was = self._bits(was)
        self._held = list(self._was)
        self._bounds = [(floor(ideal * len(was)), ceil(ideal * len(was))) for ideal in shape.ideal]
        self._ideal = [float(ideal) for ideal in shape.ideal]
        self._spare = shape.slots - sum(low for low, _ in shape.of_group)
        self._all = (1 << len(was)) - 1
        self._loads = len(shape.nodes)
        self._gives = self._takes = [_NOWHERE] * len(shape.nodes)
        self._cost = [[_NEVER] * (self._loads + 1) for _ in range(self._loads + 1)]
        self._huge = 2 * len(shape.nodes) + 3  # More than the moves of any round.

    def best(self) -> list[list[int]]:
        """Return the nodes that should have a seat in each partition."""
        self._seat()
        self._look()
        while (around := self._negative_round()) is not None:
            self._turn(around)
            self._look()
        assert all(low <= self._load(at) <= high for at, (low, high) in enumerate(self._bounds)), self._bounds
        seats: list[list[int]] = [[] for _ in self._seats]
        for node in self._numbers:
            for partition in _each(self._held[node]):
                seats[partition].append(node)
        return seats

    def _bits(self, seats: list[list[int]]) -> list[int]:
        digits = [bytearray(b"0" * len(seats)) for _ in self._numbers]
        for partition, seated in enumerate(seats, start=1):
            for node in seated:
                digits[node][-partition] = ord("1")
        return [int(row or b"0", 2) for row in digits]

    def _load(self, node: int) -> int:
        return self._held[node].bit_count()

    def _seat(self) -> None:
        """Keep the nodes that may stay, and seat those farthest from their ideal elsewhere: a mere starting point."""
        load = [self._load(node) for node in self._numbers]

        def turn(node: int) -> tuple[float, int]:
            """Return a key that is lower for a node with less of its ideal; mixed, so that it meets all other nodes."""
            return (load[node] + _mixed(node, load[node]) / _MIXED) / self._ideal[node], node

        def count(node: int, change: int) -> None:
            del order[bisect_left(order, turn(node))]
            load[node] += change
            insort(order, turn(node))

        order = sorted(map(turn, self._numbers))
        seats: list[list[int]] = [[] for _ in self._seats]
        for was, here in zip(self._seats, seats, strict=True):
            for node in sorted(was, key=turn):
                if self._fits(node, here):
                    here.append(node)
                else:
                    count(node, -1)
        for here in seats:
            for node in list(here):
                if load[node] > self._bounds[node][1]:
                    here.remove(node)
                    count(node, -1)
            while len(here) < self._shape.slots:
                node = next(node for _, node in order if node not in here and self._fits(node, here))
                here.append(node)
                count(node, +1)
        self._held = self._bits(seats)

    def _fits(self, node: int, here: list[int]) -> bool:
        """Return True if a partition with these nodes may take one more, and be as far apart as possible when full."""
        isolation, of_group = self._shape.isolation, self._shape.of_group
        group = isolation[node]
        mine = sum(isolation[other] == group for other in here)
        low, high = of_group[group]
        if mine < low or mine >= high:
            return mine < low
        filled = Counter(isolation[other] for other in here)
        return sum(max(0, filled[at] - of_group[at][0]) for at in filled) < self._spare

    # A pass (n, m): n gives m its seat in a partition. The last number, `self._loads`, stands for the loads: a pass
    # from it reduces n's load by one, a pass to it raises m's load by one.

    def _look(self) -> None:
        """Update the passes and their costs after a change."""
        gives, takes = self._gives, self._takes
        self._gives, self._takes = self._partitions()
        for giver in self._numbers:
            if gives[giver] != self._gives[giver]:
                self._cost[giver][: self._loads] = [self._pass(giver, taker)[0] for taker in self._numbers]
        for taker in self._numbers:
            if takes[taker] != self._takes[taker]:
                for giver in self._numbers:
                    self._cost[giver][taker] = self._pass(giver, taker)[0]
        for node, (low, high) in enumerate(self._bounds):
            load = self._load(node)
            self._cost[self._loads][node] = -self._huge if load > high else self._huge if load <= low else 0
            self._cost[node][self._loads] = -self._huge if load < low else self._huge if load >= high else 0

    def _partitions(self) -> tuple[list[_Kinds], list[_Kinds]]:
        """Return for each node the partitions in which it may give its seat, and those in which it may take one."""
        group_of = self._shape.isolation
        # Partitions in which an isolation group may lose a seat, and those in which it may gain one.
        spare, room = [], []
        for group, (low, high) in enumerate(self._shape.of_group):
            members = [held for held, at in zip(self._held, group_of, strict=True) if at == group]
            spare.append(self._with(members, low + 1))
            room.append(~self._with(members, high))
        gives, takes = [], []
        for held, was, at in zip(self._held, self._was, group_of, strict=True):
            old, new, back, fresh = held & was, held & ~was, was & ~held, self._all & ~was & ~held
            gives.append(((old & spare[at], new & spare[at]), (old, new)))
            takes.append(((back & room[at], fresh & room[at]), (back, fresh)))
        return gives, takes

    def _with(self, members: list[int], count: int) -> int:
        """Return the partitions in which at least `count` of the members have a seat."""
        reached = [self._all] + [0] * count
        for held in members:
            for times in range(count, 0, -1):
                reached[times] |= reached[times - 1] & held
        return reached[count]

    def _pass(self, giver: int, taker: int) -> tuple[int, int]:
        """Return the least cost of a pass, and the partitions with that cost."""
        is_within = self._is_within(giver, taker)
        (old, new), (back, fresh) = self._gives[giver][is_within], self._takes[taker][is_within]
        if found := new & back:
            return -1, found
        if found := new & fresh | old & back:
            return 0, found
        return (1, found) if (found := old & fresh) else (_NEVER, 0)

    def _is_within(self, giver: int, taker: int) -> bool:
        return self._shape.isolation[giver] == self._shape.isolation[taker]

    def _negative_round(self) -> list[int] | None:
        """Return numbers, each passing on to the next and the last to the first, with a negative total cost."""
        cheapest = [0] * len(self._cost)  # The start does not matter (Bellman and Ford).
        before = [-1] * len(self._cost)
        changed = True
        while changed:
            changed = False
            for giver, costs in enumerate(self._cost):
                base = cheapest[giver]
                for taker, cost in enumerate(costs):
                    if base + cost < cheapest[taker]:
                        cheapest[taker] = base + cost
                        before[taker] = giver
                        changed = True
            if (found := _round_in(before)) is not None:
                return found
        return None

    def _turn(self, around: list[int]) -> None:
        """Pass on along a round, in as many partitions at once as have the same cost."""
        steps = list(pairwise([*around, around[0]]))
        found = {step: self._pass(*step)[1] for step in steps if self._loads not in step}
        count = min(bits.bit_count() // len(found) for bits in found.values())
        count = max(1, min(count, *(self._slack(*step) for step in steps)))
        chosen: dict[tuple[int, int], int] = {}
        taken = 0  # Taken by passes between isolation groups: two may be too many for one partition.
        for step, bits in found.items():
            is_within = self._is_within(*step)
            free = bits if is_within else bits & ~taken
            if not free:
                early = next(other for other in chosen if chosen[other] & bits and not self._is_within(*other))
                self._turn(self._cut(around, steps.index(early) + 1, steps.index(step) + 1))
                return
            chosen[step] = _some(free, count, _mixed(self._held[step[0]].bit_count(), step[1]) % len(self._seats))
            taken |= 0 if is_within else chosen[step]
        for (giver, taker), bits in chosen.items():
            self._held[giver] ^= bits
            self._held[taker] ^= bits

    def _slack(self, giver: int, taker: int) -> int:
        """Return the number of seats that may pass before the cost to a load changes; between nodes, all."""
        if self._loads not in {giver, taker}:
            return len(self._seats)
        node = min(giver, taker)
        load, (low, high) = self._load(node), self._bounds[node]
        if giver == self._loads:
            return load - high if load > high else load - low
        return low - load if load < low else high - load

    def _cut(self, around: list[int], at: int, after: int) -> list[int]:
        """Split a round in which two passes need one partition: their givers exchange their takers.

        The two rounds cost together as much as the one. Return the one with a negative cost.
        """
        inner, outer = around[at:after], around[after:] + around[:at]
        cost = sum(self._cost[giver][taker] for giver, taker in pairwise([*inner, inner[0]]))
        return inner if cost < 0 else outer


def _round_in(before: list[int]) -> list[int] | None:
    """Return a round in a list that names for each number the one before it, or -1; in the order of passing on."""
    seen = [-1] * len(before)
    for start in range(len(before)):
        at, path = start, []
        while at != -1 and seen[at] == -1:
            seen[at] = start
            path.append(at)
            at = before[at]
        if at != -1 and seen[at] == start:
            return path[path.index(at) :][::-1]
    return None


def _some(bits: int, count: int, start: int) -> int:
    """Return `count` of the set bits, from `start` on and round the end."""
    above = bits >> start << start
    rest = [above, bits ^ above]
    for _ in range(count):
        at = 0 if rest[0] else 1
        rest[at] &= rest[at] - 1
    return bits ^ rest[0] ^ rest[1]


def _mixed(first: int, second: int) -> int:
    """Return a number below `_MIXED` that looks random, the same for the same arguments (SplitMix64's constants)."""
    mixed = (first * 0x9E3779B97F4A7C15 + second * 0xBF58476D1CE4E5B9) % 2**64
    return (mixed ^ mixed >> 30) * 0x94D049BB133111EB % 2**64 >> 32


def _each(bits: int) -> Iterator[int]:
    return (found.start() for found in re.finditer("1", f"{bits:b}"[::-1]))
