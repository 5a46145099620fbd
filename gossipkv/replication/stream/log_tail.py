"""What of the log here is in memory: its end, for all feeds, and where those of targets begin."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gossipkv.replication.replica.replica import AssignedReplica, LogEntry, Replica

TAIL_BYTES: Final = 8 << 20
FEW: Final = 1024  # Entries that were let go of and are still in lists.


@final
class LogTail:
    """The end of the log, in memory, for all feeds."""

    def __init__(self, position: int, *, most_bytes: int = TAIL_BYTES) -> None:
        self.end = position  # All up to here is synced.
        self.first = position  # All behind it is here.
        self._batches: list[Sequence[LogEntry]] = []
        self._positions: list[int] = []
        self._begin = 0  # Of what is here; what is before is let go of now and then.
        self._bytes, self._most_bytes = 0, most_bytes

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Have the entries of a batch that is synced; they come in their order."""
        assert entries[0].position > self.end
        self.end = entries[0].position
        self._batches.append(entries)
        self._positions.append(self.end)
        self._bytes += size_bytes_of(entries)
        while self._bytes > self._most_bytes:
            self.first = self._positions[self._begin]
            self._bytes -= size_bytes_of(self._batches[self._begin])
            self._begin += 1
        if self._begin > FEW and self._begin * 2 > len(self._batches):
            del self._batches[: self._begin], self._positions[: self._begin]
            self._begin = 0

    def forget(self) -> None:
        """A copy was divided: what was written before is read from the log, a page at a time (`Spaces.read`)."""
        self.first, self._begin, self._bytes = self.end, 0, 0
        self._batches.clear()
        self._positions.clear()

    def next(self, position: int) -> Sequence[LogEntry]:
        """The entries of the first batch behind a position, if any.  Requires: that is not before `first`."""
        assert position >= self.first
        at = max(self._begin, bisect_right(self._positions, position))
        return self._batches[at] if at < len(self._batches) else ()


def size_bytes_of(entries: Sequence[LogEntry]) -> int:
    """About what entries take on their way."""
    return sum(entry.size_bytes for entry in entries)


@final
class Beginnings:
    """Where in this node's log the feeds of targets begin, in this life; a later life has lanes that were kept."""

    def __init__(self, position: int) -> None:
        """`position`: the end of what was there at the start."""
        self._start = position
        self._of: dict[Replica, dict[int, int]] = {}

    def note(self, copy: Replica, known: Collection[int], hosts: Iterable[AssignedReplica], position: int) -> None:
        """The batch by which a copy adopts a map stands there; `known`: who was assigned before, `hosts`: who is.

        What was written before comes to a target by loading: it may be a record whose tombstone is gone already.
        """
        begun = {host.assignment: position for host in hosts if not host.available and host.assignment not in known}
        if begun:
            self._of.setdefault(copy, {}).update(begun)

    def of(self, copy: Replica, assignment: int) -> int:
        """Where the feed of a target begins."""
        return self._of.get(copy, {}).get(assignment, self._start)

    def let_go(self, copy: Replica) -> None:
        """The copy is no more."""
        self._of.pop(copy, None)


def by_heirs(entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
    """Entries, and of copies that were divided since one for each heir."""
    if not any(entry.copy.heirs for entry in entries):
        return entries
    return [one for entry in entries for one in _of_heirs(entry)]


def _of_heirs(entry: LogEntry) -> Iterator[LogEntry]:
    if not entry.copy.heirs:
        yield entry
    for heir in entry.copy.heirs:
        yield from _of_heirs(entry.of(heir))
