"""The nodes that hold tables: those named by the catalogue, and the live nodes for a new table.

The catalogue names each node that holds a partition of a table from its creation (`tables`). A node that it does not
name must hold nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.placement.spread import SpreadNode
from gossipkv.register.metadata.partitions import decode_partition
from gossipkv.register.metadata.tables import END_OF_NODES, NODE, NamedNode, decode_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedTable

ASK_S: Final = 5.0
FEW: Final = 256  # Partitions that are processed before other tasks run.


class NodeList(Protocol):
    """The nodes of the cluster, as the catalogue knows them."""

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, including this one, in order."""

    async def invite(self, node: bytes) -> AcceptorId:
        """Ask a node to take part; return once it is pinned and has a store. Raises GossipKVError."""

    async def describe(self, node: bytes) -> NamedNode:
        """Return a node's description of itself for tables.

        Raises:
            Unavailable: the node does not answer.
        """


class PlaceableNode(NamedTuple):
    """A node that may hold partitions of a new table."""

    uuid: bytes
    acceptor: AcceptorId | None  # None: the node is named, and does not take part now.
    node: NamedNode
    is_named: bool  # True if the catalogue names it.


def placed(named: Mapping[bytes, NamedNode]) -> list[SpreadNode]:
    """Return the nodes that may hold partitions, for the placement."""
    return [SpreadNode(uuid, node.isolation_group, node.weight) for uuid, node in named.items() if node.weight]


@final
class Nodes:
    """The nodes of tables."""

    def __init__(self, metadata: Metadata, members: NodeList, tables: Callable[[], Mapping[str, NamedTable]]) -> None:
        self._metadata = metadata
        self._members = members
        self._tables = tables
        self._read: tuple[bytes, Mapping[bytes, NamedNode]] = b"", {}  # The last read root, and its nodes.

    def named(self) -> Mapping[bytes, NamedNode]:
        """Return the nodes that the catalogue names, by uuid, in order, including removed ones. Raises `NotReady`."""
        metadata = self._metadata
        known_map = metadata.known.get(metadata.catalogue)
        if known_map is None:
            return {}
        root, nodes = self._read
        if root != known_map.head.root:
            found = metadata.tree(metadata.catalogue).scan(NODE, END_OF_NODES)
            nodes = {entry.key[len(NODE) :]: decode_node(entry.record) for entry in found}
            self._read = known_map.head.root, nodes
        return nodes

    def names_beside(self, members: Mapping[bytes, str]) -> dict[bytes, str]:
        """Return the unique names of nodes that are no members. Raises `NotReady`."""
        formers = {uuid: node.name for uuid, node in self.named().items() if uuid not in members}
        name_counts = Counter((*formers.values(), *members.values()))
        return {uuid: name for uuid, name in formers.items() if name_counts[name] == 1}

    async def hosts(self, wanted: int) -> list[PlaceableNode]:
        """Return the nodes that take part, seem to be alive, and were not removed, in order.

        If they are too few but a majority of `wanted`, the result includes live nodes that refuse, for example with a
        closed store.

        Raises:
            Unavailable: there are fewer than `wanted`.
        """
        named = self.named()
        found: dict[bytes, PlaceableNode] = {}
        failed: dict[bytes, str] = {}

        async def invite(node: bytes) -> None:
            try:
                acceptor = await self._members.invite(node)
                described = named.get(node) or await self._members.describe(node)
            except GossipKVError as error:
                name = named[node].name if node in named else node.hex()[:8]
                failed[node] = f"{name}: {error.message}"
            else:
                found[node] = PlaceableNode(node, acceptor, described, is_named=node in named)

        with trio.move_on_after(ASK_S):
            async with trio.open_nursery() as nursery:
                for node in self._members.alive():
                    if node not in named or named[node].weight:
                        nursery.start_soon(invite, node)
        # With a majority the table is usable, and the other nodes catch up when they are back.
        if wanted // 2 < len(found) < wanted:
            shut = [node for node in sorted(failed) if node in named][: wanted - len(found)]
            found |= {node: PlaceableNode(node, None, named[node], is_named=True) for node in shut}
        if len(found) < wanted:
            reasons = "; ".join(failed.values()) or "no other nodes are known"
            raise Unavailable(
                f"a table of {wanted} replicas needs {wanted} nodes, and {len(found)} take part: {reasons}"
            )
        return [found[node] for node in sorted(found)]

    async def holders(self) -> set[bytes]:
        """Return the nodes that hold a partition of any table. Raises NotReady: a table's map is not known here."""
        holders: set[bytes] = set()
        for table in self._tables().values():
            for number, entry in enumerate(self._metadata.tree(table.id).scan()):
                holders.update(assignment.node for assignment in decode_partition(entry.record).assignments)
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
        return holders
