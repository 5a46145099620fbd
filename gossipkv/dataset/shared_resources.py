"""What the databases of a node share: where they keep their versions, what they look with, what they are built with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.parent import Build, Loads
    from gossipkv.dataset.build_counts import BuildCounts
    from gossipkv.dataset.cluster.core import Cluster
    from gossipkv.dataset.local.store import VersionStore
    from gossipkv.dataset.source.listing import Source
    from gossipkv.dataset.source.look_threads import LookThreads
    from gossipkv.environment.seam import Threads
    from gossipkv.log import Log
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.datasets import DatasetSettings


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
