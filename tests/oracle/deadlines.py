"""Deadlines in plain Python: a dict that is searched each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass
class Deadlines:
    due: dict[int, float] = field(default_factory=dict)

    def next(self) -> float:
        return min(self.due.values(), default=inf)

    def expired(self, now: float) -> list[float]:
        """Remove and return the due times, in order."""
        gone = {name for name, at in self.due.items() if at <= now}
        return sorted(self.due.pop(name) for name in gone)
