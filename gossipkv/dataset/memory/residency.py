"""Residency of the mapped files: a pure decision, for the node as a whole.

*Resident* files are read as if in memory; *paged* ones ask for each page.  Compressed files are always paged and not
counted.  The highest level that fits into the room for mapped files is taken: ALL open versions, the ACTIVE version of
each database (others are paged), or NONE.  ACTIVE serves the switch of a database that fills more than half of the
room.

A level that no longer fits falls at once.  A higher level returns after it would have taken `COMFORTABLE` of the room
or less at every look for a while.  This wait is random and doubles with each fall: otherwise two nodes on one machine
could rise and fall together for ever, reading the disk each time.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    import random

COMFORTABLE: Final = 0.8

# The wait for a higher level: a few looks at first.  In ten minutes a large machine fills its cache from its disk.
FIRST_PATIENCE_MS: Final = 5_000
LONGEST_PATIENCE_MS: Final = 600_000


class Level(IntEnum):
    """How much of the open versions is resident."""

    NONE = 0
    ACTIVE = 1
    ALL = 2


class Mapped(NamedTuple):
    """The sizes of open files, in bytes."""

    active: int  # The size of the active versions, without compressed files.
    all: int  # The size of all versions, without compressed files.
    compressed: int

    def of(self, level: Level) -> int:
        return (0, self.active, self.all)[level]


@final
class Residency:
    """The level of a node, over time."""

    def __init__(self, setting: str, chance: random.Random) -> None:
        """Create it; `setting` is "auto", or "resident" or "paged" for a fixed level."""
        self.level = Level.NONE if setting == "paged" else Level.ALL
        self._is_fixed = setting != "auto"
        self._chance = chance
        self._patience_ms = FIRST_PATIENCE_MS
        self._wait_ms = 0  # The wait is drawn from the patience at the last fall.
        # The highest level that was comfortable at every look since `_since_ms`.
        self._rising_to, self._since_ms = self.level, 0

    def decide(self, mapped: Mapped, room_bytes: int | None, *, now_ms: int) -> bool:
        """Decide the level anew; True if it changed.  `room_bytes` None: unknown, and all fits."""
        before = self.level
        if self._is_fixed:
            return False
        fitting = _highest(mapped, room_bytes)
        comfortable = _highest(mapped, None if room_bytes is None else int(room_bytes * COMFORTABLE))
        if fitting < self.level:
            self.level = fitting
            self._patience_ms = min(2 * self._patience_ms, LONGEST_PATIENCE_MS)
            self._wait_ms = self._chance.randint(self._patience_ms, 2 * self._patience_ms)
        self._rising_to = min(self._rising_to, comfortable)
        if self._rising_to <= self.level:
            self._rising_to, self._since_ms = comfortable, now_ms
        elif now_ms - self._since_ms >= self._wait_ms:
            self.level = self._rising_to
        return self.level != before


def _highest(mapped: Mapped, room_bytes: int | None) -> Level:
    """Return the highest level that fits into the room."""
    return max(level for level in Level if level is Level.NONE or room_bytes is None or mapped.of(level) <= room_bytes)
