"""Force-join: re-creates a partition, a range or a shard, whose hosts are all lost.

A chosen node holds it from then on, alone until the planner or `join` adds hosts. The partition continues with a
replica quarantined there, or starts empty. All other records of the hosts are lost, and sessions that have seen them
are told. If a host comes back, its replica is quarantined: merging it would let old values win under new times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, ProtocolError
from gossipkv.placement.partition import HAD, LEFT_OUT, AssignmentState
from gossipkv.register.ballot import draw_id
from gossipkv.register.metadata.packing import is_whole
from gossipkv.register.metadata.partitions import HASH, decode_table
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.replication.stream.messages import unpacked
from gossipkv.table.controllers.reconciler import parts_of
from gossipkv.table.records.router import TableRoute
from gossipkv.table.session.token import left_out
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gossipkv.errors import Detail
    from gossipkv.placement.partition import Partition
    from gossipkv.placement.spread import SpreadNode
    from gossipkv.register.metadata.deadline import Deadline
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.partitions import TableMeta
    from gossipkv.replication.shell import Replication
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.requests import RangeArguments
    from gossipkv.table.rpc.transact import Change, TransactMethods
    from gossipkv.wire.rpc import Value

REFOUND: Final = ("refound", 1)  # Name and version of the operation.
ANSWER_S: Final = 2.0  # A live host would answer within this time.
ASK_S: Final = 5.0
_HOLDS: Final = frozenset({AssignmentState.AVAILABLE, AssignmentState.LEAVING})
NOTHING: Final = ""  # Replaces a replica's name: the range starts empty.


class KeptReplica(NamedTuple):
    """A replica that is quarantined at a node."""

    name: str  # The node's name for the replica.
    bounds: KeyBounds
    clock: bytes | None  # Counter up to which all records of each assignment are there; None if it was incomplete.
    bytes: int
    assignment: int  # The replica's assignment, by which the map names it.
    config: int = 0  # Config id that the replica had adopted; 0 if the node's version does not report it.
    partition: int = 0  # Likewise: the partition that it is a replica of.


def kept_here(replication: Replication, table: bytes, bounds: KeyBounds) -> bytes:
    """Return the replicas of a table quarantined here that have some of these keys.

    Format: `[[name, first, end, clock or nil, bytes, assignment, config id, partition], ...]`, packed.
    """
    found: list[Value] = []
    for quarantined in replication.replicas.spaces.all_quarantined():
        common = quarantined.identity.bounds.clip(bounds)
        if quarantined.identity.table == table and (common.end is None or common.first < common.end):
            was = replication.kept(quarantined)
            size_bytes = replication.size_bytes(quarantined.space, common)
            reach = None if was is None else was.reach
            config = 0 if was is None else was.config
            identity = quarantined.identity
            ids = identity.assignment, config, identity.partition
            found.append([quarantined.name, *identity.bounds, reach, size_bytes, *ids])
    packed: bytes = msgpack.packb(found)
    return packed


@final
class ForceJoin:
    """The method `force_join`."""

    def __init__(self, participant: MetadataParticipant, transactions: TransactMethods, random: Random) -> None:
        self._service, self._directory, self._peers = participant.service, participant.directory, participant.peers
        self._transactions = transactions
        self._random = random

    async def force_join(
        self, wanted: RangeArguments, deadline: Deadline, tree: MapView, nodes: Sequence[SpreadNode]
    ) -> Change:
        """Return the change that re-creates a partition at a node, and the answer for the operator.

        Raises:
            BadRequest: there is no such shard, or the node cannot hold the partition.
            Conflict: a host of the partition may be alive; or the choice of a quarantined replica is ambiguous.
            GossipKVError: the node does not list its quarantined replicas.
        """
        table = decode_table(tree.meta)
        node = self._transactions.named(self._service.taking_part()[1].nodes.named(), wanted.node)
        if node not in {candidate.id for candidate in nodes} or node not in self._directory.alive():
            raise BadRequest(f"{wanted.node} is not alive, or was removed: choose a node that holds partitions")
        first, name = _place_of(tree, wanted)
        if table.groups and node not in (group := table.groups[int.from_bytes(first, "big") % len(table.groups)]):
            names = ", ".join(sorted(map(self._directory.name_of, group)))
            raise BadRequest(f"{wanted.node} is not in the group of {name}: choose one of {names}")
        part = next(parts_of(tree, KeyBounds(first, None)))
        partition, bounds = part.partition, part.bounds
        if _is_done(partition, node):
            lost = f"nothing more is lost: the {_kind(table)} was force-joined there before"
            return None, _answer(wanted, partition.id, None, lost, changed=False)
        with deadline.step(f"asking the hosts of {name} for an answer"):
            await self._check_gone(name, partition)
        with deadline.step(f"asking {wanted.node} for its quarantined replicas"):
            there = await self._kept(node, table.id, bounds)
            kept = chosen(wanted, bounds, copies_of_shard(partition, there) if table.kind == HASH else there)
        new = draw_id(self._random)
        config = self._service.taking_part()[0].known[table.id].config + 1
        asked = first, partition.id, new, draw_id(self._random), node, *begins(partition, kept, config)
        lost = f"the {_kind(table)} starts empty: all its records may be lost"
        if kept is not None:
            lost = f"the {_kind(table)} continues with the replica {kept.name}: records that it lacks may be lost"
        return (*REFOUND, asked), _answer(wanted, new, kept, lost, changed=True)

    async def _check_gone(self, name: str, partition: Partition) -> None:
        """Raise Conflict if a host of a partition may be alive."""
        hosts = [assignment.node for assignment in partition.assignments if assignment.state in _HOLDS]
        living = {host for host in hosts if self._peers.is_up(host)}

        async def ask(host: bytes) -> None:
            try:
                await self._peers.ask(host, "metadata_describe", [], ANSWER_S)
            except GossipKVError:
                return
            living.add(host)  # The host answers, even if gossip thinks it is dead.

        async with trio.open_nursery() as nursery:
            for host in hosts:
                if host not in living:
                    nursery.start_soon(ask, host)
        if living:
            names: list[Detail] = [*sorted(map(self._directory.name_of, living))]
            have = "has" if len(names) == 1 else "have"
            words = f"{', '.join(map(str, names))} may be alive, and {have} {name}"
            raise Conflict(
                f"{words}: `force_join` is only for a partition whose hosts are all lost for good; start nodes that "
                "are only down",
                {"hosts": names},
            )

    async def _kept(self, node: bytes, table: bytes, bounds: KeyBounds) -> list[KeptReplica]:
        """Return a table's replicas with some of these keys quarantined at a node.  Raises GossipKVError."""
        if node == self._service.taking_part()[0].me.node:
            packed: Value = kept_here(self._service.replicating(), table, bounds)
        else:
            packed = await self._peers.ask(node, "table_kept", [table, *bounds], ASK_S)
        return read_kept(packed)


