"""The migrator: asks the other hosts of partitions that move, and takes the next step of each.

    replica_report   [uuid, table, [partition, ...]]    `[partition, assignment, config, clock, is whole]` of each held

`table.controllers.move_step` decides on the steps. This module has the requests, the timers, and the operations on the
maps, many in one transaction. Two hosts may ask for the same step: each operation is applied once.

A departed replica is dropped when a quorum read of the register shows that its assignment is gone, and
all AVAILABLE hosts of its partition, or of the partition's children, report that they have adopted the change.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING, Final, final

import msgpack
import trio

from gossipkv.errors import GossipKVError
from gossipkv.log import Log
from gossipkv.placement.partition import AssignmentState
from gossipkv.register.metadata.operations import MAX_OPERATIONS, OPERATION_ID_BYTES, Operation, is_dead
from gossipkv.register.metadata.partitions import RANGE, decode_partition, decode_table
from gossipkv.replication.replica import clock
from gossipkv.replication.stream.messages import unpacked
from gossipkv.table.controllers.move_step import (
    Advance,
    MoveView,
    RemoveFormer,
    ReplicaReport,
    SetEnds,
    Unassign,
    next_step,
    report_of,
)
from gossipkv.table.controllers.pause import Pause
from gossipkv.table.controllers.reconciler import FEW, parts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.known import MapView
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.move_step import Step
    from gossipkv.table.controllers.reconciler import LocalPartition, Reconciler
    from gossipkv.wire.rpc import Value

    Reports = Mapping[bytes, ReplicaReport]  # Reports by node.
    Place = tuple[bytes, int]  # Table and partition.

STEP_S: Final = 1.0  # Usual time between two rounds while no map changes.
ASK_S: Final = 2.0
RETRY_S: Final = 2.0  # A step is repeated after this time if the local map has not changed.
MAX_ASKED: Final = 1024  # Partitions in one `replica_report`.


@final
class Migrator:
    """The migrator of one node."""

    def __init__(self, tables: LocalTables, reconciler: Reconciler) -> None:
        self._metadata, self._catalogue, self._replication = tables.metadata, tables.catalogue, tables.replication
        self._ask, self._look_at, self._random = tables.ask, tables.look_at, tables.random
        self._stall_s = tables.stall_s
        self._reconciler = reconciler
        self._sent: dict[Replica, tuple[int, float]] = {}  # Config id and time of the last step requested.
        self._since: dict[tuple[Replica, object], float] = {}  # Start of each silence or stall.
        self._looked: dict[Replica, float] = {}  # Time of the last look at replicas for which others act.
        self._gone: tuple[object, list[Replica]] = None, []  # Cache of `_with`: its key, and the replicas.
        self.pause = Pause(STEP_S)
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Take steps until cancelled."""
        while True:
            began = trio.current_time()
            try:
                await self._round()
                await self._drop_departed()
            except GossipKVError as error:
                self._log.info("steps_wait", reason=error.message)
            is_quiet = not (self._replication.replicas.dirty.unsettled or self._replication.departed or self._gone[1])
            await self.pause.rest(began, is_quiet=is_quiet)

    async def _round(self) -> None:
        replicas = self._replication.replicas
        gone = {uuid for uuid, node in self._catalogue.nodes.named().items() if node.weight is None}
        noted = {**replicas.dirty.unsettled, **dict.fromkeys(self._with(gone))}
        departed = self._replication.departed  # The other hosts take the steps for departed replicas.
        copies = {replica: None for replica in noted if replica in replicas.acks and replica not in departed}
        self._since = {key: at for key, at in self._since.items() if key[0] in copies}
        self._sent = {replica: sent for replica, sent in self._sent.items() if replica in copies}
        self._looked = {replica: at for replica, at in self._looked.items() if replica in copies}
        copies = {replica: None for replica in copies if self._may_act(replica, gone)}
        if not copies:
            return
        was = {replica: (replica.synced_config, replica.synced_joining is None) for replica in copies}
        reports = await self._reports({replica.partition: [seat.node for seat in replica.roles] for replica in copies})
        steps: dict[bytes, list[tuple[Replica, Step]]] = defaultdict(list)
        for number, replica in enumerate(copies):
            if number % FEW == FEW - 1:
                await trio.lowlevel.checkpoint()
            if replica not in replicas.acks or was[replica] != (replica.synced_config, replica.synced_joining is None):
                continue
            answers = {**reports.get(replica.partition, {}), replicas.me: report_of(replica)}
            view = MoveView(answers, gone, self._stalled(replica, answers), waited=self._has_waited(replica, answers))
            step = next_step(replica, view)
            if step is not None and self._is_due(replica):
                steps[replica.partition[0]].append((replica, step))
        async with trio.open_nursery() as nursery:
            for table, due in steps.items():
                nursery.start_soon(self._transact, table, due)

    def _may_act(self, replica: Replica, gone: Collection[bytes]) -> bool:
        """Return True if a step of a replica may be due; each `STEP_S` also if another host should take it."""
        own, rules, now = replica.role, replica.rules, self._replication.now()
        if own is None or not own.available:
            acts = own is not None and not (rules.loads and replica.synced_joining is not None)
        elif not own.counts:
            acts = True
        else:  # Without any of these, only a stalled target needs an AVAILABLE host.
            reaches = self._replication.replicas.reaches
            before = (seat for seat in replica.roles if seat.slot < own.slot and seat.available and seat.counts)
            has_work = rules.former or rules.ends or any(node in gone for node in replica.sharers)
            acts = bool(has_work) and not any(reaches(seat.node) for seat in before)
        if acts or now >= self._looked.get(replica, -inf) + STEP_S:
            self._looked[replica] = now
            return True
        return False

    def _with(self, gone: Collection[bytes]) -> list[Replica]:
        """Return the replicas that share their partition with a node that is lost for good."""
        if not gone:
            return []
        key = frozenset(gone), tuple(self._replication.maps.items()), len(self._replication.replicas.by_partition)
        if self._gone[0] != key:
            copies = self._replication.replicas.by_partition.values()
            self._gone = key, [replica for replica in copies if any(node in gone for node in replica.sharers)]
        return self._gone[1]

    # -- reports of other hosts ----------------------------------------------------------------------------------------

    async def _reports(self, nodes: Mapping[Place, Iterable[bytes]]) -> dict[Place, dict[bytes, ReplicaReport]]:
        """Return the reports of connected nodes about their replicas of these partitions."""
        replicas = self._replication.replicas
        reports: dict[Place, dict[bytes, ReplicaReport]] = defaultdict(dict)
        asked: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        for (table, partition), hosts in nodes.items():
            for node in hosts:
                if replicas.reaches(node):
                    asked[node, table].append(partition)

        async def ask(node: bytes, table: bytes, partitions: Sequence[int]) -> None:
            params: list[Value] = [replicas.me, table, msgpack.packb(partitions)]
            wanted = {*partitions}
            with contextlib.suppress(GossipKVError):
                rows = unpacked(await self._ask(node, "replica_report", params, ASK_S))
                for row in rows if isinstance(rows, list) else ():
                    match row:
                        case [int(partition), int(assignment), int(config), bytes(had), bool(is_whole)]:
                            clock.check(had)
                            if partition in wanted:
                                reports[table, partition][node] = ReplicaReport(assignment, config, had, is_whole)

        async with trio.open_nursery() as nursery:
            for (node, table), partitions in asked.items():
                for at in range(0, len(partitions), MAX_ASKED):
                    nursery.start_soon(ask, node, table, partitions[at : at + MAX_ASKED])
        return reports

    def _lasts(self, replica: Replica, condition: object, *, is_so: bool) -> bool:
        """Return True if a condition of a replica has held for the stall time; `is_so`: it holds now."""
        if not is_so:
            self._since.pop((replica, condition), None)
            return False
        now = self._replication.now()
        return now - self._since.setdefault((replica, condition), now) >= self._stall_s

    def _stalled(self, replica: Replica, reports: Reports) -> set[int]:
        """Return the targets that do not answer, or do not acknowledge the records sent to them."""
        replicas, now = self._replication.replicas, self._replication.now()
        stalled = set()
        for assignment, seat in replica.assigned_roles():
            if not seat.available and seat.node != replicas.me:
                peer = replicas.peers.get(seat.node)
                oldest = None if peer is None else peer.sender.oldest_open(replica)
                is_silent = self._lasts(replica, assignment, is_so=seat.node not in reports)
                if is_silent or (oldest is not None and now - oldest >= self._stall_s):
                    stalled.add(assignment)
        return stalled

    def _has_waited(self, replica: Replica, reports: Reports) -> bool:
        """Return True if a complete target has waited long enough for the other host of its slot."""
        own = replica.role
        sources = [seat.node for seat in replica.roles if own is not None and seat.slot == own.slot and seat is not own]
        is_so = replica.joining is None and any(node not in reports for node in sources)
        return self._lasts(replica, "source", is_so=is_so)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _is_due(self, replica: Replica) -> bool:
        """Return True if a step may be requested now; not while the last request may still change the map."""
        now = self._replication.now()
        config, at = self._sent.get(replica, (-1, 0.0))
        if config == replica.config and now < at + RETRY_S:
            return False
        self._sent[replica] = replica.config, now
        return True

    async def _transact(self, table: bytes, steps: Sequence[tuple[Replica, Step]]) -> None:
        """Apply steps to a table's map; later maps show their effect."""
        known_map = self._metadata.known.get(table)
        if known_map is None or known_map.ended:
            return
        operations, tree = [], self._metadata.view(table)
        is_range = decode_table(tree.meta).kind == RANGE  # A replica of a shard does not know its key.
        keys = {} if is_range else {decode_partition(entry.record).id: entry.key for entry in tree.scan()}
        for replica, step in steps:
            partition = replica.partition[1]
            key = replica.bounds.first if is_range else keys.get(partition)
            if key is not None:
                id_ = self._random.randbytes(OPERATION_ID_BYTES)
                operations.append(Operation(id_, known_map.config, *_asked(step, key, partition)))
        for at in range(0, len(operations), MAX_OPERATIONS):
            now = self._metadata.known.get(table)
            if now is None or is_dead(known_map.config, now.config):
                break  # The map is too new for the rest; the next round decides again.
            with contextlib.suppress(GossipKVError):  # A later round repeats the step.
                await self._catalogue.transact(table, operations[at : at + MAX_OPERATIONS], ASK_S)
        self._look_at(table)

    # -- departed replicas ---------------------------------------------------------------------------------------------

    async def _drop_departed(self) -> None:
        """Drop the departed replicas whose records all other hosts are known to have."""
        tables: dict[bytes, list[Replica]] = defaultdict(list)
        for replica in self._replication.departed:
            tables[replica.partition[0]].append(replica)
        for table, copies in tables.items():
            with contextlib.suppress(GossipKVError):  # A later round tries again.
                await self._metadata.quorum_read(table)
                await self._drop_some(table, copies)

    async def _drop_some(self, table: bytes, copies: Sequence[Replica]) -> None:
        tree = self._metadata.view(table)
        if decode_table(tree.meta).kind == RANGE:
            gone = {replica: _children_of(tree, replica) for replica in copies}
        else:
            shards = {part.partition.id: [part] for part in parts_of(tree)}
            gone = {replica: shards.get(replica.partition[1], []) for replica in copies}
            for replica in [replica for replica, parts in gone.items() if not parts]:
                del gone[replica]
                self._reconciler.drop(replica)  # Its shard was force-joined.
        me = self._replication.replicas.me  # This node has adopted the map, and may host a child again.
        hosts = {part.partition.id: _available(part.partition) - {me} for parts in gone.values() for part in parts}
        reports = await self._reports({(table, id_): sorted(nodes) for id_, nodes in hosts.items()})

        def has_adopted(part: LocalPartition, node: bytes) -> bool:
            report = reports.get((table, part.partition.id), {}).get(node)
            return report is not None and report.config >= part.version

        for replica, parts in gone.items():
            is_absent = all(part.partition.assignment(replica.assignment) is None for part in parts)
            is_known = all(has_adopted(part, node) for part in parts for node in hosts[part.partition.id])
            # The replica may have been quarantined during the requests.
            if parts and is_absent and is_known and replica in self._replication.departed:
                self._reconciler.drop(replica)


def _children_of(tree: MapView, replica: Replica) -> list[LocalPartition]:
    """Return the partitions that have the keys of a replica's range: the same one or its children; empty if unknown."""
    parts = [*parts_of(tree, replica.bounds)]
    return parts if all(replica.bounds.covers(part.bounds) for part in parts) else []


def _available(partition: Partition) -> set[bytes]:
    return {assignment.node for assignment in partition.assignments if assignment.state == AssignmentState.AVAILABLE}


def _asked(step: Step, key: bytes, partition: int) -> tuple[str, int, object]:
    """Return the operation of a step: name, version, argument."""
    match step:
        case Advance():
            return "advance", 1, (key, partition, *step)
        case Unassign(assignment, by_force):
            return "unassign", 1 + by_force, (key, partition, assignment)
        case SetEnds(counters):
            return "end", 1, (key, partition, counters)
        case RemoveFormer(counters):
            return "settle", 1, (key, partition, counters)
