"""The time of records: the wall clock's, but never before what was seen (hybrid logical clocks, Kulkarni 2014).

    bits     what
    63..16   milliseconds of the wall clock
    15..0    a count, for what happens within one; its overflow goes on into the next millisecond

Invariant: a time is greater than all that this node has given or merged.  So a write wins over whatever its origin
had seen, however wrong anybody's wall clock is, and if one goes back time goes on counting from where it was.
After the last time there is, which no clock tells and a broken node may, nothing can be written.
"""

from __future__ import annotations

from gossipkv.errors import Unavailable

COUNT_BITS = 16
LAST_TIME = (1 << 64) - 1


class HybridTime:
    """The greatest time that was seen, and the next one."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self, now_ms: int) -> int:
        """A time for a new record, after all that was seen.  Raises Unavailable: there is none."""
        if self.last == LAST_TIME:
            raise Unavailable("a record here has the last time there is: nothing is written after it")
        self.last = max(self.last + 1, now_ms << COUNT_BITS)
        return self.last

    def merge(self, time: int) -> None:
        """A record of this time was taken in."""
        self.last = max(self.last, time)


def ms_of(time: int) -> int:
    """The milliseconds of a time."""
    return time >> COUNT_BITS
