"""Garbage collection of tombstones that no replica needs any more.

A clock is *settled* if every assigned replica, dead or alive, has confirmed it under the local config. (Under another
config a host may have loaded a replica unknown here.) A tombstone is needed while an older record of its key may
arrive, from a replica that lacks the tombstone or has a record that is missing here. So a settled tombstone is deleted
once the local clock covers all reported clocks: later writes have later times. Smeared puts may have earlier times;
in their tables, tombstones stay for an hour. Rows of the store list tombstones by age. In a shared space each replica
collects its own keys and those of no replica. Only dirty replicas are visited; after a restart all are dirty.

The map may have removed a host that does not know this and still has the deleted record. Such a host was not asked.
So sessions that read from the collecting replica get its config id (`Replica.taken_config`) and refuse older maps.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.hlc import ms_of
from gossipkv.replication.replica.keys import RECORD, TIME_BYTES, TOMBSTONE
from gossipkv.replication.replica.smeared import KEEPS_MS
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet

MAX_REPLICAS: Final = 16  # Replicas per round.
MAX_ROWS: Final = 256  # Tombstones per replica and round.
END_OF_TOMBSTONES: Final = bytes([TOMBSTONE[0] + 1])


class Collectable(NamedTuple):
    """The tombstones of a replica that may be collected."""

    clock: bytes  # Tombstones covered by this clock are settled.
    ended: bool  # True if tombstones of ended origins may go: all replicas had them when the origin ended.
    held_back: tuple[bytes, ...]  # Nodes that hold the rest back: they lack a record, or may.


def confirmed(replicas: ReplicaSet, replica: Replica) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield each other host with the clock it reported under the replica's config; None: no such clock.

    Yield this node as well while its replica is incomplete, or at startup before the placement is known.
    """
    if replica.role is None or replica.synced_joining is not None:
        yield replicas.me, None
    for assignment, role in replica.assigned_roles():
        if assignment != replica.assignment:
            peer = replicas.peers.get(role.node)
            status = None if peer is None else peer.sender.statuses.get(replica)
            is_whole = status is not None and status.span is None
            counts = status is not None and (status.assignment, status.config) == (assignment, replica.config)
            yield role.node, status.clock if status is not None and counts and is_whole else None


def settled(replicas: ReplicaSet, replica: Replica) -> bytes:
    """Return the clock that every assigned replica, dead or alive, has confirmed under the replica's config."""
    whole = replica.synced
    for _, theirs in confirmed(replicas, replica):
        whole = clock.least(whole, theirs or b"")
    return whole


def collectable(replicas: ReplicaSet, replica: Replica) -> Collectable:
    """Return the settled tombstones; none if another replica has records that are missing here."""
    confirmations = [*confirmed(replicas, replica)]
    joined = reduce(clock.merge, (theirs or b"" for _, theirs in confirmations), replica.synced)
    has_all = replica.covers_synced(joined)
    missing = [node for node, theirs in confirmations if theirs is None] + ([] if has_all else [replicas.me])
    behind = [node for node, theirs in confirmations if theirs is not None and not clock.covers(theirs, replica.synced)]
    return Collectable(settled(replicas, replica) if has_all else b"", not missing, (*missing, *behind))


@final
class TombstoneCollector:
    """Visits the replicas that may have tombstones, a few at a time."""

    def __init__(self, replicas: ReplicaSet, outside: ReplicationPorts) -> None:
        self._replicas = replicas
        self._outside = outside
        self._at: dict[Replica, bytes] = {}  # Start of a replica's next page; at the end the replica begins again.
        self._round: list[Replica] = []
        self.held_back: dict[Replica, tuple[bytes, ...]] = {}  # Nodes for which met tombstones are kept.
        self.collected = 0

    def look(self) -> None:
        """Garbage-collect tombstones of the next few replicas."""
        self._round = self._round or [*self._replicas.dirty.unswept]
        for _ in range(min(MAX_REPLICAS, len(self._round))):
            replica = self._round.pop()
            if replica in self._replicas.loader.loads:
                self._replicas.dirty.unswept[replica] = None  # The load may be aborted.
            elif replica in self._replicas.acks:
                self._collect(replica)

    def _collect(self, replica: Replica) -> None:
        start = self._at.pop(replica, TOMBSTONE)
        rows, more = self._outside.scan(replica.space, start, END_OF_TOMBSTONES, reverse=False, limit=MAX_ROWS)
        its = [row for row in rows if self._is_of(replica, _key_of(row[0]))]
        if start == TOMBSTONE:
            self.held_back.pop(replica, None)
            if not its and more is None:
                self._replicas.dirty.unswept.pop(replica, None)
                return
        self._replicas.dirty.unswept[replica] = None  # The next visit clears this if it finds no tombstones.
        more = more if not rows or self._is_old(replica, rows[-1][0]) else None  # Rows are in the order of time.
        batch, count = self._batch_of(replica, [key for key, _ in its if self._is_old(replica, key)])
        if batch.count:
            try:
                self._outside.append(batch, lambda: None)
            except (Overloaded, StorageError):
                return  # Retried in the next round.
            replica.take_config()
        self.collected += count
        if more is not None:
            self._at[replica] = more

    def _is_old(self, replica: Replica, row: bytes) -> bool:
        """Return True if no smeared put with an earlier time may arrive any more."""
        time = int.from_bytes(row[len(TOMBSTONE) :][:TIME_BYTES], "big")
        return not replica.rules.smears or self._outside.now_ms() - ms_of(time) >= KEEPS_MS

    def _is_of(self, replica: Replica, key: bytes) -> bool:
        """Return True if the replica must garbage-collect the key: its own, or of no replica in the space."""
        return replica.bounds.has(key) or self._replicas.spaces.is_abandoned(replica, key)

    def _batch_of(self, replica: Replica, keys: Iterable[bytes]) -> tuple[Batch, int]:
        """Return a batch that deletes collectable tombstones with their rows, and their number."""
        what = collectable(self._replicas, replica)
        batch, count = Batch(), 0
        for key in keys:
            time, user_key = key[len(TOMBSTONE) :][:TIME_BYTES], _key_of(key)
            if replica.is_pending(user_key):
                continue
            data = self._outside.get(replica.space, RECORD + user_key)
            is_of_it = data is not None and data[:TIME_BYTES] == time and record.is_deleted(data)
            if data is not None and is_of_it:
                dot = record.dot(data)
                ((origin, _),) = clock.entries(dot)
                if not (clock.covers(what.clock, dot) or (what.ended and origin not in replica.named)):
                    self.held_back[replica] = what.held_back
                    continue
                batch.delete(replica.space, RECORD + user_key)
                count += 1
            batch.delete(replica.space, key)
        return batch, count


def _key_of(row: bytes) -> bytes:
    return row[len(TOMBSTONE) + TIME_BYTES :]
