"""What a store counts, since it was opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(slots=True)
class Counts:
    """Numbers that only rise."""

    batches: int = 0  # Applied.
    records: int = 0  # In them.
    user_bytes: int = 0  # Of them.
    groups: int = 0  # Writes of the log.
    syncs: int = 0
    sync_ns: int = 0  # All of them together, writing included.
    log_bytes: int = 0
    merged_bytes: int = 0  # Written by merges.
    switches: int = 0
    refused: int = 0  # Batches for which there was no room.
    put_off: int = 0  # Works that could not be done when they were tried.

    def count_sync(self, took_ns: int) -> None:
        """Count a group that was written and synced."""
        self.syncs += 1
        self.sync_ns += took_ns
