"""The time of records: the wall clock's, but never before what was seen (hybrid logical clocks, Kulkarni 2014).

    bits     what
    63..16   milliseconds of the wall clock
    15..0    a count, for what happens within one; its overflow goes on into the next millisecond

Invariant: a time is greater than all that this node has given or merged.  So a write wins over whatever its origin
had seen, however wrong anybody's wall clock is, and if one goes back time goes on counting from where it was.
The hosts of a partition go by the fastest of their clocks, as far as they have heard it lately and it is not too far
ahead (`ClockSkew.ahead_ms`): so of two writes that have not seen each other the later one wins, though clocks are
apart. Near the last time there is, which no clock tells and a broken node may, nothing can be written any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

COUNT_BITS = 16
MAX_TIME: Final = (1 << 64) - (1 << 32)  # Behind it no time is given: what follows in one request must fit.
MAX_MS: Final = 1 << 47  # What is computed from a peer's time of day fits behind it: it is the year 6429.
LATELY_S: Final = 60.0
MAX_SKEW_S: Final = 60.0  # Unless `max_clock_skew` says otherwise.
SLOW_S: Final = 0.005  # An answer that took so much longer than the one before tells less of a clock.


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


class _PeerClock(NamedTuple):
    ahead_ms: float  # Of the clock here that never jumps.
    took_s: float
    at: float


@final
class ClockSkew:
    """How far this node's clock is off those of others, by what they have answered lately."""

    def __init__(self, now: Callable[[], float], now_ms: Callable[[], int], most_s: float = MAX_SKEW_S) -> None:
        """`now`: the clock here that never jumps; `now_ms`: the time of day; `most_s`: more is too far."""
        self._now, self._now_ms = now, now_ms
        self.most_ms = most_s * 1000
        self._heard: dict[bytes, _PeerClock] = {}

    def hears(self, node: bytes, time_ms: int, asked: float) -> None:
        """A node has answered with its time to a question of then; one that took long says less than one of before."""
        before, now = self._heard.get(node), self._now()
        took_s = now - asked
        if before is None or took_s <= before.took_s + SLOW_S or now - before.at > LATELY_S / 2:
            self._heard[node] = _PeerClock(time_ms - (asked + now) * 500, took_s, now)

    def forget(self, node: bytes) -> None:
        """A node's clock is not as it was heard."""
        self._heard.pop(node, None)

    def deadline(self, node: bytes, left_s: float) -> int:
        """The hybrid time of a node's own clock at which so much time is over, at the latest.

        Its clock may be `most_s` ahead of this one where it was not heard lately.
        """
        heard, now = self._heard.get(node), self._now()
        if heard is None or now - heard.at > LATELY_S:
            latest_ms = self._now_ms() + self.most_ms
        else:
            latest_ms = heard.ahead_ms + (now + heard.took_s / 2) * 1000
        return int(latest_ms + left_s * 1000 + 1) << COUNT_BITS

    def left_s(self, deadline: int) -> float:
        """How long it is by the clock here until a hybrid time, which another node has computed (`deadline`)."""
        return (ms_of(deadline) - self._now_ms()) / 1000

    def ahead_ms(self, nodes: Iterable[bytes]) -> int:
        """How far the fastest clock among these nodes is ahead of this one for certain; 0: none is, or it is wrong."""
        ahead = [ahead_ms - took_s * 500 for ahead_ms, took_s in self._lately(nodes)]
        return int(max((one for one in ahead if 0 < one <= self.most_ms), default=0))

    def _lately(self, nodes: Iterable[bytes]) -> list[tuple[float, float]]:
        """How far the clocks of these nodes are ahead of this one, if they were heard lately, and what that took."""
        now, now_ms = self._now(), self._now_ms()
        heard = [self._heard[node] for node in nodes if node in self._heard]
        return [(one.ahead_ms + now * 1000 - now_ms, one.took_s) for one in heard if now - one.at <= LATELY_S]

    def refusal(self) -> str | None:
        """Why nothing is to be given this clock's time: it is too far off most others'; None: it is not."""
        lately = [ahead_ms for ahead_ms, _ in self._lately(self._heard)]
        off = [ahead_ms for ahead_ms in lately if abs(ahead_ms) > self.most_ms]
        if 2 * len(off) <= len(lately):
            return None
        return f"its clock is {-off[0] / 1000:+.0f} s off those of {len(off)} of {len(lately)} nodes (max_clock_skew)"
