"""Hybrid logical clocks (Kulkarni 2014): the wall clock's time, but never before a time already seen.

    bits     content
    63..16   milliseconds of the wall clock
    15..0    a count within the millisecond; it overflows into the next millisecond

Invariant: a time is greater than all that this node gave or merged. So a write wins over all that its origin had seen,
however wrong the wall clocks are; if a wall clock goes back, counting continues. The hosts of a partition follow the
fastest of their clocks that was heard lately and is not too far ahead (`ClockSkew.time_ms`). So the later of two
writes that have not seen each other wins. No write is possible near the last time, which only a broken node reports.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

COUNT_BITS = 16
MAX_TIME: Final = (1 << 64) - (1 << 32)  # No time beyond is given: the records of one request must fit.
MAX_MS: Final = 1 << 47  # Largest accepted time of day (the year 6429): sums with it still fit a hybrid time.
LATELY_S: Final = 60.0
MAX_SKEW_S: Final = 60.0  # Default of `max_clock_skew`.
JUDGED_MS: Final = 1000  # A judgement of the own clock holds for so long by that clock, unless it is set back.
SLOW_S: Final = 0.005  # An answer that took so much longer than the last one is a worse measurement.


def next_time(last: int, now_ms: int) -> int:
    """Return a time for a new record, after the last time seen."""
    return max(last + 1, now_ms << COUNT_BITS)


def ms_of(time: int) -> int:
    """Return the milliseconds of a time."""
    return time >> COUNT_BITS


def check_left(left: float) -> None:
    """Raise TimedOut if no time is left for a change, which then must not be applied."""
    if left <= 0:
        raise TimedOut("the deadline of the write passed before this node applied it; nothing was written here")


class _PeerClock(NamedTuple):
    ahead_ms: float  # Relative to the local monotonic clock.
    took_s: float
    at: float


@final
class ClockSkew:
    """The offset of this node's clock from those of other nodes, by their recent answers."""

    def __init__(self, now: Callable[[], float], now_ms: Callable[[], int], most_s: float = MAX_SKEW_S) -> None:
        """Compare with `now`, a monotonic clock, and `now_ms`, the time of day; more than `most_s` is too far."""
        self._now, self._now_ms = now, now_ms
        self.most_ms = most_s * 1000
        self._heard: dict[bytes, _PeerClock] = {}
        self._expiry_ms = 0
        self._judged_ms = inf  # Time of day of the judgement, which holds until that passes or a node answers.
        self._judgement: str | None = None

    def hears(self, node: bytes, time_ms: int, asked: float) -> None:
        """Take a node's time in an answer to a question of time `asked`; much slower answers are ignored at first."""
        before, now = self._heard.get(node), self._now()
        took_s = now - asked
        if before is None or took_s <= before.took_s + SLOW_S or now - before.at > LATELY_S / 2:
            self._heard[node] = _PeerClock(time_ms - (asked + now) * 500, took_s, now)
            self._judged_ms = inf

    def forget(self, node: bytes) -> None:
        """Forget the time of a node whose clock may have changed."""
        self._heard.pop(node, None)
        self._judged_ms = inf

    def deadline(self, node: bytes, left_s: float) -> int:
        """Return the hybrid time of a node's clock by which `left_s` is over for certain.

        The clock of a node not heard lately may be `most_s` ahead.
        """
        heard, now = self._heard.get(node), self._now()
        if heard is None or now - heard.at > LATELY_S:
            latest_ms = self._now_ms() + self.most_ms
        else:
            latest_ms = heard.ahead_ms + (now + heard.took_s / 2) * 1000
        return int(latest_ms + left_s * 1000 + 1) << COUNT_BITS

    def left_s(self, deadline: int) -> float:
        """Return the local seconds until a hybrid time that another node computed (`deadline`)."""
        return (ms_of(deadline) - self._now_ms()) / 1000

    def expiry_ms(self) -> int:
        """Return the time of day by which records expire.

        It goes back only from more than `most_s` ahead of the present clock: a wrong clock hides no records for long.
        """
        now_ms = self._now_ms()
        self._expiry_ms = min(max(self._expiry_ms, now_ms), now_ms + int(self.most_ms))
        return self._expiry_ms

    def expires_from(self, least_ms: int) -> None:
        """Take the time by which reads of an earlier life had let records expire."""
        self._expiry_ms = max(self._expiry_ms, least_ms)

    def past_ms(self, nodes: Iterable[bytes]) -> int:
        """Return a time of day that is past by this clock and those of these nodes, by `most_s`; 0: one is unknown."""
        slowest_ms: float = self._now_ms()
        for node in nodes:
            if (peer := self._heard.get(node)) is None:
                return 0
            slowest_ms = min(slowest_ms, peer.ahead_ms + self._now() * 1000)
        return max(0, int(slowest_ms - self.most_ms))

    def time_ms(self, nodes: Iterable[bytes]) -> int:
        """Return the time of day, by the fastest of these clocks if that is surely ahead, and not too far."""
        now, now_ms, fastest = self._now(), self._now_ms(), 0.0
        offset_ms = now * 1000 - now_ms
        for node in nodes:
            peer = self._heard.get(node)
            if peer is not None and now - peer.at <= LATELY_S:
                ahead_ms = peer.ahead_ms + offset_ms - peer.took_s * 500
                if fastest < ahead_ms <= self.most_ms:
                    fastest = ahead_ms
        return now_ms + int(fastest)

    def refusal(self) -> str | None:
        """The reason why this clock must not time records: it is too far off most others; None: it is fine."""
        now_ms = self._now_ms()
        if not self._judged_ms <= now_ms < self._judged_ms + JUDGED_MS:
            self._judged_ms, self._judgement = now_ms, self._judge(now_ms)
        return self._judgement

    def _judge(self, now_ms: int) -> str | None:
        now = self._now()
        offset_ms = now * 1000 - now_ms
        lately = [peer.ahead_ms + offset_ms for peer in self._heard.values() if now - peer.at <= LATELY_S]
        off = [ahead_ms for ahead_ms in lately if abs(ahead_ms) > self.most_ms]
        if 2 * len(off) <= len(lately):
            return None
        far, all_ = len(off), len(lately)
        if all_ == 1:
            off_s = abs(off[0]) / 1000
            return f"its clock and that of the only other node heard differ by {off_s:.0f} s (max_clock_skew)"
        return f"its clock differs by {-off[0] / 1000:+.0f} s from those of {far} of {all_} nodes (max_clock_skew)"
