"""Room on the disk: the needs of builds, what they will still take, and estimates corrected by a full disk.

A build without enough room waits and polls the free space, since each attempt reads the source again.  Two builds would
both begin on room for one, and both fail repeatedly.  Each build therefore reserves its room, and the part of a
reservation not yet used counts as taken.
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

    from gossipkv.dataset.build.job import BuildProgress

# Poll the free space this often while a build waits: a poll is one system call, and room is used soon after it appears.
POLL_MS = 1_000

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# A build that was refused before these steps says too little about its need.
_MIN_STEPS = 0.05
# One attempt raises the estimate by at most this factor: a disk that was full for a moment is no reason to wait for
# terabytes.  After two more attempts even a source compressed to a fiftieth is built.
_MAX_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Shortage:
    """The disk space that a build needs and does not have."""

    needed_bytes: int
    free_bytes: int  # The space that running builds will still take is subtracted.
    reason: str | None = None  # The system's error, if the disk filled up during the build.

    def __str__(self) -> str:
        found = "" if self.reason is None else f" ({self.reason})"
        return f"disk space: about {self.needed_bytes:,} bytes are needed, {self.free_bytes:,} bytes are free{found}"


class NoSpace(LocalError):
    """A build cannot go on for lack of disk space."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(str(shortage), {"needed_bytes": shortage.needed_bytes, "free_bytes": shortage.free_bytes})
        self.shortage = shortage


@dataclass(slots=True, eq=False)
class Reservation:
    """The disk space reserved for one build."""

    needed_bytes: int
    progress: BuildProgress | None = None

    @property
    def outstanding_bytes(self) -> int:
        """Return the bytes still to be taken: half goes to sorted runs while reading, half to files while writing."""
        left_bytes = int(self.needed_bytes * (1 - _steps(self.progress) / 2))
        assert 0 <= left_bytes <= self.needed_bytes, (left_bytes, self)
        return left_bytes


class Reservations:
    """The disk space reserved for all builds of a node."""

    def __init__(self) -> None:
        self._reservations: list[Reservation] = []

    @property
    def outstanding_bytes(self) -> int:
        """Return the bytes that running builds will still take."""
        return sum(reservation.outstanding_bytes for reservation in self._reservations)

    @contextlib.contextmanager
    def reserve(self, needed_bytes: int, free_bytes: int) -> Iterator[Reservation]:
        """Reserve room for one build while it runs; `free_bytes` is the free space of the disk now.

        Raises:
            NoSpace: the free space is too small.
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
    """True if the error says that the disk filled up, or had too little space at the start."""
    return details.get("errno") in _FULL or {"needed_bytes", "free_bytes"} <= details.keys()


def after_refusal(details: Mapping[str, object], reservation: Reservation, free_bytes: int) -> Shortage:
    """Estimate the need of a build that the disk refused; `free_bytes` is the free space after its files were removed.

    The freed space is about what the build had taken, and its progress gives the rest.  Other programs use the disk as
    well, so the estimate stays between the first one and `_MAX_GROWTH` times that.
    """
    error_number = details.get("errno")
    if not isinstance(error_number, int):  # The child looked before it began, and found less than its node had.
        needed = details.get("needed_bytes")
        found = details.get("free_bytes")
        assert isinstance(needed, int)
        assert isinstance(found, int)
        return Shortage(max(needed, reservation.needed_bytes), found, "the free space shrank before the build began")
    estimated = 2 * free_bytes / max(_MIN_STEPS, _steps(reservation.progress))
    needed = min(max(int(estimated), reservation.needed_bytes), _MAX_GROWTH * reservation.needed_bytes)
    return Shortage(needed, free_bytes, os.strerror(error_number))


def _steps(progress: BuildProgress | None) -> float:
    """Return the steps done, from 0 to 2: 1 when everything is read, 2 when everything is written."""
    if progress is None:
        return 0.0
    read = progress.read_bytes / progress.source_bytes if progress.source_bytes else 1.0
    written = progress.written_records / progress.read_records if progress.read_records else 0.0
    return min(1.0, read) + min(1.0, written)
