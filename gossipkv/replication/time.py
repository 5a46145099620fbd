"""The time of records: the wall clock's, but never before what was seen (hybrid logical clocks, Kulkarni 2014).

    bits     what
    63..16   milliseconds of the wall clock
    15..0    a count, for what happens within one; its overflow goes on into the next millisecond

Invariant: a time is greater than all that this node has given or merged.  So a write wins over whatever its origin
had seen, however wrong anybody's wall clock is, and if one goes back time goes on counting from where it was.
Near the last time there is, which no clock tells and a broken node may, nothing can be written any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from gossipkv.errors import TimedOut

COUNT_BITS = 16
MOST_TIME: Final = (1 << 64) - (1 << 32)  # Behind it no time is given: what follows in one request must fit.
LATELY_S: Final = 60.0
SLOW_S: Final = 0.1  # An answer that took so much longer than the one before tells less of a clock.


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


def check_left(left: float) -> None:
    """Raise TimedOut: no time is left for a change, which is to stay undone."""
    if left <= 0:
        raise TimedOut("the time for the change was over when it was to be applied: nothing was changed here")


class _Heard(NamedTuple):
    ahead_ms: float  # Of the clock here that never jumps.
    took_s: float
    at: float


@final
class Skew:
    """How far this node's clock is off those of others, by what they have answered lately."""

    def __init__(self, most_s: float) -> None:
        """`most_s`: more is too far."""
        self.most_ms = most_s * 1000
        self._heard: dict[bytes, _Heard] = {}

    def hears(self, node: bytes, time_ms: int, asked: float, now: float) -> None:
        """A node has answered with its time to a question of then; one that took long says less than one of before."""
        before, took_s = self._heard.get(node), now - asked
        if before is None or took_s <= before.took_s + SLOW_S or now - before.at > LATELY_S / 2:
            self._heard[node] = _Heard(time_ms - (asked + now) * 500, took_s, now)

    def forget(self, node: bytes) -> None:
        """A node's clock is not as it was heard."""
        self._heard.pop(node, None)

    def deadline(self, node: bytes, left_s: float, now: float, now_ms: int) -> int:
        """The hybrid time of a node's own clock at which so much time is over, at the latest.

        Its clock may be `most_s` ahead of this one where it was not heard lately.
        """
        heard = self._heard.get(node)
        if heard is None or now - heard.at > LATELY_S:
            latest_ms = now_ms + self.most_ms
        else:
            latest_ms = heard.ahead_ms + (now + heard.took_s / 2) * 1000
        return int(latest_ms + left_s * 1000 + 1) << COUNT_BITS

    def refusal(self, now: float, now_ms: int) -> str | None:
        """Why nothing is to be given this clock's time: it is too far off most others'; None: it is not."""
        heard = [one for one in self._heard.values() if now - one.at <= LATELY_S]
        lately = [one.ahead_ms + now * 1000 - now_ms for one in heard]
        off = [ahead_ms for ahead_ms in lately if abs(ahead_ms) > self.most_ms]
        if 2 * len(off) <= len(lately):
            return None
        return f"its clock is {-off[0] / 1000:+.0f} s off those of {len(off)} of {len(lately)} nodes (max_clock_skew)"
