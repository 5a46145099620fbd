"""The demo's third act: a time series grows out of one range, over the nodes, and is read in order while a node dies.

A day of readings, one every five seconds, is put into a range table that is empty and has two replicas.  As it grows
its nodes divide it, and the planner gives some of its ranges to those that have none.  Then all of it is scanned, in
the order of time; amid that one of its nodes is killed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gossipkv.errors import GossipKVError, NotReady, Unavailable, Unknown
from gossipkv.status.reading import list_of, map_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gossipkv.client import blocking
    from gossipkv.launcher import Cluster
    from gossipkv.wire.rpc import Value

TABLE: Final = "readings"
REPLICAS: Final = 2
DAY_S: Final = 86_400
EVERY_S: Final = 5
SPLIT_ROWS: Final = 2_000  # At which the demo's nodes divide a range.
BATCH: Final = 100
TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 90.0
LOOK_S: Final = 0.2


@dataclass(slots=True)
class Series:
    """The numbers of the act."""

    readings: int = 0  # Put, and acknowledged.
    ranges: int = 0  # That the table was divided into.
    spread: int = 0  # Nodes that hold some.
    scanned: int = 0  # Read again in the order of time, each with its value.
    scanned_after_kill: int = 0  # Of these, after a node was killed.
    trouble: list[str] = field(default_factory=list)


def play(cluster: Cluster, say: Callable[[str], None]) -> Series:
    """Play the act on a cluster; `say` is given lines for people."""
    series = Series()
    nodes = [node for node in cluster.status() if node.process is not None]
    try:
        with cluster.connect(nodes[0].index, timeout_ms=TIMEOUT_MS) as client:
            options: Value = {"kind": "range", "replication": REPLICAS, "time_key": [0, 8, "s"], "smear": False}
            client.call("create_table", TABLE, options)
            say(f"table    {TABLE}: one range, empty, with {REPLICAS} replicas; keys begin with the time, in seconds")
            _fill(client, series)
            say(f"written  {series.readings:,} readings, one every {EVERY_S} s of a day")
            _await_spread(client, series, [node.name for node in nodes])
            say(f"divided  into {series.ranges} ranges, which lie on {series.spread} nodes")
            doomed = nodes[-1]

            def kill() -> None:
                cluster.kill(doomed.index)
                say(f"killed   {doomed.name}, after {series.scanned:,} readings of a scan, which goes on")

            _scan(client, series, kill)
            say(f"scanned  {series.scanned:,} readings, in the order of time")
    except GossipKVError as error:
        series.trouble.append(str(error))
    return series


def _readings() -> Iterator[tuple[bytes, bytes]]:
    """A thermometer's, of a day."""
    for second in range(0, DAY_S, EVERY_S):
        degrees = 12 - 6 * math.cos(2 * math.pi * second / DAY_S)
        yield second.to_bytes(8, "big"), f"{degrees:.2f}".encode()


def _fill(client: blocking.Client, series: Series) -> None:
    table, rows = client.table(TABLE), [*_readings()]
    for at in range(0, len(rows), BATCH):
        _put(table, rows[at : at + BATCH])
        series.readings += len(rows[at : at + BATCH])


def _put(table: blocking.Table, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Put them; said again they are the same, so what nobody has answered is said again."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            table.put_many(rows, timeout_ms=TIMEOUT_MS)
        except (NotReady, Unavailable, Unknown):
            if time.monotonic() > give_up_s:
                raise
            time.sleep(LOOK_S)
        else:
            return


def _await_spread(client: blocking.Client, series: Series, nodes: Sequence[str]) -> None:
    """Return when no range is larger than it may be, each node has some, and nothing moves."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        hosts, moving = Counter[str](), 0
        match client.call("partitions", TABLE):
            case {"partitions": [*partitions]}:
                series.ranges = len(partitions)
                for partition in partitions:
                    for host in list_of(map_of(partition).get("hosts")):
                        match host:
                            case {"node": str(node), "state": "AVAILABLE"}:
                                hosts[node] += 1
                            case _:
                                moving += 1
        series.spread = len(hosts)
        if {*nodes} <= hosts.keys() and not moving and series.ranges >= series.readings / SPLIT_ROWS:
            return
        if time.monotonic() > give_up_s:
            raise Unavailable(f"the table has not spread: {series.ranges} ranges on {dict(hosts)}")
        time.sleep(LOOK_S)


def _scan(client: blocking.Client, series: Series, kill: Callable[[], None]) -> None:
    is_killed = False
    found = client.table(TABLE).scan()
    for (key, value), due in zip(found, _readings(), strict=False):
        if (key, value) != due:
            series.trouble.append(f"reading {int.from_bytes(key, 'big')} in the place of {due[0].hex()}")
            return
        series.scanned += 1
        series.scanned_after_kill += is_killed
        if not is_killed and series.scanned >= series.readings // 3:
            kill()
            is_killed = True
