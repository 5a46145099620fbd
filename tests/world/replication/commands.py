"""Commands that add, remove, replace and weigh nodes, and permanent losses of nodes with or without their disks.

Each command is an operation on the catalogue (`register.metadata.tables`), asked of a node as `table.rpc.node_admin`
asks it. Others split or force-join a range, by the map that the asked node knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.placement.partition import AssignmentState
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationOutcome
from gossipkv.register.metadata.tables import END_OF_NODES, NODE, decode_node
from gossipkv.table.controllers.reconciler import parts_of
from gossipkv.table.rpc.force_join import NOTHING, REFOUND, begins, chosen, copies_of_shard, kept_here, read_kept
from gossipkv.table.rpc.requests import RangeArguments
from tests.world.metadata.chance import happens
from tests.world.replication.ranges import children_of, divisible
from tests.world.replication.register import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from gossipkv.register.metadata.tables import NamedNode
    from gossipkv.table.controllers.reconciler import LocalPartition
    from tests.world.replication.node import Node
    from tests.world.replication.world import Cluster

DONE_S: Final = 1.0
MAX_WEIGHT: Final = 3
_HELD: Final = frozenset({AssignmentState.AVAILABLE, AssignmentState.LEAVING})


@final
class Operator:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def named(self) -> Mapping[bytes, NamedNode]:
        found = self._cluster.register.view(CATALOGUE).scan(NODE, END_OF_NODES)
        return {entry.key[len(NODE) :]: decode_node(entry.record) for entry in found}

    def _of_weight(self) -> list[bytes]:
        return [uuid for uuid, node in self.named().items() if node.weight]

    async def _ask(self, name: str, argument: object) -> bool:
        """Run an operation through a running node; return True if it reports that it was done."""
        lives = [node.life for node in self._cluster.nodes if node.uuid in self._cluster.network.lives]
        life = self._random.choice(lives) if lives else None
        if life is None or CATALOGUE not in life.maps.known:
            return False
        id_, base = self._random.randbytes(OPERATION_ID_BYTES), life.maps.known[CATALOGUE].config
        try:
            (answer,) = await life.maps.transact(CATALOGUE, [Operation(id_, base, name, 1, argument)], DONE_S)
        except GossipKVError:
            return False
        return answer.outcome is OperationOutcome.DONE

    async def add(self, node: Node) -> bool:
        """Add a node to those that hold tables."""
        return await self._ask("set_node", (node.uuid, node.uuid.hex(), "", 1, None, 0))

    async def remove(self, node: Node, *, is_gone: bool = False) -> bool:
        return await self._ask("remove_node", (node.uuid, is_gone, self._cluster.slots))

    async def replace(self, node: Node, newcomer: Node, *, is_gone: bool = False) -> bool:
        instead = node.uuid, is_gone
        argument = newcomer.uuid, newcomer.uuid.hex(), "", 1, instead, self._cluster.slots
        return await self._ask("set_node", argument)

    async def weigh(self, node: Node) -> bool:
        weight = self._random.randint(1, MAX_WEIGHT)
        return await self._ask("set_node", (node.uuid, node.uuid.hex(), "", weight, None, 0))

    async def divide(self, node: Node | None = None, at: Sequence[bytes] = ()) -> bool:
        """Split a range through a running node; `at` gives the split keys within one partition."""
        table = self._cluster.table
        up = [one for one in self._cluster.nodes if one.uuid in self._cluster.network.lives]
        asked = node or (self._random.choice(up) if up else None)
        life = None if asked is None else asked.life
        if life is None or table not in life.maps.known:
            return False
        try:
            parts = [part for part in divisible(life.maps.view(table)) if not at or part.bounds.has(at[0])]
            if not parts:
                return False
            part, base = self._random.choice(parts), life.maps.known[table].config
            argument = part.bounds.first, part.partition.id, children_of(part, self._random, at)
            id_ = self._random.randbytes(OPERATION_ID_BYTES)
            operation = Operation(id_, base, "divide", 1, argument)
            (answer,) = await life.maps.transact(table, [operation], DONE_S)
        except GossipKVError:
            return False
        return answer.outcome is OperationOutcome.DONE

    async def refound(self, part: LocalPartition, node: Node) -> bool:
        """Force-join a partition at a node, with a chosen quarantined replica there or with nothing."""
        table, life = self._cluster.table, node.life
        if life is None or table not in life.maps.known or any(
            one.node in self._cluster.network.lives for one in part.partition.assignments if one.state in _HELD
        ):  # fmt: skip
            return False
        try:
            there = read_kept(kept_here(life.replication, table, part.bounds))
            there = there if self._cluster.is_range else copies_of_shard(part.partition, there)
            copy = self._random.choice([*(one.name for one in there), *([] if len(there) > 1 else [None]), NOTHING])
            kept = chosen(RangeArguments("t", part.bounds.first, "", copy), part.bounds, there)
            await trio.sleep(self._random.choice((0, 0.05, 0.5)))
            known = await life.maps.quorum_read(table)
            key = next((entry.key for entry in life.maps.view(table).scan() if entry.record == part.record), None)
            if key is None:
                return False
            ids = [self._random.getrandbits(40) for _ in range(2)]
            argument = (
                key,
                part.partition.id,
                *ids,
                node.uuid,
                *begins(part.partition, kept, known.config + 1),
            )
            operation = Operation(self._random.randbytes(OPERATION_ID_BYTES), known.config, *REFOUND, argument)
            (answer,) = await life.maps.transact(table, [operation], DONE_S)
        except GossipKVError:
            return False
        return answer.outcome is OperationOutcome.DONE

    # # -- as faults ---------------------------------------------------------------------------------------------------

    def _newcomer(self) -> Node | None:
        named, cluster = self._of_weight(), self._cluster
        free = [node for node in cluster.nodes if node.uuid not in named and not node.is_lost]
        return self._random.choice(free) if free else None

    async def strike_add(self, _: Node) -> None:
        newcomer = self._newcomer()
        if newcomer is not None and await self.add(newcomer):
            self._has_come(newcomer)

    async def strike_remove(self, node: Node) -> None:
        await self.remove(node)

    async def strike_replace(self, node: Node) -> None:
        newcomer = self._newcomer()
        if newcomer is not None and node.uuid in self._of_weight() and await self.replace(node, newcomer):
            self._has_come(newcomer)

    def _has_come(self, newcomer: Node) -> None:
        if not newcomer.is_lost:  # The node may have been lost meanwhile.
            self._cluster.lost.discard(newcomer.uuid)

    async def strike_weigh(self, node: Node) -> None:
        if node.uuid in self._of_weight():
            await self.weigh(node)

    async def strike_divide(self, node: Node) -> None:
        """Split a range, or several in a burst, or the same one twice at a time."""
        del node
        for _ in range(self._random.choice((1, 1, 2, 4))):
            async with trio.open_nursery() as dividers:
                for _ in range(self._random.choice((1, 1, 2))):
                    dividers.start_soon(self.divide)
            await trio.sleep(self._random.uniform(0, 0.2))

    async def strike_refound(self, _: Node) -> None:
        """Stop all hosts of a partition and force-join it; the hosts return with their disks, soon or at the end."""
        cluster = self._cluster
        free = [node for node in cluster.nodes if node.uuid in self._of_weight() and node.uuid not in cluster.lost]
        pairs = [
            (part, node)
            for part in parts_of(cluster.register.view(cluster.table))
            for node in free
            if node.life is not None and node.uuid not in {one.node for one in part.partition.assignments}
        ]
        if not pairs:
            return
        has = [pair for pair in pairs if _has_kept(*pair, is_range=cluster.is_range)]
        part, begins_at = self._random.choice(has if has and happens(self._random, 0.8) else pairs)
        held = {one.node for one in part.partition.assignments}
        hosts = [node for node in cluster.nodes if node.uuid in held and not node.is_lost]
        for node in hosts:
            node.is_lost = True
            node.stop(power=happens(self._random, 0.5))
        await trio.sleep(self._random.uniform(0.05, 1.0))
        await self.refound(part, begins_at)
        await trio.sleep(self._random.choice((0.0, 0.5, 2.0)))
        for node in hosts:
            node.is_lost = node.uuid in cluster.lost
            node.start()
            await trio.sleep(self._random.choice((0.0, 1.0)))

    async def strike_force(self, node: Node) -> None:
        """Lose a node for good, and remove or replace it by force; it may come back with its disk."""
        if not self.lose(node):
            return
        await trio.sleep(self._random.uniform(0.1, 1.5))
        await self.force(node)
        if happens(self._random, 0.5):
            await trio.sleep(self._random.uniform(0.1, 3.0))
            node.is_lost = False
            node.start()

    async def force(self, node: Node) -> bool:
        """Remove a lost node by force, or replace it by another where there is one."""
        newcomer = self._newcomer()
        if newcomer is not None and (not self._leaves_enough(node) or happens(self._random, 0.5)):
            is_done = await self.replace(node, newcomer, is_gone=True)
            if is_done:
                self._has_come(newcomer)
            return is_done
        return await self.remove(node, is_gone=True)

    def lose(self, node: Node, *, spared: int = 0) -> bool:
        """Lose a node for good, if at most half of each partition's slots are lost and enough nodes are left."""
        cluster = self._cluster
        lost = cluster.lost | {node.uuid}
        others = [uuid for uuid in self._of_weight() if uuid not in lost]
        if node.uuid in cluster.lost or len(others) < cluster.slots - spared:
            return False
        if 2 * len(cluster.servers & lost) >= len(cluster.servers):
            return False
        for partition in cluster.partitions.values():
            slots = {
                one.slot
                for one in partition.assignments
                if one.state == AssignmentState.AVAILABLE and one.node not in lost
            }
            if not slots or cluster.slots - len(slots) > cluster.slots // 2:
                return False
        cluster.lost.add(node.uuid)
        node.is_lost = True
        node.stop(power=happens(self._random, 0.5))
        return True

    async def heal(self) -> None:
        """Remove all lost nodes where enough others are left; force-join the partitions that only they held."""
        cluster = self._cluster
        while gone := self._gone():
            up = [
                node for node in cluster.nodes if node.uuid in cluster.network.lives and node.uuid in self._of_weight()
            ]
            if not up or not await self.refound(self._random.choice(gone), self._random.choice(up)):
                await trio.sleep(0.1)
        for node in cluster.nodes:
            while node.uuid in cluster.lost and self._may_go(node) and not await self.force(node):
                await trio.sleep(0.1)

    def _gone(self) -> list[LocalPartition]:
        table, lost = self._cluster.table, self._cluster.lost
        parts = parts_of(self._cluster.register.view(table))
        return [
            one for one in parts if all(two.node in lost for two in one.partition.assignments if two.state in _HELD)
        ]

    def _may_go(self, node: Node) -> bool:
        """Return True if a lost node is still named with a weight and can be removed or replaced."""
        named = self.named()
        if node.uuid not in named or named[node.uuid].weight is None:
            return False
        return self._leaves_enough(node) or self._newcomer() is not None

    def _leaves_enough(self, node: Node) -> bool:
        left = [uuid for uuid in self._of_weight() if uuid != node.uuid]
        return len(left) >= self._cluster.slots


def _has_kept(part: LocalPartition, node: Node, *, is_range: bool) -> bool:
    """Return True if a node has a quarantined replica with all keys of a partition."""
    there = () if node.life is None else node.life.replication.replicas.spaces.all_quarantined()
    ids = {*part.partition.recorded}
    return any(
        one.identity.bounds.covers(part.bounds) and (is_range or one.identity.assignment in ids) for one in there
    )
