"""How many builds a node has begun, and what became of them: counted since its start, over all databases.

A build that was begun is done, has failed or was stopped; else it is under way.  What came to nothing through nobody's
fault was stopped: another version is held, the disk has no room, others have made something else of the same files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.dataset.local.manifest import Manifest


@dataclass(slots=True)
class BuildCounts:
    """All of them."""

    begun: int = 0
    done: int = 0
    failed: int = 0
    stopped: int = 0
    built_bytes: int = 0  # Of the sorted files of those that are done,
    source_bytes: int = 0  # and of the files that the source lists for them.

    def add(self, built: Manifest) -> None:
        """Count one that is done."""
        self.done += 1
        self.built_bytes += built.size_bytes
        self.source_bytes += built.source_bytes

    def to_map(self) -> dict[str, int]:
        """Return them by the names of the counters."""
        return {
            "builds_begun": self.begun,
            "builds_done": self.done,
            "builds_failed": self.failed,
            "builds_stopped": self.stopped,
            "built_bytes": self.built_bytes,
            "built_source_bytes": self.source_bytes,
        }
