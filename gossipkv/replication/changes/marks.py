"""Marks of the log: from which position a replica continues a clock.

A feed that changes its node has no position in the log of the new one. The marks have, for each replica, the clock
before some of its entries, about one for each MiB of the log. They are made by reading the log once, for all feeds
together, and each time up to its end. They are lost with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.replication.changes.places import ConfigClock
from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.storage.engine.log_reader import Operations

MARK_READS: Final = 8  # Reads of a part of the log, 128 KiB each, between two marks of a replica.


class LogMark(NamedTuple):
    """An entry in the log."""

    position: int
    before: ConfigClock
    read: int  # Number of the read that found the entry.


@final
class LogMarks:
    """The marks of a node's log."""

    def __init__(self, replicas: ReplicaSet, outside: ReplicationPorts) -> None:
        self._replicas, self._outside = replicas, outside
        self._marks: dict[Replica, list[LogMark]] = {}
        self._read_to = self._reads = 0
        self._until: int | None = None  # The position up to which a reading goes on; None: none does.
        self._waiting: list[Callable[[], object]] = []

    def look(self, replicas: Sequence[Replica], then: Callable[[], object]) -> None:
        """Read the log up to its present end, with the entries of these replicas, and call `then`."""
        self._waiting.append(then)
        if self._until is None:
            if not self._marks.keys() >= {*replicas}:  # A split has made new replicas of older entries.
                self._read_to = 0
                self._marks = {replica: [] for replica in self._replicas.by_partition.values()}
            self._until = self._outside.synced()
            self._read()

    def position(self, replica: Replica, delivered: ConfigClock) -> int | None:
        """Return the position behind which all is that the clock does not cover; None: the log begins later.

        Assignments that have ended since must end in the log, or be known to have ended at the clock's counters.
        """
        for mark in reversed(self._marks.get(replica, ())):
            if mark.position < max(replica.made_at, self._outside.log_floor()):
                return None
            if delivered.covers(mark.before) and self.knows_ends(replica, delivered, mark.before):
                return mark.position - 1
        return None

    def knows_ends(self, replica: Replica, delivered: ConfigClock, now: ConfigClock) -> bool:
        """Return True if a clock is known to have all records of assignments that have ended by another clock."""
        if delivered.config >= now.config:
            return True
        past, names = self._replicas.beginnings.past(replica, delivered.config), {*now.names}
        return past is not None and all(
            origin in names or clock.counter(delivered.counters, origin) == count
            for _, last in past
            for origin, count in clock.entries(last)
        )

    def _read(self) -> None:
        self._read_to = max(self._read_to, self._outside.log_floor())
        spaces = frozenset(replica.space for replica in self._replicas.by_partition.values())
        self._outside.read_log(spaces, self._read_to, self._on_log)

    def _on_log(self, batches: Sequence[tuple[int, Operations]] | None, position: int) -> None:
        self._reads += 1
        for entry in self._replicas.spaces.read(batches or (), lambda _replica, _clock: True):
            marks = self._marks.setdefault(entry.replica, [])
            if not marks or self._reads >= marks[-1].read + MARK_READS:
                marks.append(LogMark(entry.position, ConfigClock(entry.before, entry.config), self._reads))
        before, self._read_to = self._read_to, max(self._read_to, position)
        assert self._until is not None
        if batches is None or before < self._read_to < self._until:
            self._read()
            return
        self._until, waiting, self._waiting = None, self._waiting, []
        self._marks = {replica: marks for replica, marks in self._marks.items() if replica in self._replicas.acks}
        for then in waiting:
            then()
