"""The nodes that tables are laid on: which the catalogue names, and who of the living a new table goes to.

Who holds a partition of a table at its creation is put in (`tables`): who is not named is taken for one that is to hold
nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.placement.spread import Node
from gossipkv.register.metadata.partitions import decode_partition
from gossipkv.register.metadata.tables import END_OF_NODES, NODE, NamedNode, decode_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tables import NamedTable

ASK_S: Final = 5.0
FEW: Final = 256  # Partitions that are looked at before others have a turn.


class Members(Protocol):
    """The nodes of the cluster, as the catalogue knows them."""

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, in their order, this one among them."""
        ...

    async def invite(self, node: bytes) -> AcceptorId:
        """Have a node take part: it is pinned, and has a store, when this returns.  Raises GossipKVError."""
        ...

    async def describe(self, node: bytes) -> NamedNode:
        """What a node says of itself as one of tables.

        Raises:
            Unavailable: it does not say.
        """
        ...


class Host(NamedTuple):
    """A node that a new table may be laid on."""

    uuid: bytes
    acceptor: AcceptorId | None  # None: it is named, and does not take part now.
    node: NamedNode
    is_named: bool  # In the catalogue.


def placed(named: Mapping[bytes, NamedNode]) -> list[Node]:
    """The nodes that are to hold something, as what places partitions knows them."""
    return [Node(uuid, node.isolation_group, node.weight) for uuid, node in named.items() if node.weight]


@final
class Nodes:
    """The nodes of tables."""

    def __init__(self, metadata: Metadata, members: Members, tables: Callable[[], Mapping[str, NamedTable]]) -> None:
        self._metadata = metadata
        self._members = members
        self._tables = tables
        self._read: tuple[bytes, Mapping[bytes, NamedNode]] = b"", {}  # Of which root, and what that says.

    def named(self) -> Mapping[bytes, NamedNode]:
        """The nodes that the catalogue names by uuid, in order, who was taken out among them.  Raises `NotReady`."""
        metadata = self._metadata
        known = metadata.known.get(metadata.catalogue)
        if known is None:
            return {}
        root, nodes = self._read
        if root != known.head.root:
            found = metadata.tree(metadata.catalogue).scan(NODE, END_OF_NODES)
            nodes = {entry.key[len(NODE) :]: decode_node(entry.record) for entry in found}
            self._read = known.head.root, nodes
        return nodes

    def names_beside(self, members: Mapping[bytes, str]) -> dict[bytes, str]:
        """The names of nodes that are no members, unless another node has the name.  Raises `NotReady`."""
        formers = {uuid: node.name for uuid, node in self.named().items() if uuid not in members}
        taken = Counter((*formers.values(), *members.values()))
        return {uuid: name for uuid, name in formers.items() if taken[name] == 1}

    async def hosts(self, wanted: int) -> list[Host]:
        """The nodes that take part, seem to be alive, and were not taken out, in order.

        Where these are fewer than are wanted, and a majority of that, those are among them that live and refuse, such
        as one whose store is closed.

        Raises:
            Unavailable: fewer than are wanted.
        """
        named = self.named()
        found: dict[bytes, Host] = {}
        failed: dict[bytes, str] = {}

        async def invite(node: bytes) -> None:
            try:
                acceptor = await self._members.invite(node)
                described = named.get(node) or await self._members.describe(node)
            except GossipKVError as error:
                name = named[node].name if node in named else node.hex()[:8]
                failed[node] = f"{name}: {error.message}"
            else:
                found[node] = Host(node, acceptor, described, is_named=node in named)

        with trio.move_on_after(ASK_S):
            async with trio.open_nursery() as nursery:
                for node in self._members.alive():
                    if node not in named or named[node].weight:
                        nursery.start_soon(invite, node)
        # With a majority the table is of use, and the others fill up when they are back.
        if wanted // 2 < len(found) < wanted:
            shut = [node for node in sorted(failed) if node in named][: wanted - len(found)]
            found |= {node: Host(node, None, named[node], is_named=True) for node in shut}
        if len(found) < wanted:
            said = "; ".join(failed.values()) or "no others are known"
            raise Unavailable(f"a table of {wanted} replicas needs so many nodes, and {len(found)} take part: {said}")
        return [found[node] for node in sorted(found)]

    async def holders(self) -> set[bytes]:
        """Who holds a partition of any table.  Raises NotReady: the map of one is not known here."""
        holders: set[bytes] = set()
        for table in self._tables().values():
            for number, entry in enumerate(self._metadata.tree(table.id).scan()):
                holders.update(one.node for one in decode_partition(entry.record).assignments)
                if number % FEW == FEW - 1:
                    await trio.lowlevel.checkpoint()
        return holders
