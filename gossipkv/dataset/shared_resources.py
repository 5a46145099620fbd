"""Resources that the databases of a node share: for keeping versions, looking at the source, and building."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.parent import Build, Loads
    from gossipkv.dataset.cluster.core import DatasetCluster
    from gossipkv.dataset.local.manifest import VersionManifest
    from gossipkv.dataset.local.store import VersionStore
    from gossipkv.dataset.source.listing import SourceRoot
    from gossipkv.dataset.source.look_threads import LookThreads
    from gossipkv.environment.seam import Threads
    from gossipkv.log import Log
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.datasets import DatasetSettings


@dataclass(slots=True)
class BuildCounts:
    """Counts of the builds of a node.

    A build that was begun is done, failed, stopped or under way.  A build was stopped if it ended without an error:
    another version is held, the disk has no room, or other nodes gave these files another identity.
    """

    begun: int = 0
    done: int = 0
    failed: int = 0
    stopped: int = 0
    built_bytes: int = 0  # Size of the sorted files of builds that are done.
    source_bytes: int = 0  # Size of the source files listed for builds that are done.

    def add(self, built: VersionManifest) -> None:
        self.done += 1
        self.built_bytes += built.size_bytes
        self.source_bytes += built.source_bytes

    def to_map(self) -> dict[str, int]:
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
    source: Callable[[str, DatabaseSettings], SourceRoot | None]  # By a database and its settings.
    look_threads: LookThreads
    loads: Loads
    build: Build
    threads: Threads
    requests: Callable[[str, str], int]  # (database, version) -> requests so far that were served from the version.
    may_write: Callable[[], bool]  # While it returns False, nothing is built, switched to or removed.
    is_table: Callable[[str], bool]  # True if a table has the name.
    on_change: Callable[[], None]
    note_ring: Callable[[], None]  # The callback writes down the ids of which the ring consists.
    cluster: DatasetCluster
    builds: BuildCounts
    log: Log
