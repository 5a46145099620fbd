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
    """The source of versions, and its options."""

    source: str | None = field(
        default=None,
        repr=False,  # The URL may hold a password.
        metadata=described(
            "path", "none", "a directory or an fsspec URL", read_source,
            meaning="source root, which contains DATABASE/VERSION/FILES",
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
    """The handling of versions; durations in ms, sizes in bytes, rates in bytes per second."""

    refresh_period: int = duration(
        "1m", "100ms", "7d", zero="off",
        meaning="time between two scans of the source",
        why="new versions come by the hour or day, and a scan only lists directories",
    )  # fmt: skip
    retire_after: int = duration(
        "10m", "0s", "30d",
        meaning="time from the last request for an old version to its removal",
        why="a reader that pinned a version can finish",
    )  # fmt: skip
    max_parallel_loads: int = count(
        2, 1, 64,
        meaning="versions built at once, each in a child process",
        why="a large database does not delay a small one, and cores stay free for serving",
    )  # fmt: skip
    throttle_loads: int = rate(
        "off", "64KiB/s", "1TiB/s", zero="off",
        meaning="limit of bytes per second that all builds together read from the source",
        why="off: most sources are local, or limit clients themselves",
    )  # fmt: skip
    require_success_file: bool = switch(
        default=False,
        meaning="accept only versions with a file _SUCCESS",
        why="Hadoop and Spark write _SUCCESS last; plain copies do not",
    )  # fmt: skip
    presharded: str = choice(
        "probe", PRESHARDED,
        meaning=(
            "permission to skip files of partitions that this node does not need: found by probing, as "
            "declared, or never"
        ),
        why="a key in a wrong partition is always noticed, and the version is then read in full",
    )  # fmt: skip
    build_memory: int = size(
        "256MiB", "64MiB", "1TiB",
        meaning="maximum memory of the process of one build",
        why="builds of any size fit beside the node on a small machine",
    )  # fmt: skip
    build_lanes: int = count(
        0, 1, 64, words={"auto": 0},
        meaning="maximum number of threads of one build",
        why="auto: one per core, except one core for serving",
    )  # fmt: skip
    build_priority: str = choice(
        "auto", BUILD_PRIORITIES,
        meaning="priority of builds: auto (low while databases are served, rising with age), low, or normal",
        why="reads come first, small builds finish soon, and no version waits for ever on a busy machine",
    )  # fmt: skip
    compression: str = choice(
        "none", ("none", "lz4"),
        meaning="compression of built files",
        why="uncompressed reads touch two cache lines; lz4 pays if data exceeds memory",
    )  # fmt: skip
    residency: str = choice(
        "auto", ("auto", "resident", "paged"),
        meaning="treatment of mapped files as in memory: auto (if they fit), resident (always), or paged (never)",
        why="available memory changes, so the node checks it every few seconds",
    )  # fmt: skip
    scrub_period: int = duration(
        "24h", "1s", "30d", zero="off",
        meaning="time in which every served byte is checked once, in the cache and on the disk",
        why="disks and memory decay silently but rarely, and a day is enough to read everything once",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """The copies of partitions, and the timeouts between nodes; durations in ms."""

    replication: int = count(
        2, 1, 64,
        meaning="copies of each dataset partition, on as many nodes; the same on every node",
        why="the loss or restart of one node causes no failed read",
    )  # fmt: skip
    min_replication: int = count(
        1, 1, 64,
        meaning="live owners of each partition that a version needs before it becomes active",
        why="with more, one slow node delays each new version",
    )  # fmt: skip
    switch_patience: int = duration(
        "0s", "0s", "1h",
        meaning="maximum time that a switch waits until each partition has `replication` live owners",
        why="0: clients get a new version early; until all copies exist, the loss of an owner fails reads",
    )  # fmt: skip
    reassign_after: int = duration(
        "1m", "1s", "1d",
        meaning="time for which a partition has fewer live owners than `min_replication` before other nodes build it",
        why="a restart takes seconds and should cause no copies",
    )  # fmt: skip
    repair_after: int = duration(
        "off", "1s", "30d", zero="off",
        meaning="time for which a partition has fewer live owners than `replication` before another node builds it",
        why="off: a node that is away for long usually comes back, and its data need not be built again elsewhere",
    )  # fmt: skip
    retire_max: int = duration(
        "1h", "1s", "30d",
        meaning="maximum time for which dead members delay the removal of old versions",
        why="longer than a repair under way takes",
    )  # fmt: skip
    proxy_timeout: int = duration(
        "100ms", "10ms", "1m",
        meaning="time in which a forwarded read asks owners; those that are only silent may answer until `timeout_ms`",
        why="shorter than clients wait, longer than a pause of garbage collection",
    )  # fmt: skip
    proxy_stage_timeout: int = duration(
        "auto", "1ms", "1m", zero="auto",
        meaning="silence of an owner after which the next owner is asked as well",
        why="auto: `proxy_timeout` / (`replication` + 1), so that each owner can be asked in time",
    )  # fmt: skip

    @property
    def stage_timeout(self) -> int:
        """The maximum silence of one node, in ms."""
        return self.proxy_stage_timeout or max(1, self.proxy_timeout // (self.replication + 1))