def _place_of(tree: MapView, wanted: RangeArguments) -> tuple[bytes, str]:
    """Return the first key of a partition in its map, and its name in messages.  Raises BadRequest."""
    table, key = decode_table(tree.meta), wanted.key
    if table.kind != HASH and not wanted.is_shard:
        return TableRoute(tree).place(key).first, f"the range of key {shown(key)}"
    first = key if wanted.is_shard else TableRoute(tree).place(key).first
    number = int.from_bytes(first, "big")
    if table.kind != HASH or tree.get(first) is None:
        has = f"{table.shards} shards, from 0" if table.shards else "ranges: name one by a key in it"
        raise BadRequest(f"{wanted.table} has no shard {number}: it has {has}", {"option": "shard"})
    return first, f"shard {number}"


def _kind(table: TableMeta) -> str:
    return "shard" if table.kind == HASH else "range"


def _is_done(partition: Partition, node: bytes) -> bool:
    """Return True if a partition was force-joined, and a node holds it, perhaps with others by now."""
    is_new = any(end.assignment == LEFT_OUT for end in partition.ends)
    return is_new and any(host.node == node and host.state in _HOLDS for host in partition.assignments)


def _answer(
    wanted: RangeArguments, partition: int, kept: KeptReplica | None, lost: str, *, changed: bool
) -> dict[str, Value]:
    return {
        "table": wanted.table,
        "partition": partition,
        "node": wanted.node,
        "copy": None if kept is None else kept.name,
        "bytes": 0 if kept is None else kept.bytes,
        "may_be_lost": lost,
        "changed": changed,
    }


def read_kept(packed: Value) -> list[KeptReplica]:
    """Decode the answer of `kept_here`.  Raises ProtocolError."""
    rows = unpacked(packed)
    return [_kept_of(row) for row in rows] if isinstance(rows, list) else []


def begins(partition: Partition, kept: KeptReplica | None, config: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the ends of all former assignments of a force-joined partition, and the kept replica's assignment or 0.

    `config`: config id of the first map with the new partition.
    """
    counters = dict.fromkeys(partition.recorded, 0)
    if kept is not None and kept.clock is not None:
        counters |= dict(clock.entries(kept.clock))
    counters |= {**dict(clock.entries(left_out(config))), HAD: 0 if kept is None else kept.config}
    return tuple(sorted(counters.items())), 0 if kept is None else kept.assignment


def copies_of_shard(partition: Partition, kept: Sequence[KeptReplica]) -> list[KeptReplica]:
    """Return the replicas of a shard among those of its table: all have the same bounds."""
    ids = {*partition.recorded}
    return [replica for replica in kept if replica.partition == partition.id or replica.assignment in ids]


def chosen(wanted: RangeArguments, bounds: KeyBounds, kept: Sequence[KeptReplica]) -> KeptReplica | None:
    """Return the replica with which a partition continues; None if it starts empty.

    Raises:
        BadRequest: the requested replica does not exist, or does not cover the partition.
        Conflict: several replicas are possible, or only parts of the partition are quarantined.
    """
    usable = {part.name: part for part in kept if part.clock is not None and part.bounds.covers(bounds)}
    listed = ", ".join(f"{replica.name} ({replica.bytes:,} bytes)" for replica in kept) or "none"
    if wanted.copy == NOTHING:
        return None
    if wanted.copy is not None and wanted.copy not in usable:
        words = f"{wanted.node} has no quarantined replica {wanted.copy[:40]} that is complete and covers the partition"
        raise BadRequest(f"{words}; its replicas with a part of it: {listed}")
    if wanted.copy is not None or len(usable) == 1:
        return usable[wanted.copy] if wanted.copy is not None else next(iter(usable.values()))
    if kept:
        raise Conflict(
            f"{wanted.node} has quarantined replicas with a part of the partition: {listed}. Name the replica to "
            "continue with, or start empty; if a replica covers only a part of a range, split the range there first",
            {"copies": [replica.name for replica in kept]},
        )
    return None


def _kept_of(row: Value) -> KeptReplica:
    match row:
        case [str(name), bytes(first), None | bytes() as end, None | bytes() as packed, int(size), int(id_), *more]:
            if packed is not None:
                clock.check(packed)
            config, partition, *_ = (*(value if is_whole(value) else 0 for value in more), 0, 0)
            return KeptReplica(name, KeyBounds(first, end), packed, size, id_, config, partition)
    raise ProtocolError("a quarantined replica must be [name, first, end, clock, bytes, assignment, config id, …]")
