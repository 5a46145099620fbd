"""Which partition of a table a key is in, and which nodes hold it: by the map that is known here, also in the dark."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import NotReady
from gossipkv.gossip.member import State as MemberState
from gossipkv.keyspace.partitioner import murmur3_32
from gossipkv.placement.candidates import candidates
from gossipkv.placement.holders import HolderState
from gossipkv.placement.partition import State
from gossipkv.register.metadata.partitions import HASH, decode_partition, decode_table, shard_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.pages import Entry
    from gossipkv.register.metadata.tree import Tree
    from gossipkv.table.deciding import Deciding


class Place(NamedTuple):
    """A partition, and which keys it has."""

    partition: Partition
    version: int  # The config id of its last change.
    first: bytes  # The first key of a range; of a shard its number.
    end: bytes | None  # Of a range: the next one's first key; None: there is none.


@final
class Route:
    """A table's map, as known here."""

    def __init__(self, name: str, tree: Tree) -> None:
        self.name = name
        self.tree = tree
        self.table = decode_table(tree.root.meta)
        self._places: dict[bytes, Place] = {}  # Those that were asked for.

    @property
    def is_hash(self) -> bool:
        """Whether its partitions are shards."""
        return self.table.kind == HASH

    def place(self, key: bytes) -> Place:
        """The partition that a key is in."""
        if self.is_hash:
            first = shard_key(murmur3_32(key) % self.table.shards)
            found = self._places.get(first)
            if found is not None:
                return found
            entry = self.tree.get(first)
            assert entry is not None, "the shards of a hash table are all there"
            return self._read(entry, None)
        leaf = self.tree.leaf_of(key)
        entries = self.tree.leaf(leaf)
        at = bisect_right(entries, key, key=lambda entry: entry.key) - 1
        assert at >= 0, "the first range begins at the lowest key"
        found = self._places.get(entries[at].key)
        if found is not None:
            return found
        if at + 1 == len(entries):
            entries = (*entries, *(self.tree.leaf(leaf + 1)[:1] if leaf + 1 < len(self.tree.root.leaves) else ()))
        return self._read(entries[at], entries[at + 1].key if at + 1 < len(entries) else None)

    def places(self) -> Iterator[Place]:
        """All partitions, in order."""
        before: Entry | None = None
        for entry in self.tree.scan():
            if before is not None:
                yield self._places.get(before.key) or self._read(before, None if self.is_hash else entry.key)
            before = entry
        if before is not None:
            yield self._places.get(before.key) or self._read(before, None)

    def _read(self, entry: Entry, end: bytes | None) -> Place:
        place = Place(decode_partition(entry.record), entry.version, entry.key, end)
        self._places[entry.key] = place
        return place


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
        """A table's map.

        Raises:
            UnknownDatabase: there is no such table.
            NotReady: its map is not known here yet.
        """
        metadata, catalogue = self._deciding.taking_part()
        named = catalogue.tables().get(name) or catalogue.table(name)
        known = metadata.known.get(named.id)
        if known is None:
            raise NotReady(
                f"what is decided of the table {name} is not known here yet", {"database": name, "coming": True}
            )
        root, route = self._routes.get(name, (b"", None))
        if route is None or root != known.head.root:
            route = Route(name, metadata.tree(named.id))
            self._routes[name] = known.head.root, route
        return route

    def route_of(self, table: bytes) -> Route:
        """The map of the table with that id.  Raises as `route`."""
        _, catalogue = self._deciding.taking_part()
        for name, named in catalogue.tables().items():
            if named.id == table:
                return self.route(name)
        raise NotReady(f"the table {table.hex()} is not known here")

    def hosts(self, partition: Partition) -> list[bytes]:
        """Who holds a partition and may be asked, in the order in which they are: by gossip, shuffled."""
        states = {MemberState.ALIVE: HolderState.ALIVE, MemberState.SUSPECT: HolderState.SUSPECT}
        members = {member.uuid: states.get(member.state, HolderState.DEAD) for member in self._deciding.members()}
        available = [one.node for one in partition.assignments if one.state == State.AVAILABLE]
        holders = {node.hex(): members.get(node, HolderState.DEAD) for node in available}
        return [bytes.fromhex(node) for node in candidates(holders, (), self._random)]
