"""Which of the mapped files are resident?  A pure decision, for the node as a whole.

A *resident* file is read as if all of it were in memory; a *paged* one is asked for each page.  Files that are
compressed are always paged, and count for nothing here.  Of the others there are three levels, of which the highest
that fits into the room for mapped files is taken:

    ALL     all versions that are open
    ACTIVE  the active versions of all databases; others, which retire or wait for their turn, are paged
    NONE    no version

The middle one is for the switch of a database that fills more than half of the room: two versions of it are open for a
while, and what everybody reads is to be touched least then.

What fits no more is paged at once.  It is resident again when it takes `COMFORTABLE` of the room or less, and has at
every look for a while.  That while is drawn, and twice as long with each fall: two nodes of one machine, each of which
finds room when the other has let go, would else fall and rise together for ever, and read all from the disk each time.

Rejected: a level for each file (of many half are read at random from the disk, and nobody could say why); to page what
is not active always (its readers would wait for a disk at each switch of a node that has memory for both).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    import random

COMFORTABLE: Final = 0.8

# How long a higher level must have been comfortable: a few looks at first.  In ten minutes the cache of a large machine
# is filled from its disk.
FIRST_PATIENCE_MS: Final = 5_000
LONGEST_PATIENCE_MS: Final = 600_000


class Level(IntEnum):
    """How much of what is open is resident."""

    NONE = 0
    ACTIVE = 1
    ALL = 2


class Mapped(NamedTuple):
    """What the files that are open take, in bytes."""

    active: int  # Of the active versions, without what is compressed.
    all: int  # Likewise, of all versions.
    compressed: int

    def of(self, level: Level) -> int:
        """What is resident at a level."""
        return (0, self.active, self.all)[level]


@final
class Residency:
    """The level of a node, over time."""

    def __init__(self, setting: str, chance: random.Random) -> None:
        """`setting`: "auto", or "resident" or "paged" for ever."""
        self.level = Level.NONE if setting == "paged" else Level.ALL
        self._is_fixed = setting != "auto"
        self._chance = chance
        self._patience_ms = FIRST_PATIENCE_MS
        self._wait_ms = 0  # Drawn from it at the last fall.
        # The highest level that was comfortable at every look since then.
        self._rising_to, self._since_ms = self.level, 0

    def decide(self, mapped: Mapped, room_bytes: int | None, *, now_ms: int) -> bool:
        """Decide the level anew, and whether it is another one; `room_bytes` None: it is not known, and all fits."""
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
    """The highest level that takes no more than that."""
    return max(level for level in Level if level is Level.NONE or room_bytes is None or mapped.of(level) <= room_bytes)
