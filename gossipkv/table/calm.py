"""Calm replicas: those from which the serving loops answer reads without Python.

A replica is calm while all hosts of its partition are AVAILABLE, one for each slot, and nothing is under way there. It
leaves this *fast path* at once when anything but clocks is about to change (`Replica.leave_fast_path`), and comes back
by `look`, which runs after each round of the reconciler. A table is served so only by the map that all of its local
replicas follow: a newer one stops the table until the reconciler has followed.

The loops hand to Python what they cannot answer, so leaving late would be wrong, and coming back late is only slow.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import GossipKVError
from gossipkv.register.metadata.known import entries_of
from gossipkv.register.metadata.partitions import HASH, MURMUR3, decode_partition, decode_table
from gossipkv.replication.replica.calm import MAX_HOSTS, CalmReplica, CalmTable
from gossipkv.replication.replica.keys import WHOLE
from gossipkv.settings.databases import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from gossipkv.register.entries import Leaf
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.known import KnownMap, MapView
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica.token_keys import TokenKeys
    from gossipkv.replication.shell import Replication
    from gossipkv.table.ports import OpenStore, ServingLoops

HELD_S: Final = 0.005  # Writes wait so long for a slow sync; then they are begun, so that their deadlines count.


class OpenedTables(NamedTuple):
    """The objects of one opening of the store."""

    store: OpenStore
    metadata: Metadata
    catalogue: Catalogue
    replication: Replication
    token_keys: Callable[[], TokenKeys]


@final
class CalmTables:
    """The tables of one opening of the store that the serving loops read."""

    def __init__(self, loops: ServingLoops, opened: OpenedTables, reported: Container[bytes]) -> None:
        """Let the loops read the store. Raises StorageError if it is closed already.

        `reported`: the tables of which another node has reported settled entries, in this opening or before.
        """
        self._loops, self._opened, self._reported = loops, opened, reported
        self._tables: dict[str, CalmTable] = {}  # By name.
        self._known: dict[str, KnownMap | None] = {}  # By name: the map by which the table is served.
        self._lacking: set[str] = set()  # Tables with a local replica that is not calm.
        # By name: the partition ids of a hash table's shards in each leaf of its map.
        self._shards: dict[str, Mapping[Leaf, Sequence[int]]] = {}
        self._held: ParkedRequest | None = None  # The deadline until which loops hold writes.
        opened.store.serve(loops.guards)
        skew = opened.replication.replicas.skew
        loops.expire_from(skew.expiry_ms(), int(skew.most_ms))
        opened.store.on_written = self._begin_writes

    def hold_writes(self) -> None:
        """Let loops hold writes until the store has written the group under way, or for `HELD_S`."""
        if self._held is None:
            replication = self._opened.replication
            self._held = replication.waiting.begin(replication.now() + HELD_S, 0, self._begin_writes)

    def _begin_writes(self) -> None:
        if self._held is not None:
            self._opened.replication.waiting.end(self._held)
            self._held = None
            self._loops.begin_writes()

    def map_changed(self, register: bytes) -> None:
        """Stop the table of a register, or the dropped tables if the register is the catalogue's."""
        for name, table in self._tables.items():
            if table.id == register:
                table.stop()
                self._known[name] = None
        if register == self._opened.catalogue.register:
            named: Mapping[str, bytes] = {}
            with contextlib.suppress(GossipKVError):
                named = {name: table.id for name, table in self._opened.catalogue.tables().items()}
            self._end([name for name, table in self._tables.items() if named.get(name) != table.id])

    def use_keys(self, keys: TokenKeys) -> None:
        """Seal and verify tokens by these keys."""
        for table in self._tables.values():
            table.use_keys(keys)

    def note_reports(self, register: bytes) -> None:
        """Note that a node has reported settled entries of a table."""
        for table in self._tables.values():
            if table.id == register:
                table.note_reports()

    def look(self) -> None:
        """Serve the calm replicas of each table that has changed since the last look."""
        before = len(self._tables)
        with contextlib.suppress(GossipKVError):  # A table that is not known now is served after a later look.
            self._look()
        if len(self._tables) != before:
            self._loops.serve_tables(self._tables.values())

    def _look(self) -> None:
        _, metadata, catalogue, replication, _ = self._opened
        for name, named in catalogue.tables().items():
            if name.startswith(HIDDEN):
                continue
            known_map, table = metadata.known.get(named.id), self._tables.get(name)
            if known_map is None or known_map.ended or replication.maps.get(named.id) is None:
                continue
            is_served = table is not None and self._known[name] is known_map and table.is_whole
            if not is_served or name in self._lacking:
                self._serve(name, known_map)

    def _serve(self, name: str, known_map: KnownMap) -> None:
        store, _, _, replication, token_keys = self._opened
        tree = known_map.view
        described = decode_table(tree.meta)
        is_hash = described.kind == HASH
        if replication.maps[described.id] != tree.config or (is_hash and described.partitioner != MURMUR3):
            return
        replicas = replication.replicas
        here: Sequence[Replica]
        if is_hash:
            here = [replica for replica in replicas.by_partition.values() if replica.partition[0] == described.id]
        else:  # In order, without departed replicas, which never are calm.
            replicas.spaces.index_ranges(described.id)
            here = replicas.spaces.ranges[described.id].starting(WHOLE)
        for replica in here:
            if replica.calm is None and is_calm(replication, replica):
                enter(replication, replica)
        calm = [replica for replica in here if replica.calm is not None]
        self._lacking = self._lacking - {name} if len(calm) == len(here) else self._lacking | {name}
        if not calm and name not in self._tables:
            return
        rows: list[CalmReplica | None]
        if is_hash:
            by_partition = {replica.partition[1]: replica.calm for replica in calm}
            rows = [by_partition.get(partition) for partition in self._partitions(name, tree)]
        else:
            rows = [replica.calm for replica in calm]
        if name not in self._tables:
            table = CalmTable(
                name,
                described.id,
                token_keys(),
                store.gate,
                described.shards,
                is_timed=described.time_key is not None,
                ttl_ms=described.ttl_ms,
            )
            if described.id in self._reported:
                table.note_reports()
            self._tables[name] = table
        has_all = is_hash and None not in rows and len({frozenset(replica.sharers) for replica in here}) == 1
        self._tables[name].serve(tree.config, rows, has_all=has_all)
        self._known[name] = known_map

    def _partitions(self, name: str, tree: MapView) -> Iterator[int]:
        """Iterate over the ids of a hash table's partitions, in the order of shards."""
        before = self._shards.get(name, {})
        self._shards[name] = {
            leaf: before.get(leaf) or [decode_partition(entry.record).id for entry in entries_of(leaf)]
            for leaf in tree.leaves
        }
        return chain.from_iterable(self._shards[name].values())

    def end(self) -> None:
        """Stop all tables for good: another opening of the store follows."""
        self._end([*self._tables])

    def _end(self, names: Sequence[str]) -> None:
        for name in names:
            self._tables.pop(name).stop()
            del self._known[name]
            self._lacking.discard(name)
        if names:
            self._loops.serve_tables(self._tables.values())


