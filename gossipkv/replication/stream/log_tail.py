"""The log's end in memory, shared by all log senders, and the start of each target's feed."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.replica.replica import AssignedReplica, Replica

TAIL_BYTES: Final = 8 << 20
MAX_MARKS: Final = 1 << 15  # The marks of all replicas, about 200 bytes each; the oldest are dropped first.
MAX_PAST: Final = 64  # Configs of a replica that are remembered for change feeds.
FEW: Final = 1024  # Dropped batches that may remain in the lists.
_CHILDREN: Final = attrgetter("replica.lineage.children")
_SIZE_BYTES: Final = attrgetter("size_bytes")


@final
class LogTail:
    """The end of the log in memory, for all log senders; and marks of earlier positions, for change feeds."""

    def __init__(self, position: int, *, most_bytes: int = TAIL_BYTES) -> None:
        self.end = position  # The log is synced up to here.
        self.first = position  # All entries behind this position are in memory.
        self._batches: list[Sequence[LogEntry]] = []
        self._positions: list[int] = []
        self._begin = 0  # Start of the lists' live part; the rest is deleted now and then.
        self._bytes, self._most_bytes = 0, most_bytes
        # Log positions of replicas, each with the clock up to which all is before it, and the clock's config.
        self._marks: dict[Replica, list[tuple[int, bytes, int]]] = {}
        self._by_age: deque[list[tuple[int, bytes, int]]] = deque()  # The list that has each mark, the oldest first.

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Add the entries of a synced batch; batches come in order."""
        assert entries[0].position > self.end
        self.end = entries[0].position
        self._batches.append(entries)
        self._positions.append(self.end)
        self._bytes += size_bytes_of(entries)
        for entry in entries:
            marks = self._marks.get(entry.replica)
            if not marks or marks[-1][0] < self.first:
                self._mark(entry)
        while self._bytes > self._most_bytes:
            self.first = self._positions[self._begin]
            self._bytes -= size_bytes_of(self._batches[self._begin])
            self._begin += 1
        if self._begin > FEW and self._begin * 2 > len(self._batches):
            del self._batches[: self._begin], self._positions[: self._begin]
            self._begin = 0

    def _mark(self, entry: LogEntry) -> None:
        marks = self._marks.setdefault(entry.replica, [])
        marks.append((entry.position - 1, entry.before, entry.config))
        self._by_age.append(marks)
        if len(self._by_age) > MAX_MARKS:
            del self._by_age.popleft()[0]

    def marks(self, replica: Replica) -> Iterator[tuple[int, bytes, int]]:
        """Yield the marks of a replica, latest first: about one for each part of the log that fits into memory."""
        return reversed(self._marks.get(replica, ()))

    def let_go(self, replica: Replica) -> None:
        """Forget the marks of a replica."""
        self._marks.pop(replica, None)

    def forget(self) -> None:
        """Drop all entries after a split: senders read older ones from the log, page by page (`Spaces.read`)."""
        self.first, self._begin, self._bytes = self.end, 0, 0
        self._batches.clear()
        self._positions.clear()

    def next(self, position: int) -> Sequence[LogEntry]:
        """Return the entries of the first batch behind a position, if any. Requires: it is not before `first`."""
        assert position >= self.first
        at = max(self._begin, bisect_right(self._positions, position))
        return self._batches[at] if at < len(self._batches) else ()

    def after(self, position: int) -> Iterator[LogEntry]:
        """Yield the entries behind a position, in order. Requires: as `next`, unless the position is the end."""
        while position < self.end and (batch := self.next(position)):
            yield from batch
            position = batch[0].position


def size_bytes_of(entries: Sequence[LogEntry]) -> int:
    """Return the approximate size of entries on the wire."""
    return sum(map(_SIZE_BYTES, entries))


@final
class Beginnings:
    """The log positions where feeds of targets begin, for this run; a restarted node has saved cursors instead."""

    def __init__(self, position: int) -> None:
        """Begin with the log's end at startup."""
        self._start = position
        self._of: dict[Replica, dict[int, int]] = {}
        # The configs of each replica in this run, each with the clock at its end: some of its assignments ended then.
        self._past: dict[Replica, tuple[tuple[int, bytes], ...]] = {}

    def note(self, replica: Replica, before: Collection[int], hosts: Iterable[AssignedReplica], position: int) -> None:
        """Note the log position of an adoption batch; `before`: the assignments before it, `hosts`: those after it.

        A target loads earlier records instead: their tombstones may be gone already.
        """
        self._past[replica] = (*self._past.get(replica, ()), (replica.config, replica.appended))[-MAX_PAST:]
        begun = {host.assignment: position for host in hosts if not host.available and host.assignment not in before}
        if begun:
            self._of.setdefault(replica, {}).update(begun)

    def of(self, replica: Replica, assignment: int) -> int:
        """Return the position where the feed of a target begins."""
        return self._of.get(replica, {}).get(assignment, self._start)

    def inherit(self, child: Replica, parent: Replica) -> None:
        """Let a child of a split have its parent's past."""
        self._past[child] = (*self._past.get(parent, ()), (parent.config, parent.appended))[-MAX_PAST:]

    def past(self, replica: Replica, config: int) -> Sequence[tuple[int, bytes]] | None:
        """Return the configs from one on that the replica followed before, and their last clocks; None: unknown."""
        past = self._past.get(replica, ())
        is_known = bool(past) and past[0][0] <= config
        return [one for one in past if one[0] >= config] if is_known else None

    def let_go(self, replica: Replica) -> None:
        """Forget a replica."""
        self._of.pop(replica, None)
        self._past.pop(replica, None)


def by_children(entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
    """Return entries, with one for each child in place of a split replica's entry."""
    if not any(map(_CHILDREN, entries)):
        return entries
    return [part for entry in entries for part in _of_children(entry)]


def _of_children(entry: LogEntry) -> Iterator[LogEntry]:
    if not entry.replica.children:
        yield entry
    for child in entry.replica.children:
        yield from _of_children(entry.of(child))
