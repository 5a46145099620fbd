"""Parts of a log sender: catch-up cursors, log reads and messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from gossipkv.replication._replication import LogEntry, OpenEntry
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.storage.engine.log_reader import LogCursor


@final
class OutgoingEntries(NamedTuple):
    """A message to send; `LogSender.answered` gets its number."""

    number: int
    entries: list[LogEntry]


@final
class LogRead(NamedTuple):
    """A request to read the log behind a position, answered by `LogSender.read`."""

    cursor: CatchUpCursor
    serial: int
    position: int
    slices: int = 1  # Parts of the log to read; entries of several are joined.

    @property
    def is_stale(self) -> bool:
        """True if the cursor was reset since this read; discard the result."""
        return self.serial != self.cursor.serial


@final
@dataclass(slots=True, eq=False)
class CatchUpCursor:
    """A position in the log; `open` holds the entries passed and not covered by the target."""

    at: int  # All up to here is passed.
    # Replicas of the cursor, all of one space; None: the shared cursor, of all others.
    replicas: dict[Replica, None] | None = None
    open: deque[OpenEntry] = field(default_factory=deque)
    serial: int = 0  # Number of the current read; older ones are stale.
    is_reading: bool = False
    read: deque[LogEntry] = field(default_factory=deque)  # Entries read and not passed yet.
    read_to: int = 0
    slices: int = 2  # Parts of the log in the next read whose entries are joined.
    log_cursor: LogCursor | None = None  # The store's cursor, kept between reads.
    met: set[Replica] = field(default_factory=set)  # Replicas whose first entry here continues from their clock.
    begun: int = 0  # Position at which the cursor began.
    is_alone: bool = False  # True if it feeds one replica, which could not accept entries or was below.
    needs: bytes = b""  # Clock from which the log continues; the target does not cover it, so the replica is below.

    def __post_init__(self) -> None:
        self.begun = self.at

    @property
    def covered_to(self) -> int:
        """The position up to which the target covers all."""
        return min(self.at, self.open[0].position - 1) if self.open else self.at

    def restart(self, at: int) -> None:
        """Restart behind a position."""
        self.at, self.is_reading = at, False
        self.serial += 1
        self.read_to, self.log_cursor, self.slices = 0, None, 2
        self.open.clear()
        self.read.clear()
        self.met.clear()

    def look_anew(self) -> None:
        """Discard the running read: it lacks a replica of this cursor."""
        if self.is_reading:
            self.is_reading = False
            self.serial += 1
