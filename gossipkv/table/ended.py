"""Whether a table that a session has seen is no more: nothing of it needs to be waited for, or carried on.

A table that the catalogue does not name here may be a new one.  It has ended if a quorum, read after its id was met,
does not name it either: a table is named before it holds a record, and an id is never given twice.
"""

from __future__ import annotations

from typing import Final, final

MOST_MET: Final = 1024  # Anybody may make up ids; of those that were let go of it is not known for a while.


@final
class Ended:
    """Ids that were met and that the catalogue here does not name, against reads of it by a quorum."""

    def __init__(self) -> None:
        self._begun, self._done = 0, 0  # The last read that was begun, and the last that came to its end.
        self._met: dict[bytes, int] = {}  # By id: the last read that was begun before.

    def begin_read(self) -> None:
        """The catalogue is about to be read by a quorum; one read at a time."""
        self._begun += 1

    def end_read(self) -> None:
        """It was read, and what is known here is at least as new."""
        self._done = self._begun

    def has(self, table: bytes) -> bool:
        """Whether a table has ended that the catalogue here does not name now."""
        met = self._met.setdefault(table, self._begun)
        if len(self._met) > MOST_MET:
            del self._met[next(iter(self._met))]
        return self._done > met
