"""A machine's clocks: one that only goes forward, fast or slow or standing still, and one that people set."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tests.world.scheduler import MS

if TYPE_CHECKING:
    from tests.world.scheduler import Scheduler

_WALL_AT_ZERO_MS = 1_700_000_000_000


@final
class Clocks:
    """What time it is on one machine; `environment.Clock`."""

    __slots__ = ("_asleep_at_us", "_rate_from_us", "_scheduler", "offset_us", "rate", "wall_offset_ms")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_us = 0  # Of the monotonic clock; changed only by a sleep and when the machine is made.
        self.wall_offset_ms = 0
        self.rate = 1.0
        self._rate_from_us = 0
        self._asleep_at_us: int | None = None

    def monotonic_ns(self) -> int:
        return self._local_us(self._scheduler.now_us) * 1000

    def wall_ms(self) -> int:
        return _WALL_AT_ZERO_MS + self.now_ms + self.wall_offset_ms

    @property
    def now_ms(self) -> int:
        """The monotonic clock."""
        if self.rate == 1.0:
            return (self._scheduler.now_us + self.offset_us) // MS
        return self._local_us(self._scheduler.now_us) // MS

    def set_rate(self, rate: float) -> None:
        """Let the monotonic clock run so fast from now on."""
        now_us = self._scheduler.now_us
        self.offset_us = self._local_us(now_us) - now_us
        self.rate = rate
        self._rate_from_us = now_us

    def suspend(self) -> None:
        """The machine sleeps: its monotonic clock will know nothing of the time until `wake`."""
        self._asleep_at_us = self._local_us(self._scheduler.now_us)

    def wake(self) -> None:
        """Let it go on from where it stood."""
        if self._asleep_at_us is not None:
            self.offset_us -= self._local_us(self._scheduler.now_us) - self._asleep_at_us
            self._asleep_at_us = None

    def world_us(self, local_ms: int) -> int:
        """The first microsecond of the world in which the monotonic clock says so."""
        since_us = local_ms * MS - self.offset_us
        if self.rate == 1.0:
            return since_us
        return self._rate_from_us + int((since_us - self._rate_from_us) / self.rate) + 1

    def _local_us(self, at_us: int) -> int:
        if self.rate == 1.0:
            return at_us + self.offset_us
        return at_us + self.offset_us + int((at_us - self._rate_from_us) * (self.rate - 1))
