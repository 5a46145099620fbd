"""The settings of datasets: their source, scans, builds, removal, and number of copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from gossipkv.settings.databases import PRESHARDED, MinimumSettings
from gossipkv.settings.setting import choice, count, described, duration, rate, read_source, size, switch

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
            meaning="source root; below it DATABASE/VERSION/FILES",
            why="without one a node serves what it has already built",
        ),
    )  # fmt: skip
    storage_options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(MinimumSettings, SourceSettings):
    """The handling of versions; durations in ms, sizes in bytes, rates in bytes per second."""

    refresh_period: int = duration(
        "1m", "100ms", "7d", zero="off",
        meaning="time between two scans of the source",
        why="new versions come by the hour or day; a scan lists directories only",
    )  # fmt: skip
    retire_after: int = duration(
        "10m", "0s", "30d",
        meaning="time since the last request for an old version until it is removed",
        why="long enough for a reader that pinned a version to finish its work",
    )  # fmt: skip
    max_parallel_loads: int = count(
        2, 1, 64,
        meaning="versions built at once, each in a child process",
        why="one large database does not hold up a small one, and cores are left for serving",
    )  # fmt: skip
    throttle_loads: int = rate(
        "off", "64KiB/s", "1TiB/s", zero="off",
        meaning="bytes read per second from the source, for all builds together",
        why="off: most sources are local or can defend themselves",
    )  # fmt: skip
    require_success_file: bool = switch(
        default=False,
        meaning="take only versions that hold a file named _SUCCESS",
        why="Hadoop and Spark write it last; a plain copy does not",
    )  # fmt: skip
    presharded: str = choice(
        "probe", PRESHARDED,
        meaning="whether files of partitions that are not wanted here may be skipped: found out, as declared, never",
        why="a key that contradicts is noticed whenever it is met, and the version is then read in full",
    )  # fmt: skip
    build_memory: int = size(
        "256MiB", "64MiB", "1TiB",
        meaning="most memory that the process of one build uses",
        why="a build of any size fits beside the node on a small machine",
    )  # fmt: skip
    build_lanes: int = count(
        0, 1, 64, words={"auto": 0},
        meaning="most threads that share the work of one build",
        why="auto: one for each core but one, which is left for serving",
    )  # fmt: skip
    build_priority: str = choice(
        "auto", BUILD_PRIORITIES,
        meaning="whether builds give way to all else: once something is served and they had their part, always, never",
        why="reads come first, yet a small build is soon done, and no version waits for ever beside busy neighbours",
    )  # fmt: skip
    compression: str = choice(
        "none", ("none", "lz4"),
        meaning="how records are kept in built files",
        why="uncompressed reads touch two cache lines; lz4 pays when data is larger than memory",
    )  # fmt: skip
    residency: str = choice(
        "auto", ("auto", "resident", "paged"),
        meaning="whether mapped files are read as if all of them were in memory: as far as they fit, always, never",
        why="how much memory there is changes while a node runs; it looks every few seconds",
    )  # fmt: skip
    scrub_period: int = duration(
        "24h", "1s", "30d", zero="off",
        meaning="time in which every byte that is served is checked again, in the cache and on the disk",
        why="disks and memory rot in silence; a day is short beside how seldom, and long for reading everything once",
    )  # fmt: skip
    databases: Mapping[str, DatabaseSettings] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """The copies of partitions, and the timeouts between nodes; durations in ms."""

    replication: int = count(
        2, 1, 64,
        meaning="copies of each dataset partition, on as many nodes; the same on every node",
        why="one node may be lost, or restarted, without a failed read",
    )  # fmt: skip
    min_replication: int = count(
        1, 1, 64,
        meaning="live nodes that must hold each partition of a version before clients are switched to it",
        why="waiting for more holds a new version back whenever one node is slow",
    )  # fmt: skip
    switch_patience: int = duration(
        "0s", "0s", "1h",
        meaning="how long at most a switch waits until each partition is on `replication` live nodes",
        why="0: clients get what is new as soon as one owner has each partition; the loss of one then is a failed read",
    )  # fmt: skip
    reassign_after: int = duration(
        "1m", "1s", "1d",
        meaning="time that a partition is on fewer live nodes than `min_replication` until others build it",
        why="a restart takes seconds, and no copy is made for that",
    )  # fmt: skip
    retire_max: int = duration(
        "1h", "1s", "30d",
        meaning="how long the dead keep others from letting old versions go; who is alone for longer goes on alone",
        why="longer than a repair takes that somebody is at work on",
    )  # fmt: skip
    proxy_timeout: int = duration(
        "100ms", "10ms", "1m",
        meaning="time for a read of a partition that is on other nodes, all of them tried",
        why="below what clients wait, above what a pause for garbage collection takes",
    )  # fmt: skip
    proxy_stage_timeout: int = duration(
        "auto", "1ms", "1m", zero="auto",
        meaning="silence of one node after which the next one is asked as well",
        why="auto: `proxy_timeout` / (`replication` + 1), so that each copy has its turn in time",
    )  # fmt: skip

    @property
    def stage_timeout(self) -> int:
        """The maximum silence of one node, in ms."""
        return self.proxy_stage_timeout or max(1, self.proxy_timeout // (self.replication + 1))
