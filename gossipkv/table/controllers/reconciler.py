"""The reconciler: makes the local replicas match the maps known here.

A replica *departs* when its assignment is removed; the migrator drops it once that is safe (`controllers.migrator`).
The replica is *quarantined* instead if its last adopted map had it AVAILABLE, or if the assignment was removed by
force. Such a replica may have records that other hosts lack, but merging would let old values win under new times.

A replica whose range was retired, by its table's retention, is dropped.

A replica whose range was divided continues as the children that name it (`replication.maintenance.split`); the rest is
quarantined. A force-joined partition continues with a replica quarantined here if the map says so; else it starts
empty.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError, NotReady, Overloaded
from gossipkv.log import Log
from gossipkv.placement.partition import LEFT_OUT, AssignmentState
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_partition, decode_table, range_of
from gossipkv.replication.maintenance.split import ChildReplica, divide, keep
from gossipkv.replication.replica.keys import WHOLE, KeyBounds, ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from gossipkv.placement.partition import Assignment, Partition
    from gossipkv.register.metadata.known import KnownMap, MapView
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.write_stats import WriteStats

FEW: Final = 64  # Partitions processed before other tasks run.
LOOK_S: Final = 1.0  # Usual time between two rounds, since replicas may be dropped or made without news.
OTHERS_SHARE: Final = 1  # After a round, other tasks have as much time as it took.

_HELD: Final = frozenset({AssignmentState.AVAILABLE, AssignmentState.LEAVING})  # States with a complete replica.


class LocalPartition(NamedTuple):
    """A partition in a map."""

    version: int  # The config id of the partition's last change.
    bounds: KeyBounds  # Bounds of its keys; unbounded for a shard.
    record: bytes

    @property
    def partition(self) -> Partition:
        """The decoded partition."""
        return decode_partition(self.record)


def hosts_of(partition: Partition) -> list[AssignedReplica]:
    """Return the hosts of a partition in the form that replicas use."""
    count, serve = (
        {AssignmentState.INITIALIZING, AssignmentState.AVAILABLE},
        {AssignmentState.AVAILABLE, AssignmentState.LEAVING},
    )
    return [
        AssignedReplica(
            assignment.id, assignment.node, assignment.slot, assignment.state in count, assignment.state in serve
        )
        for assignment in partition.assignments
    ]


def rules_of(partition: Partition, slots: int, own: int, *, smears: bool = False) -> PartitionRules:
    """Return a partition's rules for the replica of the assignment `own`; `slots`: the table's replication."""
    assignment = partition.assignment(own)
    loads = assignment is not None and assignment.state == AssignmentState.INITIALIZING
    return PartitionRules(slots, partition.former, partition.ends, loads, smears=smears)


def _child_of(described: TableMeta, part: LocalPartition, own: Assignment) -> ChildReplica:
    """Return the description of this node's replica of a partition, from its assignment there."""
    partition = part.partition
    identity = ReplicaIdentity(described.id, partition.id, own.id, part.bounds)
    rules = rules_of(partition, described.replication, own.id, smears=described.smears)
    return ChildReplica(identity, part.version, hosts_of(partition), rules)


def parts_of(tree: MapView, bounds: KeyBounds = WHOLE) -> Iterator[LocalPartition]:
    """Yield the partitions of a map that begin within bounds, in order."""
    is_range = decode_table(tree.meta).kind == RANGE
    entries = chain(tree.scan(bounds.first), [None])
    for entry, following in pairwise(entries):
        if entry is None or (bounds.end is not None and entry.key >= bounds.end):
            return
        its = KeyBounds(entry.key, None if following is None else following.key) if is_range else WHOLE
        yield LocalPartition(entry.version, its, entry.record)


def _changed_bounds(view: MapView, keys: Collection[bytes] | None) -> Iterator[KeyBounds]:
    """Yield the bounds of the entries that edits of these keys concern, in order; None: all entries."""
    if keys is None:
        yield WHOLE
    # The keys of a deleted entry are those of the entry before it.
    for first in sorted({entry.key for entry in map(view.floor, keys or ()) if entry is not None}):
        yield KeyBounds(first, view.next_key(first))


