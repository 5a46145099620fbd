"""The maps of all tables as this node knows them, even without a quorum: the partition of a key, and its hosts.

A *route* is a table's map, decoded for lookups. Partition ids have an encoding of their own in requests between hosts.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest, NotReady, StaleConfig, UnknownDatabase
from gossipkv.gossip.member import MemberState
from gossipkv.keyspace.key_index import KeyIndex
from gossipkv.keyspace.partitioner import TABLE_HASHES
from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from gossipkv.placement.partition import AssignmentState
from gossipkv.register.metadata.known import first_of
from gossipkv.register.metadata.partitions import HASH, decode_partition, decode_table, shard_key
from gossipkv.replication.replica.intern import shared

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from gossipkv.placement.partition import Assignment
    from gossipkv.register.entries import Leaf
    from gossipkv.register.metadata.known import KnownMap, MapEntry, MapView
    from gossipkv.table.participant.participant import MetadataParticipant

ID_BYTES: Final = 8
_SEEN: Final = {MemberState.ALIVE: HolderState.ALIVE, MemberState.SUSPECT: HolderState.SUSPECT}


class PartitionRoute(NamedTuple):
    """A partition: its keys and its hosts."""

    partition: int
    first: bytes  # The first key of a range, or the number of a shard.
    end: bytes | None  # The first key of the next partition; None: this is the last.
    hosts: tuple[bytes, ...]  # The sorted uuids of nodes whose assignment is AVAILABLE.
    origins: tuple[int, ...]  # All assignments: present, former, and ended by a force-join.
    version: int  # The config id of the last change.
    moving: tuple[Assignment, ...] = ()  # Assignments that are not AVAILABLE.


@final
class TableRoute:
    """A table's map, as known here."""

    def __init__(self, tree: MapView, before: TableRoute | None = None) -> None:
        """Begin with the leaves that the map shares with the one before it, which are decoded already."""
        self._tree = tree
        self.table, self.config = decode_table(tree.meta), tree.config
        self.is_hash = self.table.kind == HASH
        self._hash = TABLE_HASHES[self.table.partitioner]
        leaves = tree.leaves
        ends = [*map(first_of, leaves[1:]), None]
        self._parts = [*zip(leaves, ends, strict=True)]
        decoded: dict[tuple[Leaf, bytes | None], KeyIndex[PartitionRoute]] = {}
        if before is not None:
            decoded.update(zip(before._parts, before._leaves, strict=True))  # noqa: SLF001  # A former self.
        # Empty: not decoded yet.
        self._leaves: list[KeyIndex[PartitionRoute]] = [decoded.get(part) or KeyIndex() for part in self._parts]
        self._top = KeyIndex([*map(first_of, leaves)], self._leaves)
        self._shards: list[PartitionRoute | None] = [None] * (self.table.shards if self.is_hash else 0)
        self._origins: dict[int, PartitionRoute] = {}

    def place(self, key: bytes) -> PartitionRoute:
        """Find the partition that a key is in."""
        if self.is_hash:
            return self.shard(self._hash(key) % self.table.shards)
        return self._find(key)

    def shard(self, number: int) -> PartitionRoute:
        """Return the partition of a shard. Requires: the table has it."""
        place = self._shards[number]
        if place is None:
            place = self._shards[number] = self._find(shard_key(number))
        return place

    def _find(self, key: bytes) -> PartitionRoute:
        """Find the partition with the last first key up to a key of the map."""
        return self._top.find(key) or self._leaf(self._tree.leaf_of(key)).find(key)

    def before(self, bound: bytes | None) -> PartitionRoute:
        """Find the range of the last keys below `bound`, which is above the lowest key; None: the last range."""
        number = len(self._leaves) - 1 if bound is None else self._tree.leaf_of(bound)
        leaf = self._leaf(number)
        at = len(leaf.keys) if bound is None else bisect_left(leaf.keys, bound)
        return leaf.values[at - 1] if at else self._leaf(number - 1).values[-1]

    def places(self) -> Iterator[PartitionRoute]:
        """Iterate over all partitions, in key order."""
        return chain.from_iterable(self._leaf(number).values for number in range(len(self._leaves)))

    def check(self, config: int, places: Iterable[PartitionRoute]) -> None:
        """Check that the client's map is new enough for these partitions; `config` 0: the client uses no map.

        Raises:
            StaleConfig: one of the partitions has changed since that map.
        """
        for place in places if config else ():
            if place.version > config:
                words = f"the request uses map {config}, and its partition has changed since: fetch the map again"
                raise StaleConfig(words, {"config": self.config})

    def origins(self) -> Mapping[int, PartitionRoute]:
        """Return the partition of each assignment."""
        if not self._origins:
            self._origins = {origin: place for place in self.places() for origin in place.origins}
        return self._origins

    def _leaf(self, number: int) -> KeyIndex[PartitionRoute]:
        leaf = self._leaves[number]
        if not leaf.keys:
            entries, (_, end) = self._tree.leaf(number), self._parts[number]
            firsts = [entry.key for entry in entries]
            leaf.fill(firsts, map(_place_of, entries, [*firsts[1:], end]))
        return leaf


