"""The maps of all tables as this node knows them, even without a quorum, and the order in which hosts are asked."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import NotReady, UnknownDatabase
from gossipkv.gossip.member import MemberState
from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from gossipkv.table.records.route import TableRoute

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping
    from random import Random

    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.table.participant.participant import MetadataParticipant

_SEEN: Final = {MemberState.ALIVE: HolderState.ALIVE, MemberState.SUSPECT: HolderState.SUSPECT}


class _Routed(NamedTuple):
    """The route by the known map of a table."""

    table: bytes
    known_map: KnownMap
    route: TableRoute


@final
class Router:
    """Finds the maps of tables, and the hosts to ask."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._service, self._directory = participant.service, participant.directory
        self._watcher, self._poll = participant.watcher, participant.poll
        self._random = random
        self._routes: dict[str, _Routed] = {}  # By name.

    def names(self) -> Mapping[str, bytes]:
        """Return the ids of all tables in the local catalogue, by name."""
        catalogue = self._service.catalogue
        return {} if catalogue is None else {name: named.id for name, named in catalogue.tables().items()}

    def lack(self, name: str) -> str | None:
        """Return the missing room if this node lacks the map of a table, and has no room for one; else None."""
        if name in self._routes:
            return None
        metadata, catalogue = self._service.taking_part()
        named = catalogue.tables().get(name)
        return None if named is None or named.id in metadata.known else metadata.space.lack

    def route(self, name: str) -> TableRoute:
        """Find a table's map. Raises UnknownDatabase, or NotReady if this node does not know the map yet."""
        metadata, catalogue = self._service.taking_part(name)
        named, routed = catalogue.tables().get(name), self._routes.get(name)
        if routed is not None and named is not None and metadata.known.get(named.id) is routed.known_map:
            return routed.route
        if named is None:
            self._routes.pop(name, None)
            self._service.check_knows()
            named = catalogue.table(name)
        known_map = metadata.known.get(named.id)
        if known_map is None:
            raise NotReady(
                f"what is decided of the table {name} is not known here yet", {"table": name, "coming": True}
            )
        if routed is not None and routed.table != named.id:
            routed = None
        route = TableRoute(metadata.tree(named.id), None if routed is None else routed.route)
        self._routes[name] = _Routed(named.id, known_map, route)
        return route

    def route_of(self, table: bytes) -> TableRoute:
        """Find a table's map by its id.

        Raises:
            UnknownDatabase: the table was dropped.
            NotReady: this node does not know the table or its map.
        """
        for name, id_ in self.names().items():
            if id_ == table:
                return self.route(name)
        if self._poll.has_ended(table):
            raise UnknownDatabase("the table was dropped", {"table": table.hex()})
        raise NotReady("the table is not known here", {"table": table.hex()})

    def look_at(self, table: bytes) -> None:
        """Read the register of a table soon: a client has seen a newer map."""
        self._watcher.look_at(table)

    def routes(self, tables: Container[bytes]) -> Iterator[tuple[bytes, TableRoute]]:
        """Yield the id and the route of each given table whose map this node knows."""
        _, catalogue = self._service.taking_part()
        for name, named in catalogue.tables().items():
            if named.id in tables:
                with contextlib.suppress(NotReady):
                    yield named.id, self.route(name)

    def down(self, nodes: Iterable[bytes]) -> list[str]:
        """Return the names of the given nodes that gossip calls neither alive nor suspect, sorted."""
        alive = {member.uuid for member in self._directory.members() if member.state in _SEEN}
        return sorted(self._directory.name_of(node) for node in nodes if node not in alive)

    def hosts(self, nodes: Iterable[bytes]) -> list[bytes]:
        """Return the nodes in the order to ask them: by their state in gossip, else shuffled."""
        seen = {member.uuid: _SEEN.get(member.state, HolderState.DEAD) for member in self._directory.members()}
        holders = {node.hex(): seen.get(node, HolderState.DEAD) for node in nodes}
        return [bytes.fromhex(node) for node in candidates(holders, (), self._random)]
