"""A rate limit for reads, in bytes a second."""

from __future__ import annotations

from typing import final


@final
class RunPace:
    """Returns delays that keep reads within a rate; a burst is one chunk."""

    def __init__(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Return the seconds to wait before `size_bytes` are used."""
        if self.bytes_per_second <= 0:
            self._free_at = now
            return 0.0
        wait = max(0.0, self._free_at - now)
        self._free_at = now + wait + size_bytes / self.bytes_per_second
        return wait
