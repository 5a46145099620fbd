"""The nodes that hold tables: those named by the catalogue, and the members for a new table.

The catalogue names each node that holds a partition of a table from its creation (`tables`). A node that it does not
name must hold nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, NotReady, Unavailable
from gossipkv.placement.spread import SpreadNode
from gossipkv.register.metadata.partitions import decode_partition
from gossipkv.register.metadata.tables import END_OF_NODES, NODE, NamedNode, decode_node
from gossipkv.wire.results import NotAnswered, NotReached

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedTable

RETRY_S: Final = 0.2
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

    async def hosts(self, replication: int, timeout_s: float, *, is_exact: bool) -> tuple[int, list[PlaceableNode]]:
        """Return the number of replicas of a new table, and the nodes that take part, in order.

        Named nodes that refuse, for example with a closed store, complete a majority of the others.

        `is_exact`: if False, there are at most as many replicas as members, and a majority of them suffices.

        Raises:
            Unavailable: too few nodes take part.
        """
        invitations = _Invitations(self._members, self.named(), replication, is_exact=is_exact)
        with trio.move_on_after(timeout_s):
            await invitations.run()
        wanted, found = invitations.wanted, invitations.found
        # With a majority the table is usable, and the other nodes catch up when they are back.
        if wanted // 2 < len(found) < wanted:
            found |= dict([*invitations.shut().items()][: wanted - len(found)])
        least = wanted if is_exact else wanted // 2 + 1
        if len(found) < least:
            reasons = invitations.reasons() or "no other nodes are known"
            raise Unavailable(
                f"a table of {wanted} replicas needs {least} nodes, and {len(found)} take part: {reasons}"
            )
        return wanted, [found[node] for node in sorted(found)]

    async def holders(self) -> set[bytes]:
        """Return the nodes that hold a partition of any table. Raises NotReady: a table's map is not known here."""
        holders: set[bytes] = set()
        for table in self._tables().values():
            for number, entry in enumerate(self._metadata.tree(table.id).scan()):
                holders.update(assignment.node for assignment in decode_partition(entry.record).assignments)
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
        return holders


@final
class _Invitations:
    """Invitations of all present nodes to hold a new table."""

    def __init__(
        self, members: NodeList, named: Mapping[bytes, NamedNode], replication: int, *, is_exact: bool
    ) -> None:
        self._members, self._named, self._replication, self._is_exact = members, named, replication, is_exact
        self._names: dict[bytes, str] = {}
        self._failed: dict[bytes, GossipKVError] = {}
        self.found: dict[bytes, PlaceableNode] = {}
        self.wanted = replication

    async def run(self) -> None:
        """Return when the members are known, each live one has answered, and enough nodes take part.

        A dead member may be back in a moment, so it is waited for while nodes are too few.
        """
        async with trio.open_nursery() as nursery:
            while True:
                members = self._members.present()
                for node in members.keys() - self._names.keys():
                    nursery.start_soon(self._invite, node)
                self._names |= {node: name for node, (name, _) in members.items()}
                self.wanted = self._replication if self._is_exact else min(self._replication, len(members))
                answered = self.found.keys() | self._refusing()
                live = {node for node, (_, is_live) in members.items() if is_live}
                is_enough = len(self.found) + len(self.shut()) >= self.wanted
                if is_enough and live <= answered and self._members.has_settled():
                    break
                await trio.sleep(RETRY_S)
            nursery.cancel_scope.cancel()

    async def _invite(self, node: bytes) -> None:
        while node not in self.found:
            try:
                acceptor = await self._members.invite(node)
                described = self._named.get(node) or await self._members.describe(node)
            except GossipKVError as error:
                self._failed[node] = error
                await trio.sleep(RETRY_S)
            else:
                self.found[node] = PlaceableNode(node, acceptor, described, is_named=node in self._named)

    def _refusing(self) -> set[bytes]:
        """Return the nodes that have answered, and will not take part soon."""
        passing = NotReady | NotReached | NotAnswered
        return {node for node, error in self._failed.items() if not isinstance(error, passing)} - self.found.keys()

    def shut(self) -> dict[bytes, PlaceableNode]:
        """Return the named nodes that refuse, in order."""
        refusing = sorted(self._refusing() & self._named.keys())
        return {node: PlaceableNode(node, None, self._named[node], is_named=True) for node in refusing}

    def reasons(self) -> str:
        """Return the members that do not take part, with their reasons."""
        missing = {name: self._failed.get(node) for node, name in self._names.items() if node not in self.found}
        return "; ".join(f"{name}: {error.message if error else 'no answer'}" for name, error in missing.items())
