"""Which partition of a table a key is in, and which nodes hold it: by the map that is known here, also in the dark."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import NotReady
from gossipkv.gossip.member import State as MemberState
from gossipkv.keyspace.partitioner import murmur3_32
from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from gossipkv.placement.partition import State
from gossipkv.register.metadata.partitions import HASH, decode_partition, decode_table, shard_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from gossipkv.register.metadata.pages import Entry
    from gossipkv.register.metadata.tree import Tree
    from gossipkv.table.deciding import Deciding

_SEEN: Final = {MemberState.ALIVE: HolderState.ALIVE, MemberState.SUSPECT: HolderState.SUSPECT}


class Place(NamedTuple):
    """A partition: which keys it has, and who may be asked for them."""

    partition: int
    first: bytes  # The first key of a range; of a shard its number.
    end: bytes | None  # The next one's first; None: there is none.
    hosts: tuple[bytes, ...]  # The uuids of those that are AVAILABLE, in their order.


@final
class Route:
    """A table's map, as known here."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.table = decode_table(tree.root.meta)
        self.is_hash = self.table.kind == HASH
        self._leaves: dict[int, list[Place]] = {}  # Those that were asked for.

    def place(self, key: bytes) -> Place:
        """Find the partition that a key is in."""
        if self.is_hash:
            key = shard_key(murmur3_32(key) % self.table.shards)
        places = self._leaf(self._tree.leaf_of(key))
        return places[bisect_right(places, key, key=_first) - 1]

    def before(self, bound: bytes | None) -> Place:
        """Find the range with the last keys before a bound that is not the lowest key; None: with the last of all."""
        leaf = len(self._tree.root.leaves) - 1 if bound is None else self._tree.leaf_of(bound)
        places = self._leaf(leaf)
        at = len(places) if bound is None else bisect_left(places, bound, key=_first)
        return places[at - 1] if at else self._leaf(leaf - 1)[-1]

    def places(self) -> Iterator[Place]:
        """All partitions, in order."""
        return chain.from_iterable(map(self._leaf, range(len(self._tree.root.leaves))))

    def _leaf(self, at: int) -> list[Place]:
        places = self._leaves.get(at)
        if places is None:
            leaves, entries = self._tree.root.leaves, self._tree.leaf(at)
            end = leaves[at + 1].first if at + 1 < len(leaves) else None
            ends = [*(entry.key for entry in entries[1:]), end]
            places = self._leaves[at] = [*map(_place_of, entries, ends)]
        return places


@final
class Routing:
    """The maps of all tables, as known here, and who is to be asked."""

    def __init__(self, deciding: Deciding, random: Random) -> None:
        self._deciding = deciding
        self._random = random
        self._routes: dict[str, tuple[bytes, Route]] = {}  # By name, and of which root.

    def has(self, name: str) -> bool:
        """Whether there is a table of that name, as known here."""
        catalogue = self._deciding.catalogue
        return catalogue is not None and name in catalogue.tables()

    def route(self, name: str) -> Route:
        """Find a table's map.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not known here yet.
        """
        metadata, catalogue = self._deciding.taking_part()
        named = catalogue.tables().get(name)
        if named is None:
            self._routes.pop(name, None)
            named = catalogue.table(name)
        known = metadata.known.get(named.id)
        if known is None:
            raise NotReady(
                f"what is decided of the table {name} is not known here yet", {"table": name, "coming": True}
            )
        root, route = self._routes.get(name, (b"", None))
        if route is None or root != known.head.root or known.head.ended:
            route = Route(metadata.tree(named.id))
            self._routes[name] = known.head.root, route
        return route

    def hosts(self, nodes: Iterable[bytes]) -> list[bytes]:
        """The order in which these nodes are asked: by gossip, shuffled."""
        seen = {member.uuid: _SEEN.get(member.state, HolderState.DEAD) for member in self._deciding.members()}
        holders = {node.hex(): seen.get(node, HolderState.DEAD) for node in nodes}
        return [bytes.fromhex(node) for node in candidates(holders, (), self._random)]


def together(places: Iterable[Place]) -> Iterable[Sequence[Place]]:
    """Partitions in groups that the same nodes hold: one question goes for all of a group."""
    groups: dict[tuple[bytes, ...], list[Place]] = {}
    for place in places:
        groups.setdefault(place.hosts, []).append(place)
    return groups.values()


def _place_of(entry: Entry, end: bytes | None) -> Place:
    partition = decode_partition(entry.record)
    hosts = sorted(one.node for one in partition.assignments if one.state == State.AVAILABLE)
    return Place(partition.id, entry.key, end, tuple(hosts))


def _first(place: Place) -> bytes:
    return place.first
