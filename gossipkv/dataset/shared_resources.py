"""What the databases of a node share: where they keep their versions, what they look with, what they are built with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.parent import Build, Loads
    from gossipkv.dataset.cluster.core import Cluster
    from gossipkv.dataset.local.manifest import Manifest
    from gossipkv.dataset.local.store import VersionStore
    from gossipkv.dataset.source.listing import Source
    from gossipkv.dataset.source.look_threads import LookThreads
    from gossipkv.environment.seam import Threads
    from gossipkv.log import Log
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.datasets import DatasetSettings


@dataclass(slots=True)
class BuildCounts:
    """All of them.

    A build that was begun is done, has failed or was stopped; else it is under way.  What came to nothing through
    nobody's fault was stopped: another version is held, the disk has no room, others have made something else of the
    same files.
    """

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


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The resources that the library hands to each of its databases."""

    settings: DatasetSettings
    store: VersionStore
    source: Callable[[DatabaseSettings], Source | None]
    look_threads: LookThreads
    loads: Loads
    build: Build
    threads: Threads
    requests: Callable[[str, str], int]  # (database, version) -> requests so far that it was served for
    may_write: Callable[[], bool]  # Else nothing is built, switched to or removed.
    is_table: Callable[[str], bool]  # Whether a table has a name.
    on_change: Callable[[], None]
    note_ring: Callable[[], None]  # Have it written down whose ids the ring is made of.
    cluster: Cluster
    builds: BuildCounts
    log: Log
