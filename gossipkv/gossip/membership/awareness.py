"""Local health (Lifeguard): how much this node has reason to doubt itself.

Probes that fail although nobody confirms it, helpers that do not even answer that they failed, being suspected oneself:
each says that the slow one may be me.  Then my probes wait longer before they accuse.
"""

from __future__ import annotations

from typing import final


@final
class Awareness:
    """A score from 0, healthy, to `most - 1`."""

    __slots__ = ("_last", "score")

    def __init__(self, most: int) -> None:
        self._last = most - 1
        self.score = 0

    def worse(self, by: int) -> None:
        """Something speaks against me."""
        self.score = min(self._last, self.score + by)

    def better(self) -> None:
        """A probe was answered."""
        if self.score:
            self.score -= 1

    def stretched(self, time_ms: int) -> int:
        """A time, longer the less healthy this node is."""
        return time_ms * (self.score + 1)