def _is_named(tree: MapView, replica: Replica) -> bool:
    """Return True if a range table's map has a replica's partition at its first key."""
    entry = tree.get(replica.bounds.first)
    return entry is not None and decode_partition(entry.record).id == replica.partition[1]


@final
class Reconciler:
    """The reconciler of one node."""

    def __init__(self, tables: LocalTables, last_hour: WriteStats) -> None:
        self._metadata, self._catalogue, self._replication = tables.metadata, tables.catalogue, tables.replication
        self._last_hour = last_hour
        self._reconciled: dict[bytes, KnownMap] = {}  # By table: the last reconciled map.
        self._edited: dict[bytes, set[bytes] | None] = {}  # By table: keys that were edited since; None: all.
        self._dropped: dict[bytes, list[KeyBounds]] = {}  # By table: bounds whose replica was dropped since.
        self._news = trio.Event()
        self._log = Log("gossipkv.node")
        self.on_looked: Callable[[], object] = lambda: None  # Called after each round.
        self._may_be_left = True  # True if dropped tables may have replicas here, as after a restart.
        self._metadata.on_forgotten = self._forget

    async def run(self) -> None:
        """Reconcile with each new map until cancelled."""
        why = ""
        while True:
            self._news, began = trio.Event(), trio.current_time()
            try:
                await self.look()
                why = ""
            except GossipKVError as error:
                if error.message != why:  # Log a reason once: it may last for days.
                    self._log.info("decisions_wait", reason=error.message)
                why = error.message
            self.on_looked()
            # After a long round, the time is left to other tasks, but not for long: moves wait for the next round.
            now = trio.current_time()
            rests_until = now + min(OTHERS_SHARE * (now - began), LOOK_S)
            await rest(LOOK_S, self._news)
            if trio.current_time() < rests_until:
                await trio.sleep_until(rests_until)

    def wake(self) -> None:
        """Start the next round soon, since a newer map is known."""
        self._news.set()

    def edited(self, table: bytes, keys: Collection[bytes] | None) -> None:
        """Reconcile the partitions at these keys of a table's map soon; None: all of them."""
        before = self._edited.setdefault(table, set())
        self._edited[table] = None if before is None or keys is None else before.union(keys)
        self.wake()

    async def look(self) -> None:
        """Reconcile the local replicas with the maps of all tables.

        Raises:
            NotReady, Overloaded, StorageError: a later round must do the rest.
        """
        refused: Overloaded | None = None
        for table in self._catalogue.tables().values():
            known_map = self._metadata.known.get(table.id)
            taken_up = self._reconciled.get(table.id)
            dropped = [*self._dropped.get(table.id, ())]
            if known_map is None or known_map.ended or (known_map is taken_up and not dropped):
                continue
            keys = self._edited.pop(table.id, set())
            if taken_up is None:
                keys = None
            waits: Overloaded | None = None
            is_done = False
            try:
                waits = await self._look_at(known_map.view, keys, taken_up, dropped)
                is_done = waits is None
            finally:
                if not is_done:  # A later round must do the rest.
                    self.edited(table.id, keys)
            refused = waits or refused
            if is_done:
                self._reconciled[table.id] = known_map
                del self._dropped.get(table.id, [])[: len(dropped)]
                self._replication.goes_by(table.id, known_map.config)
        self._let_go()
        if refused is not None:
            raise refused

    async def _look_at(
        self, view: MapView, keys: Collection[bytes] | None, taken_up: KnownMap | None, dropped: Iterable[KeyBounds]
    ) -> Overloaded | None:
        """Reconcile the partitions at some keys of a map, or at all, and those within `dropped`.

        Return the error if a replica cannot be made now. Raises as `look`.
        """
        described = decode_table(view.meta)
        if described.kind == RANGE:
            self._replication.replicas.spaces.index_ranges(described.id)
            if described.time_key is not None:
                self._last_hour.keys[described.id] = described.time_key
            await self._divide(described, view, keys)
        before = -1 if taken_up is None else taken_up.config
        parts = chain.from_iterable(parts_of(view, bounds) for bounds in _changed_bounds(view, keys))
        changed = (part for part in parts if part.version > before)
        again = chain.from_iterable(parts_of(view, bounds) for bounds in dict.fromkeys(dropped))
        return await self._reconcile_all(described, view, chain(changed, again))

    def _own(self, partition: Partition) -> Assignment | None:
        me = self._metadata.me.node
        return next((assignment for assignment in partition.assignments if assignment.node == me), None)

    async def _reconcile_all(
        self, described: TableMeta, tree: MapView, parts: Iterable[LocalPartition]
    ) -> Overloaded | None:
        """Reconcile the local replicas of these partitions; return the error if a replica cannot be made now."""
        waits: Overloaded | None = None
        replacing: list[Partition] = []  # Re-created shards.
        for number, part in enumerate(parts):
            waits = self._reconcile(described, part) or waits
            if described.kind == HASH and any(end.assignment == LEFT_OUT for end in part.partition.ends):
                replacing.append(part.partition)
            if number % FEW == FEW - 1:
                await trio.lowlevel.checkpoint()
        if replacing:
            self._replaced(tree, described.id, replacing)
        return waits

    def _reconcile(self, described: TableMeta, part: LocalPartition) -> Overloaded | None:
        """Reconcile the local replica of a partition; return the error if a replica cannot be made now."""
        replicas, partition, table = self._replication.replicas, part.partition, described.id
        own = self._own(partition)
        replica = replicas.by_partition.get((table, partition.id))
        if replica is not None and (own is None or own.id != replica.assignment):
            self._departs(replica, [partition], "it was AVAILABLE, and the map no longer has its assignment")
        if own is None:
            return None
        child = _child_of(described, part, own)
        is_new = replica is None and (table, partition.id) not in replicas.making
        if not (is_new and own.state in _HELD and partition.kept and self._keep(child, partition.kept)):
            try:
                replicas.place(*child)
            except Overloaded as error:  # Returned, so that replicas that leave do not wait for new ones.
                return error
        return None

    def _replaced(self, tree: MapView, table: bytes, replacing: Sequence[Partition]) -> None:
        """Let go of the replicas of shards that a force-join replaced.

        Raises:
            NotReady: such a replica is being made.
        """
        replicas, named = self._replication.replicas, {part.partition.id for part in parts_of(tree)}
        if any(of == table and id_ not in named for of, id_ in replicas.making):
            raise NotReady("a shard was force-joined while this node makes a replica of it")
        for (of, id_), replica in [*replicas.by_partition.items()]:
            if of == table and id_ not in named:
                self._departs(replica, replacing, "its shard was force-joined without this replica")

    def _keep(self, child: ChildReplica, kept: int) -> bool:
        """Continue a force-joined partition with a replica quarantined here; False if that replica is gone."""
        identity = child.identity
        for quarantined in self._replication.replicas.spaces.all_quarantined():
            is_it = (quarantined.identity.table, quarantined.identity.assignment) == (identity.table, kept)
            if is_it and quarantined.identity.bounds.covers(identity.bounds):
                was = self._replication.kept(quarantined)
                if was is not None:
                    keep(self._replication.replicas, self._replication.append, quarantined, was, child)
                    self._log.info("range_kept", partition=identity.partition, copy=quarantined.name)
                    return True
        self._log.error("range_begins_empty", partition=identity.partition)
        return False

    def _departs(self, replica: Replica, partitions: Iterable[Partition], why: str) -> None:
        """Let go of a replica not in the map; `partitions` have its keys now; `why`: the reason if it was AVAILABLE."""
        # An end shows that the assignment was removed by force, so no other node may have the replica's last records. A
        # replica that had departed before was handed over.
        has_end = any(end.assignment == replica.assignment for partition in partitions for end in partition.ends)
        if replica.originates:
            self._replication.let_go(replica, why=why)
        elif has_end and replica not in self._replication.departed:
            self._replication.let_go(replica, why="its assignment was removed by force")
        else:
            self._replication.departs(replica)

    async def _divide(self, described: TableMeta, tree: MapView, keys: Collection[bytes] | None) -> None:
        """Divide the replicas whose ranges the map has divided, by edits of these keys; None: of all.

        Raises:
            NotReady: such a replica is being made, or is changing its space.
            Overloaded, StorageError: a later round must do the rest.
        """
        replicas, table = self._replication.replicas, described.id
        for replica in replicas.making.values():
            if replica.partition[0] == table and not _is_named(tree, replica):
                raise NotReady("a range was divided while this node makes a replica of it")
        here = chain.from_iterable(
            replicas.spaces.ranges[table].starting(bounds) for bounds in _changed_bounds(tree, keys)
        )
        for number, replica in enumerate([*here]):
            if number % FEW == FEW - 1:
                await trio.lowlevel.checkpoint()
            # A replica may be dropped, or depart, at a checkpoint.
            is_here = replica in replicas.acks and replica not in self._replication.departed
            if not is_here or _is_named(tree, replica):
                continue
            if described.is_over(replica.bounds, self._replication.now_ms()) and self._is_retired(tree, replica):
                self._replication.let_go(replica)
            else:
                self._divide_one(replica, [*parts_of(tree, replica.bounds)], described)

    def _is_retired(self, tree: MapView, replica: Replica) -> bool:
        """Return True if no range with a replica's keys continues it: an empty one has replaced it."""
        first, _ = range_of(tree, replica.bounds.first)
        partitions = [part.partition for part in parts_of(tree, replica.bounds._replace(first=first))]
        return not any(replica.assignment in partition.recorded for partition in partitions)

    def _divide_one(self, replica: Replica, parts: list[LocalPartition], described: TableMeta) -> None:
        """Divide a replica into this node's children of its range; `parts`: the partitions with some of its keys."""
        replicas, table = self._replication.replicas, replica.partition[0]
        children: list[ChildReplica] = []
        orphans: dict[ReplicaIdentity, str] = {}
        for part in parts:
            bounds, partition = part.bounds, part.partition
            own = self._own(partition)
            if (
                own is not None
                and own.state in _HELD
                # A replica of the child may be here already: departed, and not dropped yet.
                and (table, partition.id) not in replicas.by_partition
                and replica.assignment in partition.former
                and replica.bounds.covers(bounds)
            ):
                children.append(_child_of(described, part, own))
            else:
                why = f"its range was divided, and this node has no slot of partition {partition.id:016x}"
                orphans[ReplicaIdentity(table, partition.id, replica.assignment, bounds)] = why
        if children:
            divide(replicas, self._replication.append, replica, children, orphans)
        elif parts and all(replica.bounds.covers(part.bounds) for part in parts):
            ends = {end.assignment for part in parts for end in part.partition.ends}
            how = "was force-joined" if replica.assignment in ends else "was divided, and its children continued"
            self._departs(replica, (part.partition for part in parts), f"its range {how} without this replica")
        else:
            self._replication.let_go(replica, why="the map was forced back to a state before the division of its range")

    def drop(self, replica: Replica) -> None:
        """Drop a departed replica, and reconcile its keys again, since the map may name this node anew.

        Raises:
            NotReady, Overloaded, StorageError: the replica stays.
        """
        self._replication.let_go(replica)
        self._dropped.setdefault(replica.partition[0], []).append(replica.bounds)

    def _forget(self, table: bytes) -> None:
        self._reconciled.pop(table, None)
        self._edited.pop(table, None)
        self._dropped.pop(table, None)
        self._last_hour.forget(table)
        departed = self._replication.departed
        for replica in [replica for replica in departed if replica.partition[0] == table]:
            del departed[replica]
        self._replication.maps.pop(table, None)
        self._may_be_left = True

    def _let_go(self) -> None:
        """Drop the replicas of dropped tables; a table that lost only its name still has a map here."""
        if self._may_be_left:
            replicas, known_maps = self._replication.replicas, self._metadata.known
            batch = Batch()
            batch.relieves = True
            for replica in [
                replica for (table, _), replica in replicas.by_partition.items() if table not in known_maps
            ]:
                replicas.drop(replica, batch)
            if batch.count:
                self._replication.append(batch, lambda: None)
            self._may_be_left = False
