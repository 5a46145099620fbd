"""Faults: crashes, power losses, cuts, broken connections, slow or full disks, clock jumps, and commands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.placement.partition import AssignmentState
from tests.world.metadata.chance import happens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tests.world.replication.node import Node
    from tests.world.replication.world import Cluster

YEAR_MS: Final = 365 * 86_400_000
STRIKES: Final = (
    *("crash", "power", "stay down", "cut", "cut one way", "break", "slow network", "slow disk", "full disk"),
    *("clock", "crashes around syncs and sends", "trim", "trim while one is away"),
    *("old map", "late maps", "wrongly dead"),
)
COMMANDS: Final = ("add", "remove", "replace", "weigh", "force")
DIVIDE: Final = "divide"  # Used with ranges.
REFOUND: Final = "refound"  # Used with force-joins.
LATE: Final = ("old map", "late maps", "cut one way")  # Some nodes hear of splits late.


@final
class Faults:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._nodes = nodes = cluster.nodes
        self._cluster = cluster
        self._network = cluster.network
        self._witness = cluster.witness
        self._random = random
        operator = cluster.operator
        strikes: tuple[Callable[[Node], Awaitable[None]], ...] = (
            partial(self._crash, power=False),
            partial(self._crash, power=True),
            self._stay_down,
            partial(self._cut, one_way=False),
            partial(self._cut, one_way=True),
            self._break,
            self._change_delay,
            self._change_disk,
            self._fill,
            self._change_clock,
            self._change_crashes,
            self._trim,
            self._trim_all,
            self._stay_at_old_map,
            self._hear_late,
            self._seem_dead,
            operator.strike_add,
            operator.strike_remove,
            operator.strike_replace,
            operator.strike_weigh,
            operator.strike_force,
            operator.strike_divide,
            operator.strike_refound,
        )
        self._strikes = dict(zip((*STRIKES, *COMMANDS, DIVIDE, REFOUND), strikes, strict=True))
        self.moves = False  # True if there are commands too.
        self.kinds = [
            *random.sample(STRIKES, random.randint(2, 6)),
            *(["trim while one is away"] * happens(random, 0.3)),
        ]
        if len(nodes) > cluster.slots and happens(random, 0.8):  # A third of the strikes move something.
            self.moves = True
            self.kinds += random.choices(COMMANDS, k=(len(self.kinds) + 1) // 2)
        if cluster.is_range:
            self.kinds += [DIVIDE] * ((len(self.kinds) + 1) // 2) + random.sample(LATE, random.randint(0, 2))
            for node in nodes:
                node.hears = random.choice((0.5, 0.1, 0.03))

    def refound(self) -> None:
        """Add force-joins of ranges and forced removals of nodes."""
        self.kinds += [REFOUND, COMMANDS[-1]] * ((len(self.kinds) + 2) // 3)

    async def run(self, pause_s: float) -> None:
        """Strike again and again; with commands, move something at once."""
        if self.moves:
            await self._cluster.operator.strike_add(self._nodes[0])
        async with trio.open_nursery() as nursery:
            while True:
                if happens(self._random, 0.5):
                    await trio.sleep(self._random.expovariate(1 / pause_s))
                else:  # Directly after a step of a move.
                    with trio.move_on_after(pause_s):
                        await self._cluster.register.news.wait()
                kind = self._random.choice(self.kinds)
                node = self._node()
                self._witness.counts[f"strikes: {kind}"] += 1
                nursery.start_soon(self._strike, kind, node)

    async def _strike(self, kind: str, node: Node) -> None:
        """Strike, and count the states at its beginning and end."""
        before = self._states(node)
        await self._strikes[kind](node)
        for state in {*before, *self._states(node)}:
            self._witness.counts[f"{state.name} x {kind}"] += 1

    def _node(self) -> Node:
        """Draw a node, preferably one that joins a partition, or that leaves one, which is rarer."""
        states = {node: self._states(node) for node in self._nodes}
        state = max(
            (one for some in states.values() for one in some if one is not AssignmentState.AVAILABLE), default=None
        )
        if state is None or happens(self._random, 0.3):
            return self._random.choice(self._nodes)
        return self._random.choice([node for node in self._nodes if state in states[node]])

    def _states(self, node: Node) -> list[AssignmentState]:
        """Return the states of a node's assignments in partitions that move."""
        moving = [
            one.assignments
            for one in self._cluster.partitions.values()
            if any(held.state is not AssignmentState.AVAILABLE for held in one.assignments)
        ]
        return [held.state for assignments in moving for held in assignments if held.node == node.uuid]

    async def _crash(self, node: Node, *, power: bool) -> None:
        if node.life is not None:
            node.life.end(power=power)

    async def _stay_down(self, node: Node) -> None:
        node.stop(power=happens(self._random, 0.5))
        await trio.sleep(self._random.uniform(0.5, 4))
        node.start()

    async def _cut(self, node: Node, *, one_way: bool) -> None:
        others = [other.uuid for other in self._nodes if other is not node]
        ways = {(node.uuid, other) for other in self._random.sample(others, self._random.randint(1, len(others)))}
        if not one_way or happens(self._random, 0.5):
            back = {(to, source) for source, to in ways}
            ways = back if one_way else ways | back
        self._network.cuts |= ways
        await trio.sleep(self._random.choice((0.05, 0.3, 1.5, 4)))
        self._network.heal(ways)

    async def _break(self, node: Node) -> None:
        for (source, to), link in self._network.links.items():
            if node.uuid in (source, to) and happens(self._random, 0.5):
                self._network.breaks(link)

    async def _change_delay(self, node: Node) -> None:
        del node
        self._network.delay_s = self._random.choice(((0.0005, 0.003), (0.001, 0.03), (0.04, 0.09), (0.1, 0.16)))

    async def _change_disk(self, node: Node) -> None:
        node.mood.sync_s = self._random.choice(((0.0003, 0.003), (0.001, 0.06), (0.1, 0.3)))

    async def _fill(self, node: Node) -> None:
        node.mood.is_full = True
        await trio.sleep(self._random.uniform(0.2, 2))
        node.mood.is_full = False

    async def _change_clock(self, node: Node) -> None:
        node.skew_ms = self._random.choice((0, 30, -30, 5_000, -5_000, YEAR_MS))

    async def _change_crashes(self, node: Node) -> None:
        node.crashes = self._random.choice((0, 0.02, 0.1))

    async def _trim(self, node: Node) -> None:
        if node.life is not None and not node.life.is_over:
            node.life.fill()

    async def _trim_all(self, node: Node) -> None:
        """Trim the other nodes' logs while one node is away, so that it has to load."""
        is_down = happens(self._random, 0.5)
        ways = {way for one in self._nodes if one is not node for way in ((one.uuid, node.uuid), (node.uuid, one.uuid))}
        if is_down:
            node.stop(power=happens(self._random, 0.5))
        else:
            self._network.cuts |= ways
            await self._break(node)
        await trio.sleep(self._random.uniform(0.2, 1.0))
        for each in self._nodes:
            await self._trim(each)
        await trio.sleep(self._random.uniform(0.05, 0.5))
        self._network.heal(ways)
        node.start()

    async def _stay_at_old_map(self, node: Node) -> None:
        self._cluster.register.deaf.add(node.uuid)
        await trio.sleep(self._random.choice((0.3, 1.5, 4)))
        self._cluster.register.deaf.discard(node.uuid)

    async def _hear_late(self, node: Node) -> None:
        node.hears = self._random.choice((0.5, 0.1, 0.03))

    async def _seem_dead(self, node: Node) -> None:
        self._network.wrongly_dead.add(node.uuid)
        await trio.sleep(self._random.choice((0.3, 1.5, 4)))
        self._network.wrongly_dead.discard(node.uuid)

    def heal(self) -> None:
        self._cluster.register.deaf.clear()
        self._cluster.register.is_unwell = False
        self._cluster.register.withholds = lambda _: False
        self._network.wrongly_dead.clear()
        self._network.heal({*self._network.cuts})
        self._network.delay_s = 0.0005, 0.003
        for node in self._nodes:
            node.mood.is_full, node.mood.sync_s, node.crashes, node.hears = False, (0.0003, 0.003), 0.0, 0.5
            node.is_lost = node.uuid in self._cluster.lost
            node.start()
