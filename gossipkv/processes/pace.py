"""A rate limit, in bytes a second on average."""

from __future__ import annotations

from math import inf
from typing import final


@final
class RateLimit:
    """A limit on the average rate: each transfer delays the next by its cost."""

    __slots__ = ("_free_at", "rate")

    def __init__(self, rate: float = inf) -> None:
        """Limit to `rate` bytes a second; 0: unlimited."""
        self.rate = rate
        self._free_at = 0.0

    def took(self, size_bytes: int, now: float) -> None:
        """Count a transfer."""
        if self.rate:
            self._free_at = max(self._free_at, now) + size_bytes / self.rate

    def wait_s(self, now: float) -> float:
        """The seconds for which the next transfer must wait."""
        return max(0.0, self._free_at - now) if self.rate else 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Count a transfer that begins after the returned wait, in seconds."""
        wait_s = self.wait_s(now)
        self.took(size_bytes, now)
        return wait_s
