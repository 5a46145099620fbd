"""The settings of tables: their store's log, memory and disk use, and the nodes that decide on tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gossipkv.settings.setting import choice, copies, count, duration, plain, rate, read_isolation_group, size

MAX_WEIGHT: Final = 1000  # Relative to the minimum.
MAX_KEY_BYTES: Final = 65_522  # Limit of a record; `table.records.endpoints` explains it and the next limit.
MAX_VALUE_BYTES: Final = 16_711_616
MAX_TTL_MS: Final = 1 << 42  # 139 years.
MIN_EXPIRES_MS: Final = 10**12  # The year 2001: lower expiries are most likely seconds.
MAX_EXPIRES_MS: Final = (1 << 48) - 1  # A hybrid time has 48 bits of milliseconds.
DECISION_MS: Final = 10_000  # Default timeout of a METADATA transaction or a comparison of replicas.
CREATION_MS: Final = 30_000  # Default timeout of the creation of a table, which waits for nodes that start or restart.
MAX_DECISION_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Tables; sizes in bytes, durations in ms."""

    table_log: int = size(
        "1GiB", "1MiB", "1TiB",
        meaning="size of the log of table writes, which is kept for lagging replicas and change feeds",
        why="minutes of heavy writes: a replica that was down for less time gets only the missing records",
    )  # fmt: skip
    table_segment: int = size(
        "64MiB", "1MiB", "1GiB",
        meaning="size of one part of the log of table writes; unmerged records take up to three times this in memory",
        why="merges stay few, and a restart reads a part back in a second",
    )  # fmt: skip
    table_merge_memory: int = size(
        "192MiB", "48MiB", "16GiB",
        meaning="maximum memory of the process that merges table writes",
        why="one part of the log is sorted in memory; with less, a merge writes its input twice",
    )  # fmt: skip
    relay_after: int = duration(
        "200ms", "10ms", "1m",
        meaning="time for which a replica lacks a write before other nodes than the sender pass it on",
        why="longer than a slow disk takes, and short compared with the timeout of a write",
    )  # fmt: skip
    max_clock_skew: int = duration(
        "1m", "1s", "1d",
        meaning="maximum difference of the node's clock from most others; beyond, the node accepts no writes",
        why="synchronised clocks differ by milliseconds, and writes with a wrong clock would win for too long",
    )  # fmt: skip
    move_stall: int = duration(
        "1m", "1s", "1d",
        meaning="time without progress after which a move or a bulk load gives up on a node",
        why="a restart takes less time, and a stuck node must not stop moves for ever",
    )  # fmt: skip
    max_moves: int = count(
        64, 1, 1024,
        meaning="maximum number of a table's partitions that move at once at each node; the same on every node",
        why="all of them take each step in one decision; bulk loads have their own limits",
    )  # fmt: skip
    table_transfer: int = rate(
        "64MiB/s", "64KiB/s", "1TiB/s",
        meaning="limit of bytes per second for bulk loads to this node, and again for bulk loads from it",
        why="half of a network of 1 Gbit/s; the other half is for clients",
    )  # fmt: skip
    split_bytes: int = size(
        "512MiB", "64KiB", "1TiB", zero="off",
        meaning="size at which a range is split; the same on every node",
        why="such a range moves in ten seconds by `table_transfer`",
    )  # fmt: skip
    split_rows: int = count(
        2_000_000, 100, 1_000_000_000, words={"off": 0},
        meaning="number of records at which a range is split; the same on every node",
        why="short records are many before they are large",
    )  # fmt: skip
    planner: str = choice(
        "on", ("on", "off"),
        meaning="move ranges by size and load, and split busy ranges; the same on every node",
        why="a few changes at a time; off: operators plan, and `node` commands still move partitions",
    )  # fmt: skip
    smear: str = choice(
        "on", ("on", "off"),
        meaning="accept puts to time series at this node, and forward them within two minutes",
        why="otherwise, all writes of a time series go to the few nodes of one range at a time",
    )  # fmt: skip
    max_token: int = size(
        "64KiB", "4KiB", "64KiB",
        meaning="maximum size of a session token; requests with larger tokens are refused as TOO_LARGE",
        why="tokens grow only while replicas are down: room for 4,000 entries",
    )  # fmt: skip
    max_feeds: int = count(
        2000, 1, 1_000_000,
        meaning="maximum number of change feeds that wait on this node; further feeds are refused as OVERLOADED",
        why="a waiting feed of 64 partitions takes 50 KiB",
    )  # fmt: skip
    isolation_group: str = plain(
        "", "name", "none", "a name, or none", read_isolation_group,
        meaning=(
            "group of nodes that fail together, such as a rack or zone; replicas are placed in different "
            "groups if possible"
        ),
        why="the node forms its own group",
    )  # fmt: skip
    weight: int = count(
        1, 1, MAX_WEIGHT,
        meaning="share of table partitions that this node gets when it is added, relative to other nodes",
        why="equal machines; `gossipkv node weight` changes it later",
    )  # fmt: skip
    metadata_copies: int = copies(
        5, (1, 3, 5),
        meaning=(
            "number of nodes (acceptors) that decide on the list of tables, and on the partitions of each; the same "
            "on every node"
        ),
        why="two of five may be lost",
    )  # fmt: skip
