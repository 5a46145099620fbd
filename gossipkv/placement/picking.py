"""Which slot of a partition a node takes that is to come, and who takes the slot of one that is to go.

Pure.  Hosts lie the farther apart the fewer pairs of them share an isolation group: then the groups' numbers differ as
little as can be, which is what `spread` wants of a partition, too.  Of equals, the load decides: partitions by weight.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.placement.moves import standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import Node


class Picking(NamedTuple):
    """What is known of the nodes among which one is picked."""

    nodes: Mapping[bytes, Node]  # Those that tables are laid on, by their ids.
    held: Mapping[bytes, int]  # How much each has, in partitions or in bytes.
    alive: Collection[bytes]

    def slot_to_take(self, partition: Partition, comer: bytes, replication: int) -> int:
        """The slot that a node takes which is to come: an empty one, else the one whose host is missed least.

        A host that is down is replaced only where that leaves the rest farther apart: what it has is waited for.
        """
        hosts = {slot: node for slot, node in enumerate(standing(partition)) if node is not None}
        empty = [slot for slot in range(replication) if slot not in hosts]
        if empty:
            return empty[0]

        def missed(slot: int) -> tuple[int, bool, float, int]:
            stay = [node for at, node in hosts.items() if at != slot]
            return self._alike([*stay, comer]), hosts[slot] not in self.alive, -self._load(hosts[slot]), slot

        return min(hosts, key=missed)

    def successor(self, partition: Partition, leaver: bytes) -> bytes | None:
        """The node that takes the slot of a host; None: none is left that lives and has nothing of the partition."""
        hosts = {one.node for one in partition.assignments}
        stay = sorted(hosts - {leaver})
        able = [node for node in self.nodes if node in self.alive and node not in hosts]
        return min(able, key=lambda node: (self._alike([*stay, node]), self._load(node), node), default=None)

    def _alike(self, hosts: Iterable[bytes]) -> int:
        """How many pairs share an isolation group; who says none, or is no node of tables any more, is one alone."""
        groups = Counter(self.nodes[one].isolation_group or one if one in self.nodes else one for one in hosts)
        return sum(count * (count - 1) // 2 for count in groups.values())

    def _load(self, node: bytes) -> float:
        return self.held.get(node, 0) / self.nodes[node].weight if node in self.nodes else inf
