"""The nodes that hold tables: those named by the catalogue, and the members for a new table.

The catalogue names each node that holds a partition of a table from its creation (`tables`). A node that it does not
name must hold nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Unavailable
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.placement.spread import SpreadNode, spread
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.partitions import decode_partition, first_edits
from gossipkv.register.metadata.tables import END_OF_NODES, NODE, NamedNode, decode_node
from gossipkv.wire.results import NotAnswered, NotReached

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedTable

RETRY_S: Final = 0.2
PASSING: Final = NotReady, NotReached, NotAnswered  # Errors of nodes that may take part soon.
FEW: Final = 256  # Partitions that are processed before other tasks run.


class NodeList(Protocol):
    """The nodes of the cluster, as the catalogue knows them."""

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, including this one, in order."""

    def present(self) -> Mapping[bytes, tuple[str, bool]]:
        """Return by uuid the nodes that a new table may expect: the name, and True if the node seems to live.

        They are the members that have not left, and the named nodes, which may restart; without removed nodes.
        """

    def has_settled(self) -> bool:
        """Return True once the list of members has been still since this node started."""

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
        self._read: tuple[KnownMap | None, Mapping[bytes, NamedNode]] = None, {}  # The last read map, and its nodes.

    def named(self) -> Mapping[bytes, NamedNode]:
        """Return the nodes that the catalogue names, by uuid, in order, including removed ones. Raises `NotReady`."""
        metadata = self._metadata
        known_map = metadata.known.get(metadata.catalogue)
        if known_map is None:
            return {}
        read, nodes = self._read
        if read is not known_map:
            found = known_map.view.scan(NODE, END_OF_NODES)
            nodes = {entry.key[len(NODE) :]: decode_node(entry.record) for entry in found}
            self._read = known_map, nodes
        return nodes

    def names_beside(self, members: Mapping[bytes, str]) -> dict[bytes, str]:
        """Return the unique names of nodes that are no members. Raises `NotReady`."""
        formers = {uuid: node.name for uuid, node in self.named().items() if uuid not in members}
        name_counts = Counter((*formers.values(), *members.values()))
        return {uuid: name for uuid, name in formers.items() if name_counts[name] == 1}

    async def hosts(self, replication: int, timeout_s: float, *, is_exact: bool) -> tuple[int, list[PlaceableNode]]:
        """Return the number of replicas of a new table, and the nodes that take part, in order.

        Named nodes that refuse, for example with a closed store, complete a majority of the others.

        `is_exact`: if False, there are at most as many replicas as members, and a majority of them suffices.

        Raises:
            Unavailable: too few nodes take part.
        """
        named, wanted = self.named(), replication
        names: dict[bytes, str] = {}  # The members that were invited.
        found: dict[bytes, PlaceableNode] = {}
        failed: dict[bytes, GossipKVError] = {}
        refusing: set[bytes] = set()  # Nodes that have answered, and will not take part soon.

        async def invite(node: bytes) -> None:
            while node not in found:
                try:
                    found[node] = await self.invited(node)
                except GossipKVError as error:
                    failed[node] = error
                    await trio.sleep(RETRY_S)

        # 1. Wait until the members are known, each live one has answered, and enough nodes take part. A dead member may
        #    be back in a moment.
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + timeout_s
            while True:
                members = self._members.present()
                for node in sorted(members.keys() - names.keys()):
                    nursery.start_soon(invite, node)
                names |= {node: name for node, (name, _) in members.items()}
                wanted = replication if is_exact else min(replication, len(members))
                refusing = {node for node, error in failed.items() if not isinstance(error, PASSING)} - found.keys()
                live = {node for node, (_, is_live) in members.items() if is_live}
                is_enough = len(found) + len(refusing & named.keys()) >= wanted
                is_done = is_enough and live <= found.keys() | refusing and self._members.has_settled()
                if is_done or not members:  # Without any, this node itself is leaving.
                    break
                await trio.sleep(RETRY_S)
            nursery.cancel_scope.cancel()
        # 2. With a majority the table is usable, and the other nodes catch up when they are back.
        hosts = [found[node] for node in sorted(found)]
        if wanted // 2 < len(hosts) < wanted:
            shut = [PlaceableNode(node, None, named[node], is_named=True) for node in sorted(refusing & named.keys())]
            hosts = sorted(hosts + shut[: wanted - len(hosts)])
        # 3. Refuse with the reason of each member that does not take part.
        least = wanted if is_exact else wanted // 2 + 1
        if len(hosts) < least:
            missing = {name: failed.get(node) for node, name in names.items() if node not in found}
            reasons = "; ".join(f"{name}: {error.message if error else 'no answer'}" for name, error in missing.items())
            raise Unavailable(
                f"a table of {wanted} replicas needs {least} nodes, and {len(hosts)} take part: "
                f"{reasons or 'no other nodes are known'}"
            )
        return wanted, hosts

    async def invited(self, node: bytes) -> PlaceableNode:
        """Let a node take part, so that it may hold partitions. Raises GossipKVError."""
        acceptor, named = await self._members.invite(node), self.named()
        described = named.get(node) or await self._members.describe(node)
        return PlaceableNode(node, acceptor, described, is_named=node in named)

    async def holders(self) -> set[bytes]:
        """Return the nodes that hold a partition of any table. Raises NotReady: a table's map is not known here."""
        holders: set[bytes] = set()
        for table in self._tables().values():
            for number, entry in enumerate(self._metadata.view(table.id).scan()):
                holders.update(assignment.node for assignment in decode_partition(entry.record).assignments)
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
        return holders


def first_map(
    table: TableMeta, keys: Sequence[bytes], nodes: Sequence[SpreadNode], draw: Random, config: int
) -> list[Edit]:
    """Return the edits that make a map of all partitions; each replica is AVAILABLE, since there is nothing to load."""
    wanted = spread(nodes, table.replication, [()] * len(keys))
    partitions = {
        key: Partition.of(
            draw_id(draw),
            [
                Assignment(draw_id(draw), node, slot, AssignmentState.AVAILABLE)
                for slot, node in enumerate(slots)
                if node
            ],
        )
        for key, slots in zip(keys, wanted, strict=True)
    }
    return first_edits(table, partitions, config)
