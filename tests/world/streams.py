"""Randomness by subject: each subsystem draws from its own stream.

So one more draw in a subsystem changes nothing in the others, and a fault that is switched off leaves the rest of a run
unchanged, as far as cause and effect permit.
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
        """Return the stream of this name; the same object each time."""
        if name not in self._made:
            # A string is seeded by its SHA-512, so the string hashes of this process do not matter.
            self._made[name] = random.Random(f"{self.seed}/{name}")  # The randomness is for replay, not for secrecy.
        return self._made[name]
