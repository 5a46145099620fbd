"""What this node does for partitions that move, for each by itself: it asks the other hosts, and steps.

    replica_report   [uuid, table, [partition, ...]]    `[partition, assignment, config, clock, is whole]` of each held

What a step is says `table.controllers.move_step`; here are the questions, the timers, and the operations on the maps,
many in one transaction.  Two hosts that do the same are harmless: an operation that is done is done once.

A copy that has departed is dropped when a full round of the register shows its assignment absent, and all AVAILABLE
hosts of its partition, or of what that was divided into, have said that they have adopted that.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Final, final

import msgpack
import trio

from gossipkv.errors import GossipKVError
from gossipkv.log import Log
from gossipkv.placement.partition import AssignmentState
from gossipkv.register.metadata.operations import Operation, is_dead
from gossipkv.register.metadata.pages import MAX_JUDGED, OPERATION_ID_BYTES
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
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from random import Random

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.ledger import AskNode
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.register.metadata.tree import MapTree
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.controllers.move_step import Step
    from gossipkv.table.controllers.reconciler import LocalPartition, Reconciler
    from gossipkv.wire.rpc import Value

    Reports = Mapping[bytes, ReplicaReport]  # By node.
    Place = tuple[bytes, int]  # A partition of a table.

STEP_S: Final = 1.0  # Between two rounds, where no map changes.
ASK_S: Final = 2.0
RETRY_S: Final = 2.0  # Until the same step is asked for again, while the map has not changed here.
MAX_ASKED: Final = 1024  # Partitions in one question.


@final
class Migrator:
    """The steps of this node's partitions."""

    def __init__(
        self,
        metadata: Metadata,
        catalogue: Catalogue,
        replication: Replication,
        holding: Reconciler,
        *,
        ask: AskNode,
        random: Random,
        stall_s: float,
        look_at: Callable[[bytes], object],
    ) -> None:
        """`stall_s`: see `move_stall`; `look_at`: has a table's register read soon."""
        self._metadata = metadata
        self._catalogue = catalogue
        self._replication = replication
        self._holding = holding
        self._ask = ask
        self._random = random
        self._stall_s = stall_s
        self._look_at = look_at
        self._sent: dict[Replica, tuple[int, float]] = {}  # Under which config, and when, a step was asked for last.
        self._since: dict[tuple[Replica, object], float] = {}  # Since when it is so that somebody is silent or stalls.
        self._gone: tuple[object, list[Replica]] = None, []  # Copies with a host that is gone, and by which maps.
        self.pause = Pause(STEP_S)
        self._log = Log("gossipkv.node")

    async def run(self) -> None:
        """Step, until cancelled."""
        while True:
            began = trio.current_time()
            try:
                await self._round()
                await self._drop_departed()
            except GossipKVError as error:
                self._log.info("steps_wait", reason=error.message)
            await self.pause.rest(began)

    async def _round(self) -> None:
        replicas = self._replication.replicas
        gone = {uuid for uuid, node in self._catalogue.nodes.named().items() if node.weight is None}
        noted = {**replicas.upkeep.unsettled, **dict.fromkeys(self._with(gone))}
        departed = self._replication.departed  # Whose assignments are not there any more: others step.
        copies = {copy: None for copy in noted if copy in replicas.levels and copy not in departed}
        self._since = {key: at for key, at in self._since.items() if key[0] in copies}
        self._sent = {copy: sent for copy, sent in self._sent.items() if copy in copies}
        if not copies:
            return
        was = {copy: (copy.synced_config, copy.synced_joining is None) for copy in copies}
        reports = await self._reports({copy.partition: [seat.node for seat in copy.seats] for copy in copies})
        steps: dict[bytes, list[tuple[Replica, Step]]] = defaultdict(list)
        for number, copy in enumerate(copies):
            if number % FEW == FEW - 1:
                await trio.lowlevel.checkpoint()
            if copy not in replicas.levels or was[copy] != (copy.synced_config, copy.synced_joining is None):
                continue
            told = {**reports.get(copy.partition, {}), replicas.me: report_of(copy)}
            known = MoveView(told, gone, self._stalled(copy, told), waited=self._has_waited(copy, told))
            step = next_step(copy, known)
            if step is not None and self._is_due(copy):
                steps[copy.partition[0]].append((copy, step))
        async with trio.open_nursery() as nursery:
            for table, some in steps.items():
                nursery.start_soon(self._have_done, table, some)

    def _with(self, gone: Collection[bytes]) -> list[Replica]:
        """Copies that share their partition with a node that is gone for good."""
        if not gone:
            return []
        key = frozenset(gone), tuple(self._replication.maps.items()), len(self._replication.replicas.copies)
        if self._gone[0] != key:
            copies = self._replication.replicas.copies.values()
            self._gone = key, [copy for copy in copies if any(node in gone for node in copy.sharers)]
        return self._gone[1]

    # -- what others say -----------------------------------------------------------------------------------------------

    async def _reports(self, nodes: Mapping[Place, Iterable[bytes]]) -> dict[Place, dict[bytes, ReplicaReport]]:
        """What nodes say of their copies of these partitions; who is not connected is not asked."""
        replicas = self._replication.replicas
        told: dict[Place, dict[bytes, ReplicaReport]] = defaultdict(dict)
        asked: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        for (table, partition), some in nodes.items():
            for node in some:
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
                                told[table, partition][node] = ReplicaReport(assignment, config, had, is_whole)

        async with trio.open_nursery() as nursery:
            for (node, table), partitions in asked.items():
                for at in range(0, len(partitions), MAX_ASKED):
                    nursery.start_soon(ask, node, table, partitions[at : at + MAX_ASKED])
        return told

    def _lasts(self, copy: Replica, what: object, *, is_so: bool) -> bool:
        """Whether something has been so for the stall time."""
        if not is_so:
            self._since.pop((copy, what), None)
            return False
        now = self._replication.now()
        return now - self._since.setdefault((copy, what), now) >= self._stall_s

    def _stalled(self, copy: Replica, told: Reports) -> set[int]:
        """Targets that do not answer, or do not confirm what was sent to them."""
        replicas, now = self._replication.replicas, self._replication.now()
        stalled = set()
        for one, seat in copy.seated():
            if not seat.available and seat.node != replicas.me:
                peer = replicas.peers.get(seat.node)
                oldest = None if peer is None else peer.feed.oldest_open(copy)
                is_silent = self._lasts(copy, one, is_so=seat.node not in told)
                if is_silent or (oldest is not None and now - oldest >= self._stall_s):
                    stalled.add(one)
        return stalled

    def _has_waited(self, copy: Replica, told: Reports) -> bool:
        """Whether a target that is whole has waited long enough for the other host of its slot."""
        own = copy.seat
        sources = [seat.node for seat in copy.seats if own is not None and seat.slot == own.slot and seat is not own]
        is_so = copy.joining is None and any(node not in told for node in sources)
        return self._lasts(copy, "source", is_so=is_so)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _is_due(self, copy: Replica) -> bool:
        """Whether a step is to be asked for: not again, while what it leads to may be on its way."""
        now = self._replication.now()
        config, at = self._sent.get(copy, (-1, 0.0))
        if config == copy.config and now < at + RETRY_S:
            return False
        self._sent[copy] = copy.config, now
        return True

    async def _have_done(self, table: bytes, steps: Sequence[tuple[Replica, Step]]) -> None:
        """Have steps done on a table's map; what becomes of them the map tells."""
        known = self._metadata.known.get(table)
        if known is None or known.head.ended:
            return
        operations, tree = [], self._metadata.tree(table)
        is_range = decode_table(tree.root.meta).kind == RANGE  # Else a copy does not say at which key it stands.
        keys = {} if is_range else {decode_partition(entry.record).id: entry.key for entry in tree.scan()}
        for copy, step in steps:
            partition = copy.partition[1]
            key = copy.bounds.first if is_range else keys.get(partition)
            if key is not None:
                id_ = self._random.randbytes(OPERATION_ID_BYTES)
                operations.append(Operation(id_, known.config, *_asked(step, key, partition)))
        for at in range(0, len(operations), MAX_JUDGED):
            now = self._metadata.known.get(table)
            if now is None or is_dead(known.config, now.config):
                break  # The rest would be refused: it goes by a newer map, in the next round.
            with contextlib.suppress(GossipKVError):  # It is asked for again.
                await self._catalogue.transact(table, operations[at : at + MAX_JUDGED], ASK_S)
        self._look_at(table)

    # -- who has departed ----------------------------------------------------------------------------------------------

    async def _drop_departed(self) -> None:
        """Drop copies of which it is sure that others have all that they have."""
        tables: dict[bytes, list[Replica]] = defaultdict(list)
        for copy in self._replication.departed:
            tables[copy.partition[0]].append(copy)
        for table, copies in tables.items():
            with contextlib.suppress(GossipKVError):  # The next time.
                await self._metadata.quorum_read(table)
                await self._drop_some(table, copies)

    async def _drop_some(self, table: bytes, copies: Sequence[Replica]) -> None:
        tree = self._metadata.tree(table)
        if decode_table(tree.root.meta).kind == RANGE:
            gone = {copy: _children_of(tree, copy) for copy in copies}
        else:
            shards = {part.partition.id: [part] for part in parts_of(tree)}
            gone = {copy: shards.get(copy.partition[1], []) for copy in copies}
        me = self._replication.replicas.me  # It has adopted that, and may be a host of a part again.
        hosts = {part.partition.id: _available(part.partition) - {me} for parts in gone.values() for part in parts}
        reports = await self._reports({(table, id_): sorted(nodes) for id_, nodes in hosts.items()})

        def has_adopted(part: LocalPartition, node: bytes) -> bool:
            report = reports.get((table, part.partition.id), {}).get(node)
            return report is not None and report.config >= part.version

        for copy, parts in gone.items():
            is_absent = all(part.partition.assignment(copy.assignment) is None for part in parts)
            is_known = all(has_adopted(part, node) for part in parts for node in hosts[part.partition.id])
            # It may have been set aside meanwhile.
            if parts and is_absent and is_known and copy in self._replication.departed:
                self._holding.drop(copy)


def _children_of(tree: MapTree, copy: Replica) -> list[LocalPartition]:
    """What has the keys of a copy's range by now: that, or what it was divided into; nothing: it is not known."""
    parts = [*parts_of(tree, copy.bounds)]
    return parts if all(copy.bounds.covers(part.bounds) for part in parts) else []


def _available(partition: Partition) -> set[bytes]:
    return {one.node for one in partition.assignments if one.state == AssignmentState.AVAILABLE}


def _asked(step: Step, key: bytes, partition: int) -> tuple[str, int, object]:
    """The operation of a step: name, version, argument."""
    match step:
        case Advance():
            return "advance", 1, (key, partition, *step)
        case Unassign(assignment, by_force):
            return "unassign", 1 + by_force, (key, partition, assignment)
        case SetEnds(counters):
            return "end", 1, (key, partition, counters)
        case RemoveFormer(counters):
            return "settle", 1, (key, partition, counters)
