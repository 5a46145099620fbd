"""The settings of datasets that nodes share: how many hold a partition, and how long one waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from gossipkv.settings.setting import count, duration


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Who holds what, and for how long one waits for another; durations in ms."""

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
        """How long one node may be silent, in ms."""
        return self.proxy_stage_timeout or max(1, self.proxy_timeout // (self.replication + 1))
