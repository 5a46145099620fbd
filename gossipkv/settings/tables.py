"""The settings of tables: their store's log, memory and disk use, and the nodes that decide on tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gossipkv.settings.setting import choice, copies, count, duration, plain, rate, read_isolation_group, size

MAX_WEIGHT: Final = 1000  # Relative to the minimum.
MAX_KEY_BYTES: Final = 65_522  # Limit of a record; `table.records.endpoints` explains it and the next limit.
MAX_VALUE_BYTES: Final = 16_711_616
DECISION_MS: Final = 10_000  # Default timeout of a METADATA transaction or a comparison of replicas.
MAX_DECISION_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """The sizes of a store's parts, in bytes, and the number of nodes that decide which tables exist."""

    table_log: int = size(
        "1GiB", "1MiB", "1TiB",
        meaning="newest part of the log of tables that is kept for replicas that lag",
        why="minutes of heavy writing: a replica that was away for less is sent what it lacks, not everything",
    )  # fmt: skip
    table_segment: int = size(
        "64MiB", "1MiB", "1GiB",
        meaning="segment of the log of tables; what is not merged yet takes up to three times that in memory",
        why="large enough that merges are few, small enough that a restart reads it back in a second",
    )  # fmt: skip
    table_merge_memory: int = size(
        "192MiB", "48MiB", "16GiB",
        meaning="most memory that the process takes which merges what was written to tables",
        why="a segment is sorted within it; with less a merge writes its input a second time",
    )  # fmt: skip
    relay_after: int = duration(
        "200ms", "10ms", "1m",
        meaning="when a record that another node wrote is passed on, if it has not come from there",
        why="longer than a slow disk takes, and short beside what a client waits for a write",
    )  # fmt: skip
    max_clock_skew: int = duration(
        "1m", "1s", "1d",
        meaning="how far a node's clock may be off those of most others that it hears; beyond, it originates no writes",
        why="clocks that are kept in step are off by milliseconds; writes of one that is not would win for too long",
    )  # fmt: skip
    move_stall: int = duration(
        "1m", "1s", "1d",
        meaning="how long a move, or a load, waits for a node that gives or takes nothing, before it goes on without",
        why="a restart takes less; who waited for ever for one that is stuck would never be done",
    )  # fmt: skip
    max_moves: int = count(
        64, 1, 1024,
        meaning="partitions of a table that move at a time at each node, as source or as target; the same everywhere",
        why="each step of all of them is one decision; how many load at once, and how fast, has bounds of its own",
    )  # fmt: skip
    table_transfer: int = rate(
        "64MiB/s", "64KiB/s", "1TiB/s",
        meaning="bytes a second that loads of replicas take in at this node, at most, and those of others from it",
        why="half of what a network of 1 Gbit/s carries: clients have the other half",
    )  # fmt: skip
    split_bytes: int = size(
        "512MiB", "64KiB", "1TiB", zero="off",
        meaning="size of a range at which it is divided in two, by any node that holds it; the same everywhere",
        why="moves in ten seconds by table_transfer; off: ranges are divided by people, or by split_rows",
    )  # fmt: skip
    split_rows: int = count(
        2_000_000, 100, 1_000_000_000, words={"off": 0},
        meaning="records of a range at which it is divided in two, likewise",
        why="short records are many before they are large; off: ranges are divided by people, or by split_bytes",
    )  # fmt: skip
    planner: str = choice(
        "on", ("on", "off"),
        meaning="whether nodes move and divide ranges by what they have and how busy they are; the same everywhere",
        why="on: it begins little at a time; off: people do, and what `node` commands ask for is moved all the same",
    )  # fmt: skip
    smear: str = choice(
        "on", ("on", "off"),
        meaning="whether this node keeps puts of a time series for up to two minutes, as tables with a time key allow",
        why="what all write at a moment goes to the few nodes of one range; off: each put is forwarded at once",
    )  # fmt: skip
    max_token: int = size(
        "64KiB", "4KiB", "64KiB",
        meaning="longest token of a session over tables; with a longer one a request is refused as TOO_LARGE",
        why="grows only while replicas are away: 4,000 entries, each of which every write of the session keeps",
    )  # fmt: skip
    isolation_group: str = plain(
        "", "name", "none", "a name, or none", read_isolation_group,
        meaning="what fails together with this node: a rack, a zone; no two replicas are in one where that can be",
        why="none: the node is one of its own",
    )  # fmt: skip
    weight: int = count(
        1, 1, MAX_WEIGHT,
        meaning="share of the partitions of tables that this node gets when it is put in, beside others'",
        why="equal machines; `gossipkv node weight` changes it later",
    )  # fmt: skip
    metadata_copies: int = copies(
        5, (1, 3, 5),
        meaning="nodes that decide which tables there are, and on each, once there are so many; the same everywhere",
        why="two of five may be lost and tables are still made; an even number could lose no more than one less",
    )  # fmt: skip
