"""Room on the disk: what builds need, what they will still take, and what a full disk has taught.

A build that the disk has no room for waits and polls the free space; it is not begun blindly, since each attempt reads
the source again.  Builds that run beside each other would both begin on room for one, and both fail, again and again:
so each reserves what it needs, and what the others have not taken yet counts as taken.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.dataset.build.job import Progress

# Between two looks at the free space while a build waits: one system call, and room is used soon after it is there.
POLL_MS = 1_000

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# A build that was refused before it came so far says too little about what it needs.
_LEAST_STEPS = 0.05
# One attempt teaches so much at most: a disk that was full for a moment is no reason to wait for terabytes, and after
# two more attempts, a source that was compressed to a fiftieth is built, too.
_MOST_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a build needs on the disk, and does not have."""

    needed_bytes: int
    free_bytes: int  # less what the builds that run will still take
    reason: str | None = None  # What the system said, if the disk was full in the middle of it.

    def __str__(self) -> str:
        found = "" if self.reason is None else f" ({self.reason})"
        return f"room on the disk: about {self.needed_bytes:,} bytes are needed, {self.free_bytes:,} are free{found}"


class NoSpace(LocalError):
    """A build cannot go on for want of room."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(str(shortage), {"needed_bytes": shortage.needed_bytes, "free_bytes": shortage.free_bytes})
        self.shortage = shortage


@dataclass(slots=True, eq=False)
class Reservation:
    """The room of one build."""

    needed_bytes: int
    progress: Progress | None = None

    @property
    def outstanding_bytes(self) -> int:
        """What it will still take: half for the sorted runs, as it reads, and half for the files, as it writes."""
        left_bytes = int(self.needed_bytes * (1 - _steps(self.progress) / 2))
        assert 0 <= left_bytes <= self.needed_bytes, (left_bytes, self)
        return left_bytes


class Reservations:
    """The room of all builds of a node."""

    def __init__(self) -> None:
        self._reservations: list[Reservation] = []

    @property
    def outstanding_bytes(self) -> int:
        """What those that run will still take."""
        return sum(reservation.outstanding_bytes for reservation in self._reservations)

    @contextlib.contextmanager
    def reserve(self, needed_bytes: int, free_bytes: int) -> Iterator[Reservation]:
        """Keeps the room for one build while it runs; `free_bytes` are what the disk has now.

        Raises:
            NoSpace: that is not enough.
        """
        left = max(0, free_bytes - self.outstanding_bytes)
        if left < needed_bytes:
            raise NoSpace(Shortage(needed_bytes, left))
        reservation = Reservation(needed_bytes)
        self._reservations.append(reservation)
        try:
            yield reservation
        finally:
            self._reservations.remove(reservation)


def is_full(details: Mapping[str, object]) -> bool:
    """Whether an error with these details says that the disk is full, or was found too full at the beginning."""
    return details.get("errno") in _FULL or {"needed_bytes", "free_bytes"} <= details.keys()


def after_refusal(details: Mapping[str, object], reservation: Reservation, free_bytes: int) -> Shortage:
    """What a build needs that was refused halfway; `free_bytes` are what the disk has after it was cleared away.

    That is about what the build had taken, and how far it was tells the rest.  It is no more than a guess, since others
    use the disk as well: so it is not below the estimate that the build began with, nor too far above.
    """
    number = details.get("errno")
    if not isinstance(number, int):  # It looked before it began, and found less than its node had.
        needed = details.get("needed_bytes")
        found = details.get("free_bytes")
        assert isinstance(needed, int)
        assert isinstance(found, int)
        return Shortage(max(needed, reservation.needed_bytes), found, "less than there seemed to be")
    taught = 2 * free_bytes / max(_LEAST_STEPS, _steps(reservation.progress))
    needed = min(max(int(taught), reservation.needed_bytes), _MOST_GROWTH * reservation.needed_bytes)
    return Shortage(needed, free_bytes, os.strerror(number))


def _steps(progress: Progress | None) -> float:
    """Steps done, from 0 to 2: 1 when everything is read, 2 when everything is written."""
    if progress is None:
        return 0.0
    read = progress.read_bytes / progress.source_bytes if progress.source_bytes else 1.0
    written = progress.written_records / progress.read_records if progress.read_records else 0.0
    return min(1.0, read) + min(1.0, written)
