"""Parts of a feed: what its target has told of each copy, and the lanes by which copies go through the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from gossipkv.replication.replica.replica import LogEntry, Replica
    from gossipkv.storage.engine.log_reader import LogCursor


@final
class OutgoingEntries(NamedTuple):
    """A message to be sent, which `answered` is told of by its number."""

    number: int
    entries: list[LogEntry]


@final
class LogRead(NamedTuple):
    """The log is to be read behind a position, for `read`."""

    lane: CatchUpCursor
    serial: int
    position: int

    @property
    def is_stale(self) -> bool:
        """Whether the lane wants to know it no more: it began anew, or looks anew."""
        return self.serial != self.lane.serial


@final
@dataclass(slots=True, eq=False)
class OpenEntry:
    """An entry that the target has not covered."""

    position: int
    copy: Replica
    after: bytes
    origins: tuple[int, ...]
    is_own: bool
    noted: float  # When the feed came by.
    under_way: bool = False
    answered: float | None = None  # When it was, last.


@final
@dataclass(slots=True, eq=False)
class CatchUpCursor:
    """A cursor in the log: what it has passed and the target has not covered is open."""

    at: int  # It has passed all up to here.
    copies: dict[Replica, None] | None = None  # Which go by it, all of one space; None: all that go by no other one.
    open: deque[OpenEntry] = field(default_factory=deque)
    serial: int = 0  # Of what is read for it.
    looks: bool = False
    read: deque[LogEntry] = field(default_factory=deque)  # Of the log, and not passed yet.
    read_to: int = 0
    cursor: LogCursor | None = None  # Of whoever reads the log for it.
    met: set[Replica] = field(default_factory=set)  # Whose first entry, since it began, goes on from what they have.
    begun: int = 0  # Where.
    is_alone: bool = False  # It is of one copy that cannot take now, or could not.
    needs: bytes = b""  # What the log goes on from, and the target does not cover: that copy is below.

    def __post_init__(self) -> None:
        self.begun = self.at

    def restart(self, at: int) -> None:
        """Begin again behind a position."""
        self.at, self.looks = at, False
        self.serial += 1
        self.read_to, self.cursor = 0, None
        self.open.clear()
        self.read.clear()
        self.met.clear()

    def look_anew(self) -> None:
        """What is being read now is not of all copies that go by this lane."""
        if self.looks:
            self.looks = False
            self.serial += 1
