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
    """Cluster and gossip; durations in ms, sizes in bytes."""

    cluster: str = plain(
        "gossipkv", "text", "gossipkv", NAME_FORM, read_name,
        meaning="name of the cluster; a data directory belongs to one cluster",
        why="most machines run one cluster",
    )  # fmt: skip
    node: str | None = plain(
        None, "text", "kept in data", NAME_FORM, read_node_name,
        meaning="name of this node",
        why="random at the first start, so no two nodes have the same name by accident",
    )  # fmt: skip
    join: tuple[Address, ...] = plain(
        (), "addresses", "none", "HOST:PORT, comma-separated", read_addresses,
        meaning="addresses of some nodes of the cluster to join",
        why="without addresses, a node starts its own cluster, or returns to its former one",
    )  # fmt: skip
    profile: str = choice(
        "lan", ("lan", "wan", "local"),
        meaning=(
            "kind of network between the nodes: in lan, wan or local, a node is probed each 1 s, 5 s or 0.5 s; the "
            "same on every node"
        ),
        why="most clusters are in one place",
    )  # fmt: skip
    shard_id: int = count(
        0, 1, 1_000_000, words={"auto": 0},
        meaning=(
            "place of this node in the ring, which decides on its dataset partitions; nodes may share one on "
            "purpose"
        ),
        why="the smallest free number, kept in `data`",
    )  # fmt: skip
    time_to_converge: int = duration(
        "10s", "100ms", "1h",
        meaning="time that a starting node waits for other claims of its `shard_id`",
        why="gossip reaches all nodes in a fraction of this time",
    )  # fmt: skip
    expected_members: int = count(
        0, 1, 65_536, words={"unknown": 0},
        meaning="number of nodes of a new cluster; when all of them are present, none waits for `time_to_converge`",
        why="only the operator knows the number; more nodes may join later",
    )  # fmt: skip
    key_ring: Path | None = plain(
        None, "path", "none", "a file of keys that only the node's user can read", read_path,
        meaning="file of keys that seal (encrypt) gossip; needs the extra `secure`",
        why="without keys, gossip is as open as the node's other ports",
    )  # fmt: skip
    seal: str = choice(
        "require", ("accept", "send", "require"),
        meaning=(
            "use of the keys: accept (send plain, read both), send (send sealed, read both), or require (refuse "
            "plain)"
        ),
        why="accept and send are steps to introduce keys in a running cluster",
    )  # fmt: skip
    insecure_gossip: bool = switch(
        default=False,
        meaning="listen beyond this machine without keys, although any sender can then speak for any node",
        why="only the operator knows that the network has no strangers",
    )  # fmt: skip
    max_members: int = count(
        1024, 2, 65_536,
        meaning="maximum number of members, including dead ones; further nodes are ignored",
        why="`max_tree` has room for so many",
    )  # fmt: skip
    max_entry: int = size(
        "4KiB", "256B", "32KiB",
        meaning="maximum size of one entry that this node publishes by gossip, path and value together",
        why="entries are short statements about partitions",
    )  # fmt: skip
    max_branch: int = size(
        "256KiB", "16KiB", "256KiB",
        meaning="maximum size of all entries that this node publishes by gossip, with 256 bytes of overhead each",
        why="no node may publish more; a lower value leaves room for withdrawn entries",
    )  # fmt: skip
    max_tree: int = size(
        "256MiB", "1MiB", "64GiB",
        meaning="maximum memory for the entries of all nodes: at least 256 KiB for each of `max_members`",
        why="room for 1,024 nodes; a node does not start with less than its members may need",
    )  # fmt: skip
