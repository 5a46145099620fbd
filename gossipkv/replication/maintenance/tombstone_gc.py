"""Collecting: tombstones that nobody needs any more go.

What every assigned copy, dead or alive, has confirmed by its clock, under this copy's config, is *settled*.  (Who goes
by another config may have had a copy load that this one does not know of.)  A tombstone is needed while an older record
of its key may come: from a copy that lacks the tombstone, or that has the record where this one has not.  So it goes
once it is settled, and this copy's clock covers the join of what the others said.  What is written after that has a
later time.  But where puts are smeared one may come with an earlier time: there a tombstone stays for an hour
(`accepted`).  The keys under `keys.TOMBSTONE` list them by age; a row that is of no record any more goes with them.
Of a space with several copies each looks at the rows of its own keys, and lets go of those that are of nobody's.
Which copies have any is learned by going through all of them once; then only what was deleted from is looked at, and
what is held back (`upkeep`).

Whoever was shown that nothing is there has to be told of this config (`Replica.taken_config`): a host that it leaves
out, and that has not heard of it, was not asked, and may show the record that was deleted.
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

MAX_COPIES: Final = 16  # Looked at in a round,
MAX_ROWS: Final = 256  # and of each so many tombstones.
END_OF_TOMBSTONES: Final = bytes([TOMBSTONE[0] + 1])


class Collectable(NamedTuple):
    """What of a copy's tombstones may go."""

    clock: bytes  # Those that this covers;
    ended: bool  # and whether those of what the map does not name any more: all had them when that ended.
    held_back: tuple[bytes, ...]  # These nodes hold the rest back: they lack something, or may.


def confirmed(replicas: ReplicaSet, copy: Replica) -> Iterator[tuple[bytes, bytes | None]]:
    """The other nodes of a copy's partition, and what each has, as it told under this copy's config; None: nothing.

    This node as well, while its copy is not whole, and in a new life before the map has come by which it goes.
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
    """The clock up to which every assigned copy, dead or alive, has confirmed, under this copy's config."""
    whole = copy.synced
    for _, theirs in confirmed(replicas, copy):
        whole = clock.least(whole, theirs or b"")
    return whole


def collectable(replicas: ReplicaSet, copy: Replica) -> Collectable:
    """What may go: what is settled, unless somebody has what is not here."""
    told = [*confirmed(replicas, copy)]
    joined = reduce(clock.merge, (theirs or b"" for _, theirs in told), copy.synced)
    has_all = copy.covers_synced(joined)
    missing = [node for node, theirs in told if theirs is None] + ([] if has_all else [replicas.me])
    behind = [node for node, theirs in told if theirs is not None and not clock.covers(theirs, copy.synced)]
    return Collectable(settled(replicas, copy) if has_all else b"", not missing, (*missing, *behind))


@final
class TombstoneCollector:
    """Goes round the copies of a node that may have tombstones, a few at a time."""

    def __init__(self, replicas: ReplicaSet, outside: ReplicationPorts) -> None:
        self._replicas = replicas
        self._outside = outside
        self._at: dict[Replica, bytes] = {}  # Where each is gone on with; gone over once, it is begun anew.
        self._round: list[Replica] = []
        self._knows_all = False  # Every copy that was there at the start was looked at, or is in the first round.
        self.held_back: dict[Replica, tuple[bytes, ...]] = {}  # Who has tombstones kept that were met.
        self.collected = 0

    def look(self) -> None:
        """Collect what can be of the next few copies."""
        if not self._round:
            self._round = [*(self._replicas.upkeep.unswept if self._knows_all else self._replicas.copies.values())]
            self._knows_all = True
        for _ in range(min(MAX_COPIES, len(self._round))):
            copy = self._round.pop()
            if copy in self._replicas.loading.loads:
                self._replicas.upkeep.unswept[copy] = None  # The load may be torn.
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
        self._replicas.upkeep.unswept[copy] = None  # Until a look finds none.
        more = more if not rows or self._is_old(copy, rows[-1][0]) else None  # They are in the order of their times.
        batch, count = self._batch_of(copy, [key for key, _ in its if self._is_old(copy, key)])
        if batch.count:
            try:
                self._outside.append(batch, lambda: None)
            except (Overloaded, StorageError):
                return  # The next time.
            copy.taken_config = copy.config
        self.collected += count
        if more is not None:
            self._at[copy] = more

    def _is_old(self, copy: Replica, row: bytes) -> bool:
        """Whether nothing that is smeared has an earlier time than a tombstone, and may come yet."""
        time = int.from_bytes(row[len(TOMBSTONE) :][:TIME_BYTES], "big")
        return not copy.rules.smears or self._outside.now_ms() - ms_of(time) >= KEEPS_MS

    def _is_of(self, copy: Replica, key: bytes) -> bool:
        """Whether a copy is to look at what stands in its space of a key: it is its own, or nobody's."""
        return copy.bounds.has(key) or self._replicas.spaces.is_nobodys(copy, key)

    def _batch_of(self, copy: Replica, keys: Iterable[bytes]) -> tuple[Batch, int]:
        """What takes those tombstones away that may go, with their rows, and how many they are."""
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
    """The user's key, out of that of a tombstone."""
    return row[len(TOMBSTONE) + TIME_BYTES :]
