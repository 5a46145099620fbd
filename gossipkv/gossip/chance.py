"""What a core asks of chance; a shell gives it one of the `random` module, seeded in tests."""

from __future__ import annotations

from typing import Protocol


class Random(Protocol):
    """A `random.Random`."""

    def random(self) -> float:
        """From 0 up to, and not including, 1."""
