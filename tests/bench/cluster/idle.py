"""The row about a cluster at rest: the processor time of a node among many, which have datasets and tables."""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, sources
from tests.bench.cluster import nodes
from tests.bench.processes import cpu_ns, wait_for

if TYPE_CHECKING:
    from gossipkv.launcher import Cluster
    from tests.bench.measurement import Bench

DATABASES = 5  # The number of datasets, and also of tables.
FILES = 4
TABLE = {"kind": "hash", "partitions": 8, "replication": 3}
SETTLE_S = 20.0


def measure(
    bench: Bench, *, count: int = 20, records: int = 1_000, settle_s: float = SETTLE_S, idle_s: float = 60.0,
    rounds: int = 3,
) -> None:  # fmt: skip
    """Measure the mean of all nodes over a period of the looks at the source."""
    names = [f"dataset-{number}" for number in range(DATABASES)]
    versions = sources.Versions(bench.directory, names, data.make(records).records, FILES)
    first = versions.show_first()
    with nodes.running(bench.directory / "idle", count, source=versions.source, replication=2) as cluster:
        nodes.wait_for_copies(nodes.addresses(cluster), names, first)
        for name in (f"table-{number}" for number in range(DATABASES)):
            wait_for(partial(_is_made, cluster, name), name)
        sleep(settle_s)
        processes = nodes.processes(cluster)
        for _ in range(rounds):
            before_ns = sum(map(cpu_ns, processes))
            sleep(idle_s)
            bench.add(goals.CLUSTER_IDLE, (sum(map(cpu_ns, processes)) - before_ns) / len(processes) / 1e6 / idle_s)
    bench.notes.append(
        f"idle: {count} nodes with {DATABASES} datasets and {DATABASES} tables, the mean of all nodes, for {idle_s:g} s"
        " a round"
    )


def _is_made(cluster: Cluster, table: str) -> bool:
    """Make the table unless it is there; the first attempts may fail, while the nodes are busy with their start."""
    with cluster.connect(1, timeout_ms=nodes.REQUEST_TIMEOUT_MS) as client:
        if table not in [told["name"] for told in client.call("databases")]:
            client.call("create_table", table, TABLE)
    return True
