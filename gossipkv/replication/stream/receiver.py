"""What other nodes feed: entries out of messages, and what of them is taken at once.

All that can be taken of a message goes into few batches of the store, so thousands of small entries cost as few
appends and syncs as one; of each copy a batch has one entry, whatever came together in it.
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

    # Appends a batch, and has entries followed; the last is called once it is synced.  Raises Overloaded, StorageError.
    Append = Callable[[Batch, Sequence[LogEntry], Callable[[], object]], None]

MAX_BYTES: Final = 32 << 10  # Of records that wait for their batch: what a segment of the log has room for.


def entries_of(
    peer: ReplicaPeer, copies: Mapping[tuple[bytes, int], Replica], message: Sequence[Raw]
) -> Iterator[tuple[int, LogEntry]]:
    """The entries of a message, each with the number that the peer has given its copy.  Raises ProtocolError."""
    last: dict[int, bytes] = {}
    for one in message:
        match one:
            case [int(number), None | list() as before, None | list() as after, list(flat)]:
                pass
            case _:
                raise ProtocolError("an entry is [number, clock before, clock after, [key, record, ...]]")
        row = peer.rows.get(number)
        copy = None if row is None else copies.get(row.partition)
        # It comes again, once it is told that there is one, or that the peer is a host; else it is of a former life.
        if row is None or copy is None or peer.node not in copy.sharers or row.assignment not in copy.assigned:
            continue
        records = records_of(flat)
        begins = last.get(number) if before is None else clock_of(row.ids, before)
        if begins is None:
            raise ProtocolError("the first entry of a copy in a message has the clock before it")
        ends = last[number] = ends_of(begins, None if after is None else clock_of(row.ids, after), records)
        given = clock.counter(copy.appended, copy.assignment)
        # An older copy of the store takes back what it had written: it has heard of that before, and writes no more.
        if clock.counter(ends, copy.assignment) > given and copy.aside is None:
            raise ProtocolError(f"an entry has more of this copy's own records than the {given} that it gave out")
        config = peer.newer.get(number, 0)
        yield number, LogEntry(copy, records, begins, ends, is_own=False, source=row.assignment, config=config)


@final
class ReceivedEntries:
    """Entries that are taken together."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._merged: dict[Replica, Merged] = {}
        self._bytes = 0

    def has(self, entry: LogEntry) -> bool:
        """Whether there is nothing to take of it."""
        return entry.copy.has(entry, self._merged.get(entry.copy))

    def follows(self, entry: LogEntry) -> bool:
        """Whether it can be taken now."""
        return entry.copy.follows(entry, self._merged.get(entry.copy))

    def take(self, entry: LogEntry) -> None:
        """Take an entry.  Requires: it follows, and is not had."""
        copy = entry.copy
        merged = self._merged.get(copy)
        if merged is None:
            merged = self._merged[copy] = Merged(copy.appended, copy.appended, copy.joining)
        copy.merge(entry, merged, self._read)
        self._bytes += entry.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether what was taken is a batch's worth."""
        return self._bytes >= MAX_BYTES

    def finish(self) -> tuple[Batch, list[LogEntry]]:
        """The batch of what was taken, to be appended; what is taken next goes into another one."""
        batch = Batch()
        batch.may_fill = True  # Others have accepted it already, and what they delete comes behind it.
        batch.relieves = all(merged.relieves for merged in self._merged.values())
        entries = [copy.take(merged, batch) for copy, merged in self._merged.items()]
        self._merged.clear()
        self._bytes = 0
        return batch, entries


@final
class LogReceiver:
    """Takes what peers send, or keeps it until it can be taken."""

    def __init__(self, read: Read, append: Append, now: Callable[[], float]) -> None:
        self._read = read
        self._append = append
        self._now = now

    def take(self, peer: ReplicaPeer, entries: Iterable[LogEntry], on_synced: Callable[[], object]) -> int:
        """Take what can be of a message; `on_synced` is called as often as is returned."""
        waits, taking = 0, ReceivedEntries(self._read)
        for entry in entries:
            waits += self._take_or_keep(peer, entry, taking, on_synced)
        return waits + self._append_taken(taking, on_synced)

    def retry(self, peers: Iterable[ReplicaPeer]) -> None:
        """Take what was kept and goes on from what is here by now."""
        among = [*peers]
        with contextlib.suppress(StorageError):  # Nobody has asked: who sends it again hears that the store is closed.
            while any(self._retry_kept(peer) for peer in among):
                pass

    def _retry_kept(self, peer: ReplicaPeer) -> bool:
        taking, tell_soon, moved = ReceivedEntries(self._read), partial(self._tell_soon, peer), False
        kept, peer.kept = peer.kept, EarlyEntries()
        for at, entry in kept.entries:
            if taking.follows(entry):
                moved |= self._take_or_keep(peer, entry, taking, tell_soon)
            else:
                peer.kept.add(at, entry)
        return self._append_taken(taking, tell_soon) or moved

    def _take_or_keep(
        self, peer: ReplicaPeer, entry: LogEntry, taking: ReceivedEntries, on_synced: Callable[[], object]
    ) -> bool:
        """Take an entry, or keep it for later; whether a batch was full, and is to be synced."""
        if taking.has(entry):
            return False
        if taking.follows(entry):
            taking.take(entry)
            return taking.is_full and self._append_taken(taking, on_synced)
        peer.kept.add(self._now(), entry)
        return False

    def _append_taken(self, taking: ReceivedEntries, on_synced: Callable[[], object]) -> bool:
        """Append what was taken; whether there is something to be synced."""
        batch, entries = taking.finish()
        if not entries:
            return False
        try:
            self._append(batch, entries, on_synced)
        except Overloaded:
            return False  # It comes again.
        return True

    def _tell_soon(self, peer: ReplicaPeer) -> None:
        """Who waits for a confirmation has had its answer: it is told now, and not within the relay time."""
        peer.tell_at = self._now()
