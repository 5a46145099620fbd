"""Third act: a time series grows out of one range, over the nodes, and is read in order while a node dies.

A day of readings is put into a range table that is empty and has two replicas.  As it grows its nodes divide it, and
the planner gives some of its ranges to the nodes that have none.  Then all of it is scanned in the order of time;
meanwhile a node is killed.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from gossipkv.demo.outcome import Required
from gossipkv.demo.stage import TIMEOUT_MS, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.client import blocking
    from gossipkv.demo.stage import Stage
    from gossipkv.wire.rpc import Value

TABLE: Final = "readings"
REPLICAS: Final = 2
DAY_S: Final = 86_400
PERIOD_S: Final = 20  # Time between two readings.
READINGS: Final = DAY_S // PERIOD_S
SPLIT_ROWS: Final = 1_200  # Rows above which the nodes divide a range.
RANGES: Final = -(-READINGS // SPLIT_ROWS)
BATCH: Final = 100

REQUIRED: Final = (
    Required("ranges", RANGES, None, "ranges of a time series"),
    Required("spread", 3, None, "nodes that hold these ranges"),
    Required("scanned", READINGS, READINGS, "readings scanned in order"),
    Required("scanned_after_kill", READINGS // 2, None, "readings scanned after a kill"),
)


def play(stage: Stage) -> None:
    """Play the act.

    Raises:
        GossipKVError: it cannot be played to its end.
    """
    counts, say = stage.outcome.counts, stage.say
    nodes = [node for node in stage.cluster.status() if node.process is not None]
    with stage.cluster.connect(nodes[0].index, timeout_ms=TIMEOUT_MS) as client:
        options: Value = {"kind": "range", "replication": REPLICAS, "time_key": [0, 8, "s"], "smear": False}
        client.call("create_table", TABLE, options)
        say(f"table    {TABLE}: one empty range with {REPLICAS} replicas; keys begin with the time in seconds")
        table, rows = client.table(TABLE), [*_readings()]
        for at in range(0, len(rows), BATCH):
            stage.until_taken("a put is accepted", partial(table.put_many, rows[at : at + BATCH]))
        say(f"written  {len(rows):,} readings, one every {PERIOD_S} s of a day")

        def has_spread() -> bool:
            counts["ranges"], replicas, is_settled = hosts(client, TABLE)
            counts["spread"] = len(replicas)
            return is_settled and counts["ranges"] >= RANGES and replicas.keys() >= {node.name for node in nodes}

        stage.until("the table has spread over all nodes", has_spread)
        say(f"divided  into {counts['ranges']} ranges on {counts['spread']} nodes")
        _scan(table, rows, stage, doomed=nodes[-1].index)
        say(f"scanned  {counts['scanned']:,} readings in the order of time")


def _readings() -> Iterator[tuple[bytes, bytes]]:
    for second in range(0, DAY_S, PERIOD_S):
        degrees = 12 - 6 * math.cos(2 * math.pi * second / DAY_S)
        yield second.to_bytes(8, "big"), f"{degrees:.2f}".encode()


def _scan(table: blocking.Table, rows: list[tuple[bytes, bytes]], stage: Stage, doomed: int) -> None:
    """Scan the table, kill a node after a third of it, and compare every reading."""
    counts = stage.outcome.counts
    for row, due in zip(table.scan(), rows, strict=False):
        if row != due:
            stage.outcome.fail(f"the scan returned the reading {row[0].hex()} instead of {due[0].hex()}")
            return
        counts["scanned"] += 1
        counts["scanned_after_kill"] = max(0, counts["scanned"] - READINGS // 3)
        if counts["scanned"] == READINGS // 3:
            node = stage.cluster.kill(doomed)
            stage.say(f"killed   {node.name}, after {counts['scanned']:,} readings of a scan; the scan goes on")
