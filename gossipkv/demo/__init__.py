"""The main job, end to end, on real data: three acts on one local cluster, each with numbers that must hold.

    editions.py  the data: two versions of Unicode's characters
    outcome.py   the counts of a run, and their bounds
    stage.py     the parts that acts share: cluster, outcome, waiting
    upgrade.py   first act: a dataset changes to its next version under a reader, and a node is killed
    table.py     second act: a table keeps all acknowledged writes through a kill, a new node and a replacement
    series.py    third act: a time series is divided as it grows, spreads, and is scanned while a node is killed

`ACTS` lists the acts in their order.  The nodes are processes of their own with files below one temporary directory;
however a run ends, the nodes are stopped and the directory is removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gossipkv.demo import series, table, upgrade
from gossipkv.demo.editions import editions
from gossipkv.demo.outcome import DemoOutcome
from gossipkv.demo.stage import Stage
from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.launcher import Cluster, NodeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACTS: Final = (upgrade, table, series)
REQUIRED: Final = tuple(required for act in ACTS for required in act.REQUIRED)

NODES: Final = 3
LOG_LINES: Final = 3  # Lines of a failed node's log that the report quotes.
SETTINGS: Final = {
    "expected_members": str(NODES),
    "refresh_period": "200ms",
    "time_to_converge": "1s",
    "log_level": "warning",
    # On a busy machine a node that waits for a processor should fail no read.  Other owners are asked as early as
    # usual, and each may take longer than the default of 100 ms.
    "proxy_timeout": "1m",
    "proxy_stage_timeout": "30ms",
    "split_rows": str(series.SPLIT_ROWS),
}


def run(say: Callable[[str], None]) -> DemoOutcome:
    """Run all acts; `say` is given lines for people as things happen.

    Raises:
        GossipKVError: the cluster did not start.
    """
    begin_s = time.monotonic()
    outcome = DemoOutcome(REQUIRED)
    with _signals_as_interrupts(), tempfile.TemporaryDirectory(prefix="gossipkv-demo-") as place:
        root = Path(place)
        both = editions()
        upgrade.write_sources(root / "source", both, outcome, say)
        say(f"cluster  {NODES} nodes start, each with its own directory; replication {upgrade.REPLICATION}")
        with _cluster(root) as cluster:
            stage = Stage(cluster, root, both, outcome, say)
            for act in ACTS:
                try:
                    act.play(stage)
                except GossipKVError as error:
                    outcome.fail(str(error))
                say("")
            _stop(cluster, outcome)
    outcome.seconds = round(time.monotonic() - begin_s, 1)
    return outcome


@contextlib.contextmanager
def _cluster(root: Path) -> Iterator[Cluster]:
    """Keep the nodes up, all of them ready, as long as the block lasts.

    Raises:
        Unavailable: a node did not start; the message has the end of its log.
    """
    cluster = Cluster(
        root / "cluster",
        nodes=NODES,
        source=root / "source",
        replication=upgrade.REPLICATION,
        settings=SETTINGS,
        environ={name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")},
    )
    try:
        try:
            cluster.up()
        except NodeFailed as failed:
            raise Unavailable(f"a node did not start: {_last_words(failed)}") from failed
        yield cluster
    finally:
        cluster.down()


def _stop(cluster: Cluster, outcome: DemoOutcome) -> None:
    """End the remaining nodes by SIGTERM; a node that ends badly, or ended unasked, is a failure."""
    left = [node for node in cluster.status() if node.state != "ended" or node.failed]
    for node in left:
        if node.state != "ended":
            cluster.send(node.index, signal.SIGTERM)
    for node in left:
        ended = cluster.wait_ended(node.index)
        if ended.failed or ended.exit_status != 0:
            outcome.fail(f"{ended.name} {ended.end()}: {_last_words(NodeFailed.of(ended))}")


def _last_words(failed: NodeFailed) -> str:
    """Return the end of the node's log in one line."""
    match failed.details:
        case {"said": [*said]}:
            return " / ".join(str(line).strip() for line in said[-LOG_LINES:])
    raise AssertionError(failed.details)


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Clean up on SIGTERM, and when the terminal is closed, as on Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
