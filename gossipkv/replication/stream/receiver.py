"""The log receiver: merges those entries of other nodes that fit now.

The entries of a message that fit go into few batches of the store, so thousands of small entries cost few appends and
syncs. A batch has one entry for each replica, merged from all its received entries.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication._replication import Merged
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.replica.replica import Read, Replica
    from gossipkv.replication.stream.peer import ReplicaPeer

    # Appends a batch and its entries; calls the last argument once synced.  Raises Overloaded, StorageError.
    Append = Callable[[Batch, Sequence[LogEntry], Callable[[], object]], None]

MAX_BYTES: Final = 32 << 10  # Records in one batch: a segment of the log has room for these.
KEPT_BYTES: Final = 8 << 20  # Early entries kept of one peer.


@final
class ReceivedEntries:
    """Received entries that go into one batch."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._merged: dict[Replica, Merged] = {}
        self.size_bytes = 0

    def take(self, entry: LogEntry) -> bool:
        """Merge an entry unless it brings nothing new; return False if it cannot be merged yet."""
        merged = self._merged.get(entry.replica) or Merged(entry.replica)
        size_bytes = merged.take(entry, self._read)
        if size_bytes:
            self._merged[entry.replica] = merged
            self.size_bytes += size_bytes
        return size_bytes is not None

    def finish(self) -> tuple[Batch, list[LogEntry]]:
        """Return the batch of merged entries, to be appended, and begin the next."""
        batch, entries = Batch(), []
        batch.may_fill = True  # Other nodes have accepted these writes, and deletes that make room come behind them.
        batch.relieves = True
        for merged in self._merged.values():
            batch.relieves &= merged.relieves
            entries.append(merged.finish(batch))
        self._merged.clear()
        self.size_bytes = 0
        return batch, entries


@final
class EarlyEntries:
    """Entries that arrived before their predecessors, in order of arrival, as far as there is room."""

    __slots__ = ("_bytes", "entries")

    def __init__(self, entries: Iterable[tuple[float, LogEntry]] = ()) -> None:
        self.entries = deque(entries)  # Each with its time of arrival.
        self._bytes = sum(entry.size_bytes for _, entry in self.entries)

    def add(self, at: float, entry: LogEntry) -> None:
        """Keep an entry if there is room; otherwise the peer sends it again."""
        if self._bytes + entry.size_bytes <= KEPT_BYTES:
            self.entries.append((at, entry))
            self._bytes += entry.size_bytes

    def drop_first(self) -> None:
        """Drop the entry that arrived first."""
        self._bytes -= self.entries.popleft()[1].size_bytes


@final
class LogReceiver:
    """Merges entries of peers, or keeps them until they can be merged."""

    def __init__(self, read: Read, append: Append, now: Callable[[], float]) -> None:
        self._read = read
        self._append = append
        self._now = now
        self.early: dict[ReplicaPeer, EarlyEntries] = {}  # Only peers that sent such entries.

    def take(
        self, peer: ReplicaPeer, entries: Iterable[tuple[float, LogEntry]], on_synced: Callable[[], object]
    ) -> int:
        """Merge entries, each with its time of arrival; return how often `on_synced` will be called."""
        waits, taking = 0, ReceivedEntries(self._read)
        for at, entry in entries:
            if not taking.take(entry):
                self.early.setdefault(peer, EarlyEntries()).add(at, entry)
            elif taking.size_bytes >= MAX_BYTES:
                waits += self._append_taken(taking, on_synced)
        return waits + self._append_taken(taking, on_synced)

    def retry(self) -> None:
        """Merge early entries whose predecessors are here by now."""
        # No request fails here: the peer sends the entries again and then hears of the closed store.
        with contextlib.suppress(StorageError):
            has_moved = True
            while has_moved:
                kept, self.early = self.early, {}
                taken = [
                    self.take(peer, early.entries, partial(self._report_soon, peer)) for peer, early in kept.items()
                ]
                has_moved = any(taken)

    @property
    def first_early(self) -> float:
        """The time at which the first early entry arrived; inf: there is none."""
        return min((early.entries[0][0] for early in self.early.values() if early.entries), default=inf)

    def forget(self, now: float, after_s: float) -> None:
        """Drop early entries older than `after_s`."""
        for peer, early in [*self.early.items()]:
            # Compare as `ReplicaSet.due` does: with other rounding it would never fire.
            while early.entries and early.entries[0][0] + after_s <= now:
                early.drop_first()
            if not early.entries:
                del self.early[peer]

    def let_go(self, replica: Replica) -> None:
        """Drop the early entries of a replica."""
        for peer, early in self.early.items():
            self.early[peer] = EarlyEntries(kept for kept in early.entries if kept[1].replica is not replica)

    def _append_taken(self, taking: ReceivedEntries, on_synced: Callable[[], object]) -> bool:
        """Append merged entries; return True if a sync must be awaited."""
        batch, entries = taking.finish()
        if not entries:
            return False
        try:
            self._append(batch, entries, on_synced)
        except Overloaded:
            return False  # The peer sends the entries again.
        return True

    def _report_soon(self, peer: ReplicaPeer) -> None:
        """Report now instead of after the relay time: the message's answer did not confirm these entries."""
        peer.report_at = self._now()
        peer.due = 0.0
