"""The methods by which operators split ranges and change their hosts, and list partitions.

split       [table, key, {timeout_ms}]          divide the key's range; the second child begins at the key
join        [table, key, node, {timeout_ms}]    move a slot of the key's range to the node
leave       [table, key, node, {timeout_ms}]    move the node's slot of the key's range to a node picked here
force_join  [table, key, node, {copy, shard, timeout_ms}]   re-create a partition whose hosts are all lost
partitions  [table, {start, limit}]             list a page of partitions, ranges or shards

A node joins or leaves a range by a move (`controllers.migrator`). The methods answer once the move is begun.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar, final

from gossipkv.errors import BadRequest, Conflict, Unavailable
from gossipkv.placement.partition import MAX_FORMER, AssignmentState, ends_of_move
from gossipkv.placement.ranges import slot_to_take, successor
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.deadline import Deadline
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_partition, decode_table, range_of
from gossipkv.table.controllers.rebalancer import laid_out
from gossipkv.table.controllers.splitter import DIVIDE, division
from gossipkv.table.records.router import TableRoute
from gossipkv.table.rpc import requests as table_requests
from gossipkv.table.rpc.force_join import ForceJoin
from gossipkv.table.rpc.transact import TransactMethods
from gossipkv.wire.key_text import shown
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.placement.measures import RangeMeasure
    from gossipkv.placement.partition import Assignment, Partition
    from gossipkv.placement.ranges import Situation
    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.known import MapView
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.requests import RangeArguments
    from gossipkv.table.rpc.transact import Change
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

    _Decide = Callable[[RangeArguments, Deadline, MapView, Sequence[SpreadNode]], Awaitable[Change]]

T = TypeVar("T")

MOVED_OTHERWISE: Final = "the `gossipkv node` commands move shards"
COMING: Final = frozenset({AssignmentState.PROPOSED, AssignmentState.INITIALIZING})


@final
class RangeAdminMethods:
    """The methods about ranges."""

    def __init__(self, participant: MetadataParticipant, random: Random) -> None:
        self._service, self._directory, self._peers = participant.service, participant.directory, participant.peers
        self._transactions = TransactMethods(participant, random)
        self._random = random
        decisions: dict[bytes, tuple[Callable[[Arguments], RangeArguments], _Decide]] = {
            b"split": (table_requests.split, self._split),
            b"join": (table_requests.hosting, self._join),
            b"leave": (table_requests.hosting, self._leave),
            b"force_join": (
                partial(table_requests.hosting, extra=("copy", "shard")),
                ForceJoin(participant, self._transactions, random).force_join,
            ),
        }
        self.methods: dict[bytes, Callable[[Arguments], DeferredResult]] = {
            **{name: partial(self._change, *how) for name, how in decisions.items()},
            b"partitions": self._partitions,
        }

    def _change(
        self, read: Callable[[Arguments], RangeArguments], decide: _Decide, arguments: Arguments
    ) -> DeferredResult:
        wanted = read(arguments)

        async def change() -> Value:
            deadline = Deadline(wanted.timeout_ms / 1000)
            return await self._transactions.change_map(wanted.table, partial(decide, wanted, deadline), deadline)

        return DeferredResult(change)

    # -- divisions -----------------------------------------------------------------------------------------------------

    async def _split(
        self, wanted: RangeArguments, _deadline: Deadline, tree: MapView, _nodes: Sequence[SpreadNode]
    ) -> Change:
        """Return the division of a range, and the answer.  Raises BadRequest, Conflict, Unavailable."""
        asked = division(*self._divisible(tree, wanted), [wanted.key], self._random)
        rows = _rows((child.first, child.partition) for child in asked.children)
        return (DIVIDE, 1, asked), {"table": wanted.table, "partition": asked.partition, "partitions": [*rows]}

    def _divisible(self, tree: MapView, wanted: RangeArguments) -> tuple[bytes, Partition]:
        """Return the first key and the range to divide at a key.  Raises BadRequest, Conflict."""
        key, name_of, alive = wanted.key, self._directory.name_of, self._directory.alive()
        first, partition = _range_of(tree, key, f"{wanted.table} has shards, which are never split: only ranges are")
        if first == key:
            before = TableRoute(tree).before(key)
            rows = _rows([(before.first, before.partition), (first, partition.id)])
            words = f"{wanted.table} is already split at {shown(key)}: a range begins there"
            raise Conflict(words, {"table": wanted.table, "partition": None, "partitions": rows})
        self._check_rests(key, partition, "split the range")
        if partition.has_too_many_former:
            hosts = [assignment.node for assignment in partition.assignments]
            names = [name_of(node) + ("" if node in alive else " (which is down)") for node in hosts]
            words = f"the range of key {shown(key)} has {len(partition.named)} assignments that are not settled"
            raise Conflict(f"{words}, at most {MAX_FORMER} are allowed; all hosts must answer: {', '.join(names)}")
        return first, partition

    def _check_rests(self, key: bytes, partition: Partition, what: str) -> None:
        """Raise Conflict if a range moves; the message names both nodes."""
        ends = ends_of_move(partition)
        if any(ends):
            names = [None if node is None else self._directory.name_of(node) for node in ends]
            ways = [f"{way} {name}" for way, name in zip(("from", "to"), names, strict=True) if name is not None]
            raise Conflict(f"the range of key {shown(key)} moves {' '.join(ways)}: {what} afterwards")

    # -- hosts of a range ----------------------------------------------------------------------------------------------

    async def _join(
        self, wanted: RangeArguments, _deadline: Deadline, tree: MapView, nodes: Sequence[SpreadNode]
    ) -> Change:
        """Return the assignment of a slot to the node, and the answer.  Raises BadRequest, Conflict, Unavailable."""
        first, partition = _range_of(tree, wanted.key, f"{wanted.table} has shards: {MOVED_OTHERWISE}")
        node = self._node(wanted.node)
        assignment = _assignment_at(partition, node)
        if assignment is not None and not _leaves(partition, assignment):
            return None, self._moved(wanted, partition, assignment.slot, (_other(partition, assignment), node))
        self._check_rests(wanted.key, partition, "try again")
        if node not in {candidate.id for candidate in nodes}:
            words = f"{wanted.node} was removed and holds no tables: add the node with `gossipkv node add`"
            raise BadRequest(words)
        if node not in self._directory.alive():
            raise Unavailable(f"{wanted.node} cannot hold a range: it is not a live member of this cluster")
        slot = await self._planned(tree, nodes, lambda situation: slot_to_take(situation, partition.id, node))
        source = next((present.node for present in partition.assignments if present.slot == slot), None)
        asked = first, partition.id, draw_id(self._random), node, slot
        return ("assign", 1, asked), self._moved(wanted, partition, slot, (source, node), changed=True)

    async def _leave(
        self, wanted: RangeArguments, _deadline: Deadline, tree: MapView, nodes: Sequence[SpreadNode]
    ) -> Change:
        """Return the move of a slot away from the node, or the end of a move to the node.  Raises Conflict."""
        first, partition = _range_of(tree, wanted.key, f"{wanted.table} has shards: {MOVED_OTHERWISE}")
        node = self._node(wanted.node)
        assignment = _assignment_at(partition, node)
        where = f"the range of key {shown(wanted.key)}"
        if assignment is None:
            details = self._moved(wanted, partition, None, (node, None))
            raise Conflict(f"{wanted.node} has no replica of {where}, and no replica moves there", details)
        answer = partial(self._moved, wanted, partition, assignment.slot)
        other = _other(partition, assignment)
        if assignment.state in COMING:
            return ("unassign", 1, (first, partition.id, assignment.id)), answer((node, other), changed=True)
        if _leaves(partition, assignment):
            return None, answer((node, other))
        self._check_rests(wanted.key, partition, "try again")
        target = await self._planned(tree, nodes, lambda situation: successor(situation, partition.id, assignment.slot))
        if target is None:
            least = decode_table(tree.meta).replication
            words = f"no other live node of tables can take {where}, which would have fewer than {least} replicas"
            raise Conflict(f"{words}; add a node first with `gossipkv node add`")
        asked = first, partition.id, draw_id(self._random), target, assignment.slot
        return ("assign", 1, asked), answer((node, target), changed=True)

    async def _planned(self, tree: MapView, nodes: Sequence[SpreadNode], pick: Callable[[Situation], T]) -> T:
        """Return the choice of `pick` from the planner's situation, in a worker thread since the map may be large."""
        situation = self._service.controllers().rebalancer.known(decode_table(tree.meta).id, nodes, {})
        return await self._peers.beside(lambda: pick(laid_out(tree, situation)))

    def _moved(
        self,
        wanted: RangeArguments,
        partition: Partition,
        slot: int | None,
        ends: tuple[bytes | None, bytes | None],
        *,
        changed: bool = False,
    ) -> dict[str, Detail]:
        """Return the answer about a slot that moves between these nodes."""
        source, target = (None if node is None else self._directory.name_of(node) for node in ends)
        answer: dict[str, Detail] = {"table": wanted.table, "partition": partition.id, "slot": slot}
        return {**answer, "from": source, "to": target, "changed": changed}

    def _node(self, name: str) -> bytes:
        """Return the uuid of a node in the catalogue.  Raises BadRequest."""
        _, catalogue = self._service.taking_part()
        try:
            return self._transactions.named(catalogue.nodes.named(), name)
        except BadRequest as error:
            raise BadRequest(f"{error.message}; add a node with `gossipkv node add`") from error

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _partitions(self, arguments: Arguments) -> DeferredResult:
        name, start, limit = table_requests.page(arguments)

        async def tell() -> Value:
            metadata, catalogue = self._service.taking_part(name)
            table = catalogue.table(name).id
            tree = metadata.view(table)
            is_hash = decode_table(tree.meta).kind == HASH
            entries = [*islice(tree.scan(start), limit + 1)]
            partitions = [decode_partition(entry.record) for entry in entries[:limit]]
            found = await self._service.controllers().load_stats.lately(table, self._directory.alive())
            firsts = [*(entry.key for entry in entries), None]
            rows: list[Value] = [
                self._row(partition, first, None if is_hash else end, found.get(partition.id))
                for partition, first, end in zip(partitions, firsts, firsts[1:], strict=False)
            ]
            kind = HASH if is_hash else RANGE
            return {"table": name, "kind": kind, "partitions": rows, "next": firsts[len(partitions)]}

        return DeferredResult(tell, may_end=True)

    def _row(
        self, partition: Partition, first: bytes | None, end: bytes | None, has: RangeMeasure | None
    ) -> dict[str, Value]:
        hosts: list[Value] = [
            {"node": self._directory.name_of(host.node), "slot": host.slot, "state": host.state.name}
            for host in partition.assignments
        ]
        row: dict[str, Value] = {"id": partition.id, "start": first, "end": end, "hosts": hosts}
        size_bytes, rows, rate = (None, None, None) if has is None else has
        return {**row, "bytes": size_bytes, "rows": rows, "rate": rate}


def _range_of(tree: MapView, key: bytes, of_shards: str) -> tuple[bytes, Partition]:
    """Return the first key and the range of a key.  Raises BadRequest: the table has shards."""
    if decode_table(tree.meta).kind == HASH:
        raise BadRequest(of_shards)
    return range_of(tree, key)


def _assignment_at(partition: Partition, node: bytes) -> Assignment | None:
    return next((assignment for assignment in partition.assignments if assignment.node == node), None)


def _other(partition: Partition, assignment: Assignment) -> bytes | None:
    """Return the node at the other end of a slot's move."""
    return next((other.node for other in _others_of_slot(partition, assignment)), None)


def _leaves(partition: Partition, assignment: Assignment) -> bool:
    """Return True if an assignment is LEAVING, or its slot is about to move to another node."""
    comes = any(other.state in COMING for other in _others_of_slot(partition, assignment))
    return comes or assignment.state is AssignmentState.LEAVING


def _others_of_slot(partition: Partition, assignment: Assignment) -> Iterator[Assignment]:
    return (other for other in partition.assignments if other.slot == assignment.slot and other is not assignment)


def _rows(ranges: Iterable[tuple[bytes, int]]) -> list[Detail]:
    return [{"id": id_, "start": first} for first, id_ in ranges]
