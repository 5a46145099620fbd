"""How fast loads may go: so many bytes a second on average, at each end of them."""

from __future__ import annotations

from math import inf
from typing import final


@final
class RateLimit:
    """What has gone by now is paid for by waiting before the next."""

    __slots__ = ("_free_at", "rate")

    def __init__(self, rate: float = inf) -> None:
        """`rate`: bytes a second."""
        self.rate = rate
        self._free_at = 0.0

    def took(self, size_bytes: int, now: float) -> None:
        """So much has gone."""
        self._free_at = max(self._free_at, now) + size_bytes / self.rate

    def wait_s(self, now: float) -> float:
        """How long the next is to wait."""
        return max(0.0, self._free_at - now)
