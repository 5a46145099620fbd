"""The settings of a node in the cluster: its name, the nodes it joins, its place in the ring, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.settings.setting import (
    NAME_FORM,
    choice,
    count,
    duration,
    plain,
    read_addresses,
    read_name,
    read_node_name,
    read_path,
    size,
    switch,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.address import Address


@dataclass(frozen=True, kw_only=True)
class GossipSettings:
    """The identity of a node in its cluster; durations in ms, sizes in bytes."""

    cluster: str = plain(
        "gossipkv", "text", "gossipkv", NAME_FORM, read_name,
        meaning="name of the cluster; a data directory belongs to one cluster",
        why="one cluster is what most machines run",
    )  # fmt: skip
    node: str | None = plain(
        None, "text", "kept in data", NAME_FORM, read_node_name,
        meaning="this node's name",
        why="drawn at the first start, so that two nodes never share one by accident",
    )  # fmt: skip
    join: tuple[Address, ...] = plain(
        (), "addresses", "none", "HOST:PORT, several with commas between", read_addresses,
        meaning="addresses or names of some members of the cluster",
        why="without any a node begins a cluster of its own, or goes back to the one it knows",
    )  # fmt: skip
    profile: str = choice(
        "lan", ("lan", "wan", "local"),
        meaning="constants of gossip by the network between the nodes: probe interval 1 s, 5 s or 0.5 s",
        why="most clusters stand in one place; the same on every node",
    )  # fmt: skip
    shard_id: int = count(
        0, 1, 1_000_000, words={"auto": 0},
        meaning="this node's place in the ring; nodes may share one on purpose",
        why="auto: the smallest free number, kept in data",
    )  # fmt: skip
    time_to_converge: int = duration(
        "10s", "100ms", "1h",
        meaning="how long a claim of a shard id must stand until it counts",
        why="many times what a change takes to every node",
    )  # fmt: skip
    expected_members: int = count(
        0, 1, 65_536, words={"unknown": 0},
        meaning="how many nodes a new cluster has: when so many are there, nothing waits for `time_to_converge`",
        why="only whoever starts them knows; too few, and those that come later are waited for as any newcomer is",
    )  # fmt: skip
    key_ring: Path | None = plain(
        None, "path", "none", "a file of keys that this user alone can read", read_path,
        meaning="keys that seal gossip; needs the extra `secure`",
        why="without one gossip is as open as everything else a node says",
    )  # fmt: skip
    seal: str = choice(
        "require", ("accept", "send", "require"),
        meaning="with keys: read sealed gossip too and send plain; send sealed too; take nothing that is plain",
        why="keys are for this; the other two are steps on the way there in a running cluster",
    )  # fmt: skip
    insecure_gossip: bool = switch(
        default=False,
        meaning="listen beyond this machine without keys: who can send a datagram there can speak for any node",
        why="only whoever built the network knows that no stranger is on it",
    )  # fmt: skip
    max_members: int = count(
        1024, 2, 65_536,
        meaning="members remembered, the dead among them; further ones are not taken in",
        why="as many branches of 256 KiB as `max_tree` has room for",
    )  # fmt: skip
    max_entry: int = size(
        "4KiB", "256B", "32KiB",
        meaning="longest key that this node publishes in the tree, path and value together",
        why="values say who has what; what is long belongs elsewhere",
    )  # fmt: skip
    max_branch: int = size(
        "256KiB", "16KiB", "256KiB",
        meaning="all keys that this node publishes in the tree, at 256 bytes each beside path and value",
        why="no branch may take more; less leaves room for what was withdrawn, which others then fetch in pieces",
    )  # fmt: skip
    max_tree: int = size(
        "256MiB", "1MiB", "64GiB",
        meaning="what the tree may take in memory: at least 256 KiB for each of `max_members`",
        why="room for 1,024 nodes; a node that promises less than its members may need does not start",
    )  # fmt: skip
