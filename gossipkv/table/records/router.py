"""The maps of all tables as they are known here, also in the dark, and who is to be asked."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import GossipKVError, NotReady, UnknownDatabase
from gossipkv.gossip.member import MemberState
from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from gossipkv.table.records.route import TableRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping
    from random import Random

    from gossipkv.replication.shell import Replication
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.wire.results import OnResult

KNOWN_S: Final = 0.02  # Between two looks whether a newer map is known by now,
WAITS_BYTES: Final = 256  # for which about so much is held.
_SEEN: Final = {MemberState.ALIVE: HolderState.ALIVE, MemberState.SUSPECT: HolderState.SUSPECT}


@final
class Router:
    """The maps of all tables, as known here, and who is to be asked."""

    def __init__(self, deciding: MetadataParticipant, random: Random) -> None:
        self._deciding = deciding
        self._random = random
        self._routes: dict[str, tuple[bytes, TableRoute]] = {}  # By name, and of which root.

    def has(self, name: str) -> bool:
        """Whether there is a table of that name, as known here."""
        catalogue = self._deciding.catalogue
        return catalogue is not None and name in catalogue.tables()

    def names(self) -> Mapping[str, bytes]:
        """The tables there are, as known here: the id of each by its name."""
        catalogue = self._deciding.catalogue
        return {} if catalogue is None else {name: named.id for name, named in catalogue.tables().items()}

    def replicating(self, name: str) -> Replication:
        """Return the copies of this node, about a table.  Raises as `route`."""
        return self._deciding.replicating(name)

    def route(self, name: str) -> TableRoute:
        """Find a table's map.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not known here yet.
        """
        metadata, catalogue = self._deciding.taking_part(name)
        named = catalogue.tables().get(name)
        if named is None:
            self._routes.pop(name, None)
            self._deciding.check_knows()
            named = catalogue.table(name)
        known = metadata.known.get(named.id)
        if known is None:
            raise NotReady(
                f"what is decided of the table {name} is not known here yet", {"table": name, "coming": True}
            )
        root, route = self._routes.get(name, (b"", None))
        if route is None or root != known.head.root or known.head.ended:
            route = TableRoute(metadata.tree(named.id))
            self._routes[name] = known.head.root, route
        return route

    def route_of(self, table: bytes) -> TableRoute:
        """Find a table's map by its id.

        Raises:
            UnknownDatabase: the table is known to be no more.
            NotReady: it is not known here, or not yet.
        """
        for name, id_ in self.names().items():
            if id_ == table:
                return self.route(name)
        if self._deciding.has_ended(table):
            raise UnknownDatabase("the table was dropped", {"table": table.hex()})
        raise NotReady("the table is not known here", {"table": table.hex()})

    def once_known(
        self, name: str, config: int, until: float, do: Callable[[TableRoute], object], on_result: OnResult
    ) -> None:
        """Go on once a table's map here is as new as a request says, or when it waits no longer.

        Raises:
            GossipKVError: what `route` and `do` raise; of what comes later `on_result` is told.
        """
        route, replication = self.route(name), self._deciding.replicating()
        now = replication.now()
        if config <= route.config or now >= until:
            do(route)
            return

        def again() -> None:
            try:
                self.once_known(name, config, until, do, on_result)
            except GossipKVError as error:
                on_result(error)

        self._deciding.look_at(route.table.id)
        replication.waiting.begin(min(until, now + KNOWN_S), WAITS_BYTES, again)

    def routes(self, tables: Container[bytes]) -> Iterator[tuple[bytes, TableRoute]]:
        """The maps of those of these tables that are known here, by their ids."""
        _, catalogue = self._deciding.taking_part()
        for name, named in catalogue.tables().items():
            if named.id in tables:
                with contextlib.suppress(NotReady):
                    yield named.id, self.route(name)

    def down(self, nodes: Iterable[bytes]) -> list[str]:
        """The names of those of these nodes that do not live, as far as gossip knows."""
        alive = {member.uuid for member in self._deciding.members() if member.state in _SEEN}
        return sorted(self._deciding.name_of(node) for node in nodes if node not in alive)

    def hosts(self, nodes: Iterable[bytes]) -> list[bytes]:
        """The order in which these nodes are asked: by gossip, shuffled."""
        seen = {member.uuid: _SEEN.get(member.state, HolderState.DEAD) for member in self._deciding.members()}
        holders = {node.hex(): seen.get(node, HolderState.DEAD) for node in nodes}
        return [bytes.fromhex(node) for node in candidates(holders, (), self._random)]