def is_calm(replication: Replication, replica: Replica) -> bool:
    """Return True if a replica may take the fast path."""
    replicas, rules, roles = replication.replicas, replica.rules, replica.roles
    is_whole = replica.joining is None and replica.synced_joining is None and not replica.is_frozen
    is_kept = replica in replicas.acks and replica not in replication.departed and not replica.children
    is_placed = not (rules.former or rules.ends or rules.loads or rules.has_departed)
    has_load = replica in replicas.loader.loads or replica in replicas.loader.unplaced
    are_available = all(role.available and role.counts for role in roles)
    is_one_a_slot = len({role.slot for role in roles}) == len(roles) == len(replica.named) <= MAX_HOSTS
    is_here = replica.role is not None
    return is_whole and is_kept and is_placed and not has_load and are_available and is_one_a_slot and is_here


def enter(replication: Replication, replica: Replica) -> None:
    """Put a calm replica on the fast path."""
    first, end = replica.bounds
    replica.calm = CalmReplica(replica.space, first, end, replica.named, replica.assignment, replica.config)
    replica.calm.owner = replica
    replica.calm.syncs(replica.synced)
    replica.calm.takes(replica.taken_config)
    for node in replica.sharers:
        if node in replication.replicas.peers:
            replication.replicas.peers[node].show_confirmed(replica)
