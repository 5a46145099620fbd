"""The settings of datasets: their source, scans, builds, removal, and number of copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from gossipkv.settings.databases import PRESHARDED, MinimumSettings
from gossipkv.settings.setting import choice, count, described, duration, rate, read_source, size, switch
from gossipkv.settings.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.settings.masking import Option

BUILD_PRIORITIES = ("auto", "low", "normal")


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Source of versions, and its options."""

    source: str | None = field(
        default=None,
        repr=False,  # The URL may hold a password.
        metadata=described(
            "path", "none", "a directory or an fsspec URL", read_source,
            meaning="directory or URL of the versions, as DATABASE/VERSION/FILES",
            why="without a source, a node serves the versions it has built",
        ),
    )  # fmt: skip
    storage_options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    storage: Mapping[str, Mapping[str, Option]] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    databases: Mapping[str, DatabaseSettings] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def stores(self) -> Stores:
        """The stores of all settings, each with its options."""
        places: dict[str, Mapping[str, Option]] = {**self.storage}
        if self.source is not None:
            places[self.source] = dict(self.storage_options)
        for name, database in self.databases.items():
            if database.storage_options is not None:
                places[database.table or f"{self.source}/{name}"] = database.storage_options
        return Stores(places)


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(MinimumSettings, SourceSettings):
    """Versions and builds; durations in ms, sizes in bytes, rates in bytes per second."""

    refresh_period: int = duration(
        "1m", "100ms", "7d", zero="off",
        meaning="time between two looks at the source for new versions",
        why="versions come by the hour or day, and a look only lists directories",
    )  # fmt: skip
    retire_after: int = duration(
        "10m", "0s", "30d",
        meaning="time for which an old version is kept after its last request",
        why="a reader that pinned a version can finish",
    )  # fmt: skip
    max_parallel_loads: int = count(
        2, 1, 64,
        meaning="number of versions that this node builds at once",
        why="a large database does not delay a small one, and cores stay free for requests",
    )  # fmt: skip
    throttle_loads: int = rate(
        "off", "64KiB/s", "1TiB/s", zero="off",
        meaning="limit of bytes per second that all builds together read from the source",
        why="most sources are local, or limit their clients",
    )  # fmt: skip
    require_success_file: bool = switch(
        default=False,
        meaning="accept only versions with a file _SUCCESS",
        why="Hadoop and Spark write _SUCCESS last; plain copies do not",
    )  # fmt: skip
    presharded: str = choice(
        "probe", PRESHARDED,
        meaning="skip source files of partitions that this node does not need: found by probing, as declared, or never",
        why="a key in a wrong partition is always noticed, and the version is then read in full",
    )  # fmt: skip
    build_memory: int = size(
        "256MiB", "64MiB", "1TiB",
        meaning="maximum memory of one build",
        why="a build of any size fits on a small machine together with the node",
    )  # fmt: skip
    build_lanes: int = count(
        0, 1, 64, words={"auto": 0},
        meaning="maximum number of threads of one build",
        why="one per core, except one core for requests",
    )  # fmt: skip
    build_priority: str = choice(
        "auto", BUILD_PRIORITIES,
        meaning="priority of builds: auto (low while databases are served, rising with age), low, or normal",
        why="reads come first, and no version waits for ever on a busy machine",
    )  # fmt: skip
    compression: str = choice(
        "none", ("none", "lz4"),
        meaning="compression of built files",
        why="reads are fastest; lz4 pays if data exceeds memory",
    )  # fmt: skip
    residency: str = choice(
        "auto", ("auto", "resident", "paged"),
        meaning="treat built files as in memory: auto (if they fit), resident (always), or paged (never)",
        why="the node checks the available memory every few seconds",
    )  # fmt: skip
    scrub_period: int = duration(
        "24h", "1s", "30d", zero="off",
        meaning="time in which every served byte is checked once, in memory and on the disk",
        why="disks and memory decay silently, but rarely",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Copies of datasets, and the timeouts between nodes; durations in ms."""

    replication: int = count(
        2, 1, 64,
        meaning="copies of each dataset partition, on as many nodes; the same on every node",
        why="no read fails if one node is lost or restarts",
    )  # fmt: skip
    min_replication: int = count(
        1, 1, 64,
        meaning="live copies of each partition that a new version needs to become active",
        why="with more, one slow node delays each new version",
    )  # fmt: skip
    switch_patience: int = duration(
        "0s", "0s", "1h",
        meaning="time that a new version waits for `replication` live copies of each partition before fewer suffice",
        why="clients get a new version early; until all copies exist, the loss of a node fails reads",
    )  # fmt: skip
    reassign_after: int = duration(
        "1m", "1s", "1d",
        meaning="time after which other nodes build a partition with fewer live copies than `min_replication`",
        why="a restart takes seconds and should cause no copies",
    )  # fmt: skip
    repair_after: int = duration(
        "off", "1s", "30d", zero="off",
        meaning="time after which another node builds a partition with fewer live copies than `replication`",
        why="a node that is away for long usually comes back with its data",
    )  # fmt: skip
    retire_max: int = duration(
        "1h", "1s", "30d",
        meaning="maximum time for which dead nodes delay the removal of old versions",
        why="longer than a repair takes",
    )  # fmt: skip
    proxy_timeout: int = duration(
        "100ms", "10ms", "1m",
        meaning="time in which a node asks others for a read; those that are only silent may answer until `timeout_ms`",
        why="shorter than clients wait, longer than a pause of garbage collection",
    )  # fmt: skip
    proxy_stage_timeout: int = duration(
        "auto", "1ms", "1m", zero="auto",
        meaning="silence of a node after which the next one is asked as well",
        why="`proxy_timeout` / (`replication` + 1), so each node can be asked in time",
    )  # fmt: skip

    @property
    def stage_timeout(self) -> int:
        """The maximum silence of one node, in ms."""
        return self.proxy_stage_timeout or max(1, self.proxy_timeout // (self.replication + 1))
