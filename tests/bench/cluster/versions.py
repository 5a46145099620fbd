"""The total cost of a new version for all nodes of a cluster, beside as many bytes built by a node alone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench import data, goals, sources
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.processes import DATABASE, call

if TYPE_CHECKING:
    from gossipkv.launcher import Cluster
    from tests.bench.measurement import Bench

FILES = 16
COPIES = 2


def built(bench: Bench, *, records: int = 1_000_000, rounds: int = 2) -> None:
    """Measure one version that three nodes share in two replicas, and one that a node builds twice."""
    versions = sources.Versions(bench.directory, [DATABASE], [*data.numbered(records)], FILES)
    first = versions.show_first()
    with ExitStack() as stack:
        clusters = {}
        for name, count, copies in ((OURS, 3, COPIES), (goals.ALONE, 1, 1)):
            place = bench.directory / f"of-{count}"  # Each cluster reads the source only in its turn.
            cluster = nodes.running(place, count, source=versions.source, replication=copies, refresh_period="off")
            clusters[name] = stack.enter_context(cluster)
            nodes.wait_for_copies(nodes.addresses(clusters[name]), [DATABASE], first)
        for _ in range(rounds):
            used_s = dict.fromkeys(clusters, 0.0)
            for _ in range(COPIES):
                version = versions.write()
                versions.show(DATABASE, version)
                for name, cluster in clusters.items():
                    used_s[name] += _build_s(cluster, version)
            bench.add(goals.CLUSTER_BUILT, used_s[OURS] / COPIES)
            bench.add(goals.CLUSTER_BUILT, used_s[goals.ALONE], goals.ALONE)
    bench.notes.append(
        f"{records:,} records in {FILES} files by hash: until every partition is on {COPIES} of three nodes and all "
        f"have switched to it, beside {COPIES} builds of the whole by a node alone; {rounds} rounds"
    )


def _build_s(cluster: Cluster, version: str) -> float:
    """Return the processor seconds that a cluster uses for a new version of its own."""
    before_s, asked = nodes.cpu_s(cluster), nodes.addresses(cluster)
    call(asked[0], "refresh", DATABASE)
    nodes.wait_for_copies(asked, [DATABASE], version)
    return nodes.cpu_s(cluster) - before_s