def together(places: Iterable[PartitionRoute]) -> Iterable[Sequence[PartitionRoute]]:
    """Group partitions by their hosts, so that one request serves a group."""
    groups: dict[tuple[bytes, ...], list[PartitionRoute]] = {}
    for place in places:
        groups.setdefault(place.hosts, []).append(place)
    return groups.values()


def packed_ids(partitions: Iterable[int]) -> bytes:
    """Encode partition ids for a request, each in 8 bytes."""
    return b"".join(partition.to_bytes(ID_BYTES, "big") for partition in partitions)


def unpacked_ids(packed: bytes) -> list[int]:
    """Decode the partition ids of a request. Raises BadRequest if the length is no multiple of 8."""
    if len(packed) % ID_BYTES:
        raise BadRequest(f"partition ids have {ID_BYTES} bytes each, and {len(packed)} bytes is no multiple of that")
    return [int.from_bytes(packed[at : at + ID_BYTES], "big") for at in range(0, len(packed), ID_BYTES)]


def _place_of(entry: MapEntry, end: bytes | None) -> PartitionRoute:
    partition = decode_partition(entry.record)
    available = [host for host in partition.assignments if host.state == AssignmentState.AVAILABLE]
    moving = tuple(assignment for assignment in partition.assignments if assignment not in available)
    hosts = shared(tuple(sorted(assignment.node for assignment in available)))
    origins = (*partition.named, *(ended.assignment for ended in partition.ends))
    return PartitionRoute(partition.id, entry.key, end, hosts, origins, entry.version, moving)


class _Routed(NamedTuple):
    """A route, and the known maps by which it is the table's: its own and the catalogue's."""

    table: bytes
    known_map: KnownMap
    register: bytes
    catalogue: KnownMap
    route: TableRoute


@final
class Router:
    """Finds the maps of tables, and the hosts to ask."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._service, self._directory = participant.service, participant.directory
        self._watcher, self._poll = participant.watcher, participant.poll
        self._random = random
        self._routes: dict[str, _Routed] = {}  # By name.

    def _latest(self, name: str) -> TableRoute | None:
        """Return the route of a table if neither its head nor the catalogue's has changed since it was made."""
        routed, metadata = self._routes.get(name), self._service.metadata
        if routed is None or metadata is None:
            return None
        known = metadata.known
        is_same = known.get(routed.table) is routed.known_map and known.get(routed.register) is routed.catalogue
        return routed.route if is_same else None

    def has(self, name: str) -> bool:
        """Return True if the local catalogue has a table of that name. Requires: there is one."""
        return self._latest(name) is not None or name in self._service.taking_part()[1].tables()

    def names(self) -> Mapping[str, bytes]:
        """Return the ids of all tables in the local catalogue, by name."""
        catalogue = self._service.catalogue
        return {} if catalogue is None else {name: named.id for name, named in catalogue.tables().items()}

    def lack(self, name: str, *, once: bool) -> str | None:
        """Return why this node lacks the map of a table that the catalogue names; None: it has it, or soon will.

        `once`: True to answer at once, also if this node is about to read the map.
        """
        if self._latest(name) is not None:
            return None
        metadata, catalogue = self._service.taking_part()
        named = catalogue.tables().get(name)
        if named is None or named.id in metadata.known:
            return None
        if (lack := metadata.space.lack) is not None:
            return f"cannot take the table's map ({lack})"
        return "has not read the table's map yet" if once else None

    def route(self, name: str) -> TableRoute:
        """Find a table's map. Raises UnknownDatabase, or NotReady if this node does not know the map yet."""
        if (latest := self._latest(name)) is not None:
            return latest
        metadata, catalogue = self._service.taking_part(name)
        named = catalogue.tables().get(name)
        if named is None:
            self._routes.pop(name, None)
            self._service.check_knows()
            named = catalogue.table(name)
        known_map = metadata.known.get(named.id)
        if known_map is None:
            raise NotReady(
                f"this node does not know the state of the table {name} yet", {"table": name, "coming": True}
            )
        routed = self._routes.get(name)
        before = routed.route if routed is not None and routed.table == named.id else None
        route = TableRoute(metadata.view(named.id), before)
        self._routes[name] = _Routed(named.id, known_map, metadata.catalogue, metadata.known[metadata.catalogue], route)
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
        raise NotReady("this node does not know the table", {"table": table.hex()})

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
