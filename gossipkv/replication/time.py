"""The time of records: the wall clock's, but never before what was seen (hybrid logical clocks, Kulkarni 2014).

    bits     what
    63..16   milliseconds of the wall clock
    15..0    a count, for what happens within one; its overflow goes on into the next millisecond

Invariant: a time is greater than all that this node has given or merged.  So a write wins over whatever its origin
had seen, however wrong anybody's wall clock is, and if one goes back time goes on counting from where it was.
"""

from __future__ import annotations

COUNT_BITS = 16


class HybridTime:
    """The greatest time that was seen, and the next one."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self, now_ms: int) -> int:
        """A time for a new record, after all that was seen."""
        self.last = max(self.last + 1, now_ms << COUNT_BITS)
        return self.last

    def merge(self, time: int) -> None:
        """A record of this time was taken in."""
        self.last = max(self.last, time)


def ms_of(time: int) -> int:
    """The milliseconds of a time."""
    return time >> COUNT_BITS
