"""Randomness by subject: each subsystem draws from a stream of its own.

So a draw more in one of them changes nothing in the others, and a fault that is switched off leaves the rest of a run
as it was, as far as cause and effect let it.
"""

from __future__ import annotations

import random
from typing import final


@final
class Streams:
    """All randomness of a world, from one number."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, random.Random] = {}

    def __getitem__(self, name: str) -> random.Random:
        """The stream of this name; the same object each time."""
        if name not in self._made:
            # A string is seeded by its SHA-512, so it does not matter how strings are hashed in this process.
            self._made[name] = random.Random(f"{self.seed}/{name}")  # To be replayed, not to be secret.
        return self._made[name]
