"""The node directory: the nodes of the cluster by uuid and by name, as tables need them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import NotReady, Unavailable
from gossipkv.gossip.core import NAMES
from gossipkv.gossip.member import REACHABLE, MemberState
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata.tables import NamedNode, decode_node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.gossip.member import Member
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.settings.config import Config
    from gossipkv.table.peers.peer_client import PeerClient
    from gossipkv.table.ports import ClusterView, NodeIdentity
    from gossipkv.table.service import TableService

UUID_DIGITS: Final = re.compile("[0-9a-f]{32}")
INVITE_S: Final = 10.0  # Time for a node to be pinned and to make a store.


@final
class NodeDirectory:
    """The nodes of the cluster: this one, the members, and former members with tables."""

    def __init__(
        self,
        settings: Config,
        identity: NodeIdentity,
        cluster: ClusterView,
        *,
        peers: PeerClient,
        service: TableService,
        take_part: Callable[[], Awaitable[tuple[Metadata, Catalogue]]],
    ) -> None:
        """`take_part`: makes this node take part in METADATA transactions."""
        self._settings = settings
        self._identity = identity
        self._peers = peers
        self._service = service
        self._take_part = take_part
        self._cluster = cluster
        self.members = cluster.members_known  # Returns the members that gossip knows.
        self.has_settled: Callable[[], bool] = lambda: True  # See `NodeList`; set by the node.
        self._alive: tuple[Sequence[Member], Sequence[bytes]] = (), ()  # The members, and the last `alive` among them.
        # The last `known_names`, and the members and catalogue's nodes that it is made from.
        self._names: tuple[Sequence[Member], Mapping[bytes, NamedNode], Mapping[bytes, str]] = (), {}, {}

    def alive(self) -> Sequence[bytes]:
        """Return uuids of nodes that seem to be alive, in their order, this one among them."""
        members = self.members()
        if self._alive[0] is not members:
            self._alive = members, sorted(member.uuid for member in members if member.state is MemberState.ALIVE)
        return self._alive[1]

    def present(self) -> dict[bytes, tuple[str, bool]]:
        """Return the nodes that a new table may expect, see `NodeList`."""
        catalogue = self._service.catalogue
        named = {} if catalogue is None else catalogue.nodes.named()
        members = {
            member.uuid: (member.name, member.state in REACHABLE)
            for member in self.members()
            if member.state is not MemberState.LEFT and (member.uuid not in named or named[member.uuid].weight)
        }
        return {uuid: (node.name, False) for uuid, node in named.items() if node.weight} | members

    def absent(self) -> dict[bytes, str]:
        """Return the present nodes that cannot hold a partition now: dead ones, and those that tables do not name.

        Raises NotReady.
        """
        named = self._service.taking_part()[1].nodes.named()
        return {uuid: name for uuid, (name, is_live) in self.present().items() if uuid not in named or not is_live}

    def addresses(self) -> dict[str, str]:
        """Return the addresses of live members for clients, by name: the advertised name, else the number."""
        named = {entry.owner: entry.name for entry in self._cluster.below(NAMES)}
        live = [member for member in self.members() if member.state in REACHABLE]
        return {member.name: named.get(member.name, str(member.address)) for member in live}

    def names(self) -> dict[bytes, str]:
        """Return the names of all known members, by uuid."""
        return {member.uuid: member.name for member in self.members()}

    def known_names(self) -> Mapping[bytes, str]:
        """Return the names of all members, and of former members with tables, unless another node has the name."""
        catalogue = self._service.catalogue
        if catalogue is None:
            return self.names()
        try:
            named = catalogue.nodes.named()
        except NotReady:  # A page of the catalogue is yet to come.
            return self.names()
        members = self.members()
        if self._names[0] is not members or self._names[1] is not named:
            names = self.names()
            self._names = members, named, catalogue.nodes.names_beside(names) | names
        return self._names[2]

    def name_of(self, uuid: bytes) -> str:
        """Return the name of a node, or the digits of its uuid if the name is unknown."""
        return self.known_names().get(uuid) or uuid.hex()

    def uuid_of(self, name: str) -> bytes:
        """Return the uuid of a node by its name or digits, the inverse of `name_of`. Raises Unavailable if unknown."""
        for uuid, known_name in self.known_names().items():
            if known_name == name:
                return uuid
        if UUID_DIGITS.fullmatch(name):
            return bytes.fromhex(name)
        raise Unavailable(f"the cluster has no member {name}", {"node": name})

    async def invite(self, node: bytes) -> AcceptorId:
        """Make a node take part, and return its acceptor id. Raises GossipKVError."""
        if node.hex() == self._identity.record.uuid:
            metadata, _ = await self._take_part()
            return metadata.me
        cluster_id = self._identity.record.cluster_id
        answer = await self._peers.ask(node, "metadata_invite", [bytes.fromhex(cluster_id)], INVITE_S)
        if not isinstance(answer, int) or not answer:
            raise Unavailable(f"{self.name_of(node)} did not report its store")
        return AcceptorId(node, answer)

    async def describe(self, node: bytes) -> NamedNode:
        """Return a node's record for the catalogue, by its own words. Raises Unavailable if it does not answer."""
        if node.hex() == self._identity.record.uuid:
            return decode_node(self.described())
        answer = await self._peers.ask(node, "metadata_describe", [], INVITE_S)
        return decode_node(answer if isinstance(answer, bytes) else b"")

    def described(self) -> bytes:
        """Return the encoded catalogue record of this node."""
        return NamedNode(self._identity.record.node, self._settings.isolation_group, self._settings.weight).encode()
