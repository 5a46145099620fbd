"""The log receiver: reads entries from messages of other nodes and merges those that fit now.

The entries of a message that fit go into few batches of the store, so thousands of small entries cost few appends and
syncs. A batch has one entry for each replica, merged from all its received entries.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Overloaded, ProtocolError, StorageError
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.replica import LogEntry, Merged, Replica
from gossipkv.replication.stream.messages import clock_of, ends_of, records_of
from gossipkv.replication.stream.peer import EarlyEntries
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gossipkv.replication.replica.replica import Read
    from gossipkv.replication.stream.peer import ReplicaPeer
    from gossipkv.wire.rpc import Raw

    # Appends a batch and its entries; calls the last argument once synced.  Raises Overloaded, StorageError.
    Append = Callable[[Batch, Sequence[LogEntry], Callable[[], object]], None]

MAX_BYTES: Final = 32 << 10  # Records in one batch: a segment of the log has room for these.


def entries_of(
    peer: ReplicaPeer, by_partition: Mapping[tuple[bytes, int], Replica], message: Sequence[Raw]
) -> Iterator[tuple[int, LogEntry]]:
    """Yield the entries of a message, each with the peer's number of its replica. Raises ProtocolError."""
    last: dict[int, bytes] = {}
    for item in message:
        match item:
            case [int(number), None | list() as before, None | list() as after, list(flat)]:
                pass
            case _:
                raise ProtocolError("an entry is [number, clock before, clock after, [key, record, ...]]")
        row = peer.rows.get(number)
        replica = None if row is None else by_partition.get(row.partition)
        # The peer sends skipped entries again once it knows of the replica here, or is a host here.
        if row is None or replica is None or peer.node not in replica.sharers or row.assignment not in replica.assigned:
            continue
        records = records_of(flat)
        begins = last.get(number) if before is None else clock_of(row.ids, before)
        if begins is None:
            raise ProtocolError("the first entry of a copy in a message has the clock before it")
        ends = last[number] = ends_of(begins, None if after is None else clock_of(row.ids, after), records)
        if replica.never_gave_out(ends):
            given = clock.counter(replica.appended, replica.assignment)
            raise ProtocolError(f"an entry has more of this copy's own records than the {given} that it gave out")
        config = peer.newer.get(number, 0)
        yield number, LogEntry(replica, records, begins, ends, is_own=False, source=row.assignment, config=config)


@final
class ReceivedEntries:
    """Received entries that go into one batch."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._merged: dict[Replica, Merged] = {}
        self._bytes = 0

    def has(self, entry: LogEntry) -> bool:
        """Return True if an entry brings nothing new."""
        return entry.replica.has(entry, self._merged.get(entry.replica))

    def follows(self, entry: LogEntry) -> bool:
        """Return True if an entry can be merged now."""
        return entry.replica.follows(entry, self._merged.get(entry.replica))

    def take(self, entry: LogEntry) -> None:
        """Merge an entry. Requires: `follows` and not `has`."""
        replica = entry.replica
        merged = self._merged.get(replica)
        if merged is None:
            merged = self._merged[replica] = Merged(replica.appended, replica.appended, replica.joining)
        replica.merge(entry, merged, self._read)
        self._bytes += entry.size_bytes

    @property
    def is_full(self) -> bool:
        """True if the merged entries fill a batch."""
        return self._bytes >= MAX_BYTES

    def finish(self) -> tuple[Batch, list[LogEntry]]:
        """Return the batch of merged entries, to be appended, and begin the next."""
        batch = Batch()
        batch.may_fill = True  # Other nodes have accepted these writes, and deletes that make room come behind them.
        batch.relieves = all(merged.relieves for merged in self._merged.values())
        entries = [replica.take(merged, batch) for replica, merged in self._merged.items()]
        self._merged.clear()
        self._bytes = 0
        return batch, entries


@final
class LogReceiver:
    """Merges entries of peers, or keeps them until they can be merged."""

    def __init__(self, read: Read, append: Append, now: Callable[[], float]) -> None:
        self._read = read
        self._append = append
        self._now = now

    def take(self, peer: ReplicaPeer, entries: Iterable[LogEntry], on_synced: Callable[[], object]) -> int:
        """Merge the entries of a message; return how often `on_synced` will be called."""
        waits, taking = 0, ReceivedEntries(self._read)
        for entry in entries:
            waits += self._take_or_keep(peer, entry, taking, on_synced)
        return waits + self._append_taken(taking, on_synced)

    def retry(self, peers: Iterable[ReplicaPeer]) -> None:
        """Merge early entries whose predecessors are here by now."""
        among = [*peers]
        # No request fails here: the peer sends the entries again and then hears of the closed store.
        with contextlib.suppress(StorageError):
            while any(self._retry_kept(peer) for peer in among):
                pass

    def _retry_kept(self, peer: ReplicaPeer) -> bool:
        taking, tell_soon, moved = ReceivedEntries(self._read), partial(self._report_soon, peer), False
        kept, peer.early = peer.early, EarlyEntries()
        for at, entry in kept.entries:
            if taking.follows(entry):
                moved |= self._take_or_keep(peer, entry, taking, tell_soon)
            else:
                peer.early.add(at, entry)
        return self._append_taken(taking, tell_soon) or moved

    def _take_or_keep(
        self, peer: ReplicaPeer, entry: LogEntry, taking: ReceivedEntries, on_synced: Callable[[], object]
    ) -> bool:
        """Merge an entry or keep it; return True if a full batch was appended."""
        if taking.has(entry):
            return False
        if taking.follows(entry):
            taking.take(entry)
            return taking.is_full and self._append_taken(taking, on_synced)
        peer.early.add(self._now(), entry)
        return False

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
