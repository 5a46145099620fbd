"""Deadlines in plain Python: a list that is looked through each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass
class Deadlines:
    """Names and when they are due."""

    due: dict[int, float] = field(default_factory=dict)

    def next(self) -> float:
        return min(self.due.values(), default=inf)

    def expired(self, now: float) -> list[float]:
        """The times that have come, in order; they leave."""
        gone = {name for name, at in self.due.items() if at <= now}
        return sorted(self.due.pop(name) for name in gone)
