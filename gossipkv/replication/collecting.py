"""Collecting: tombstones that nobody needs any more go.

A tombstone is needed while an older record of its key may come: from a copy that lacks the tombstone, or that has the
record where this one has not.  So it goes once every assigned copy, dead or alive, has confirmed it by its clock under
this copy's config, and this copy's clock covers the join of what they said.  What is written after that has a later
time.  The keys under `copy.TOMBSTONE` list them by age; a row that is of no record any more goes with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication import clock, record
from gossipkv.replication.copy import RECORD, TIME_BYTES, TOMBSTONE
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from gossipkv.replication.copy import Copy
    from gossipkv.replication.outside import Outside
    from gossipkv.replication.replicas import Replicas

MOST_COPIES: Final = 16  # Looked at in a round,
MOST_ROWS: Final = 256  # and of each so many tombstones.
END_OF_TOMBSTONES: Final = bytes([TOMBSTONE[0] + 1])


class Settled(NamedTuple):
    """What of a copy is settled."""

    clock: bytes  # Every assigned copy has confirmed this,
    held_back: tuple[bytes, ...]  # and these nodes hold the rest back: they have not, or are not known to have.


def settled(replicas: Replicas, copy: Copy) -> Settled:
    """Look up to where every assigned copy has confirmed, by its clock and under this copy's config."""
    least = joined = copy.synced
    missing: list[bytes] = []
    behind: list[bytes] = []
    for host in copy.hosts:
        if host.assignment == copy.assignment:
            continue
        peer = replicas.peers.get(host.node)
        told = None if peer is None else peer.feed.told.get(copy)
        if told is None or (told.assignment, told.config) != (host.assignment, copy.synced_config):
            missing.append(host.node)
            continue
        if not clock.covers(told.clock, copy.synced):
            behind.append(host.node)
        least, joined = clock.least(least, told.clock), clock.merge(joined, told.clock)
    if not copy.covers_synced(joined):
        behind.append(replicas.me)
        missing.append(replicas.me)
    return Settled(b"" if missing else least, tuple(dict.fromkeys(missing + behind)))


@final
class Collecting:
    """Goes round the copies of a node, a few at a time."""

    def __init__(self, replicas: Replicas, outside: Outside) -> None:
        self._replicas = replicas
        self._outside = outside
        self._at: dict[Copy, bytes] = {}  # Where each is gone on with; gone over once, it is begun anew.
        self._round: list[Copy] = []
        self.held_back: dict[Copy, tuple[bytes, ...]] = {}  # Who has tombstones kept that were met.
        self.collected = 0

    def look(self) -> None:
        """Collect what can be of the next few copies."""
        if not self._round:
            self._round = [*self._replicas.copies.values()]
        for _ in range(min(MOST_COPIES, len(self._round))):
            copy = self._round.pop()
            if copy in self._replicas.levels and copy not in self._replicas.loading.loads:
                self._collect(copy)

    def _collect(self, copy: Copy) -> None:
        start = self._at.pop(copy, TOMBSTONE)
        rows, more = self._outside.scan(copy.space, start, END_OF_TOMBSTONES, reverse=False, limit=MOST_ROWS)
        if start == TOMBSTONE:
            self.held_back.pop(copy, None)
        if not rows:
            return
        what = settled(self._replicas, copy)
        batch, count = Batch(), 0
        for key, _ in rows:
            time, user_key = key[len(TOMBSTONE) :][:TIME_BYTES], key[len(TOMBSTONE) + TIME_BYTES :]
            if copy.is_pending(user_key):
                continue
            data = self._outside.get(copy.space, RECORD + user_key)
            is_of_it = data is not None and data[:TIME_BYTES] == time and record.value(data) is None
            if data is not None and is_of_it:
                if not clock.covers(what.clock, record.dot(data)):
                    self.held_back[copy] = what.held_back
                    continue
                batch.delete(copy.space, RECORD + user_key)
                count += 1
            batch.delete(copy.space, key)
        if batch.count:
            try:
                self._outside.append(batch, lambda: None)
            except (Overloaded, StorageError):
                return  # The next time.
        self.collected += count
        if more is not None:
            self._at[copy] = more
