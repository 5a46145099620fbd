"""The time of records: the wall clock's, but never before what was seen (hybrid logical clocks, Kulkarni 2014).

    bits     what
    63..16   milliseconds of the wall clock
    15..0    a count, for what happens within one; its overflow goes on into the next millisecond

Invariant: a time is greater than all that this node has given or merged.  So a write wins over whatever its origin
had seen, however wrong anybody's wall clock is, and if one goes back time goes on counting from where it was.
Near the last time there is, which no clock tells and a broken node may, nothing can be written any more.
"""

from __future__ import annotations

from typing import Final, final

COUNT_BITS = 16
MOST_TIME: Final = (1 << 64) - (1 << 32)  # Behind it no time is given: what follows in one request must fit.
LATELY_S: Final = 60.0


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


@final
class Skew:
    """How far this node's clock is off those of others, of whom it has heard lately."""

    def __init__(self, most_s: float) -> None:
        """`most_s`: more is too far."""
        self.most_ms = most_s * 1000
        self._off_ms: dict[bytes, tuple[int, float]] = {}  # By node: how far it is ahead, and when that was heard.

    def hears(self, node: bytes, ahead_ms: int, now: float) -> None:
        """A node has told its time."""
        self._off_ms[node] = ahead_ms, now

    def refusal(self, now: float) -> str | None:
        """Why nothing is to be given this clock's time: it is too far off most others'; None: it is not."""
        lately = [ahead_ms for ahead_ms, at in self._off_ms.values() if now - at <= LATELY_S]
        off = [ahead_ms for ahead_ms in lately if abs(ahead_ms) > self.most_ms]
        if 2 * len(off) <= len(lately):
            return None
        return f"its clock is {-off[0] / 1000:+.0f} s off those of {len(off)} of {len(lately)} nodes (max_clock_skew)"
