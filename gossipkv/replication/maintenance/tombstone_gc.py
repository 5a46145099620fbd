"""Garbage collection of tombstones that no replica needs any more.

A clock is *settled* if every assigned replica, dead or alive, has confirmed it under the local config. (Under another
config a host may have loaded a replica unknown here.) A tombstone is needed while an older record of its key may
arrive, from a replica that lacks the tombstone or has a record that is missing here. So a settled tombstone is deleted
once the local clock covers all reported clocks: later writes have later times. Smeared puts may have earlier times;
then tombstones stay for an hour (`smeared`). Keys under `keys.TOMBSTONE` list tombstones by age. In a shared space
each replica collects its own keys and those of no replica. A first round visits all replicas, later ones
`DirtyReplicas`.

A "not found" answer passes this config on to the session (`Replica.taken_config`): a host removed by the config
and unaware of it was not asked, and may still return the deleted record.
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

MAX_COPIES: Final = 16  # Replicas per round.
MAX_ROWS: Final = 256  # Tombstones per replica and round.
END_OF_TOMBSTONES: Final = bytes([TOMBSTONE[0] + 1])


class Collectable(NamedTuple):
    """The tombstones of a replica that may be collected."""

    clock: bytes  # Tombstones covered by this clock are settled.
    ended: bool  # True if tombstones of ended origins may go: all replicas had them when the origin ended.
    held_back: tuple[bytes, ...]  # Nodes that hold the rest back: they lack a record, or may.


def confirmed(replicas: ReplicaSet, copy: Replica) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield each other host with the clock it reported under the replica's config; None: no such clock.

    Yield this node as well while its replica is incomplete, or at startup before the placement is known.
    """
    if copy.seat is None or copy.synced_joining is not None:
        yield replicas.me, None
    for host in copy.hosts:
        if host.assignment != copy.assignment:
            peer = replicas.peers.get(host.node)
            told = None if peer is None else peer.feed.told.get(copy)
            is_whole = told is not None and told.span is None
            counts = told is not None and (told.assignment, told.config) == (host.assignment, copy.config)
            yield host.node, told.clock if told is not None and counts and is_whole else None


def settled(replicas: ReplicaSet, copy: Replica) -> bytes:
    """Return the clock that every assigned replica, dead or alive, has confirmed under the replica's config."""
    whole = copy.synced
    for _, theirs in confirmed(replicas, copy):
        whole = clock.least(whole, theirs or b"")
    return whole


def collectable(replicas: ReplicaSet, copy: Replica) -> Collectable:
    """Return the settled tombstones; none if another replica has records that are missing here."""
    told = [*confirmed(replicas, copy)]
    joined = reduce(clock.merge, (theirs or b"" for _, theirs in told), copy.synced)
    has_all = copy.covers_synced(joined)
    missing = [node for node, theirs in told if theirs is None] + ([] if has_all else [replicas.me])
    behind = [node for node, theirs in told if theirs is not None and not clock.covers(theirs, copy.synced)]
    return Collectable(settled(replicas, copy) if has_all else b"", not missing, (*missing, *behind))


@final
class TombstoneCollector:
    """Visits the replicas that may have tombstones, a few at a time."""

    def __init__(self, replicas: ReplicaSet, outside: ReplicationPorts) -> None:
        self._replicas = replicas
        self._outside = outside
        self._at: dict[Replica, bytes] = {}  # Start of a replica's next page; at the end the replica begins again.
        self._round: list[Replica] = []
        self._knows_all = False  # Every replica present at startup was checked or is in the first round.
        self.held_back: dict[Replica, tuple[bytes, ...]] = {}  # Nodes for which met tombstones are kept.
        self.collected = 0

    def look(self) -> None:
        """Collect tombstones of the next few replicas."""
        if not self._round:
            self._round = [*(self._replicas.upkeep.unswept if self._knows_all else self._replicas.copies.values())]
            self._knows_all = True
        for _ in range(min(MAX_COPIES, len(self._round))):
            copy = self._round.pop()
            if copy in self._replicas.loading.loads:
                self._replicas.upkeep.unswept[copy] = None  # The load may be aborted.
            elif copy in self._replicas.levels:
                self._collect(copy)

    def _collect(self, copy: Replica) -> None:
        start = self._at.pop(copy, TOMBSTONE)
        rows, more = self._outside.scan(copy.space, start, END_OF_TOMBSTONES, reverse=False, limit=MAX_ROWS)
        its = [row for row in rows if self._is_of(copy, _key_of(row[0]))]
        if start == TOMBSTONE:
            self.held_back.pop(copy, None)
            if not its and more is None:
                self._replicas.upkeep.unswept.pop(copy, None)
                return
        self._replicas.upkeep.unswept[copy] = None  # The next visit clears this if it finds no tombstones.
        more = more if not rows or self._is_old(copy, rows[-1][0]) else None  # Rows are in the order of time.
        batch, count = self._batch_of(copy, [key for key, _ in its if self._is_old(copy, key)])
        if batch.count:
            try:
                self._outside.append(batch, lambda: None)
            except (Overloaded, StorageError):
                return  # Retried in the next round.
            copy.taken_config = copy.config
        self.collected += count
        if more is not None:
            self._at[copy] = more

    def _is_old(self, copy: Replica, row: bytes) -> bool:
        """Return True if no smeared put with an earlier time may arrive any more."""
        time = int.from_bytes(row[len(TOMBSTONE) :][:TIME_BYTES], "big")
        return not copy.rules.smears or self._outside.now_ms() - ms_of(time) >= KEEPS_MS

    def _is_of(self, copy: Replica, key: bytes) -> bool:
        """Return True if the replica must collect the key: its own, or of no replica in the space."""
        return copy.bounds.has(key) or self._replicas.spaces.is_nobodys(copy, key)

    def _batch_of(self, copy: Replica, keys: Iterable[bytes]) -> tuple[Batch, int]:
        """Return a batch that deletes collectable tombstones with their rows, and their number."""
        what = collectable(self._replicas, copy)
        batch, count = Batch(), 0
        for key in keys:
            time, user_key = key[len(TOMBSTONE) :][:TIME_BYTES], _key_of(key)
            if copy.is_pending(user_key):
                continue
            data = self._outside.get(copy.space, RECORD + user_key)
            is_of_it = data is not None and data[:TIME_BYTES] == time and record.is_deleted(data)
            if data is not None and is_of_it:
                dot = record.dot(data)
                ((origin, _),) = clock.entries(dot)
                if not (clock.covers(what.clock, dot) or (what.ended and origin not in copy.named)):
                    self.held_back[copy] = what.held_back
                    continue
                batch.delete(copy.space, RECORD + user_key)
                count += 1
            batch.delete(copy.space, key)
        return batch, count


def _key_of(row: bytes) -> bytes:
    return row[len(TOMBSTONE) + TIME_BYTES :]
