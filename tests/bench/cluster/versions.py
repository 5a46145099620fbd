"""New versions on a cluster: what reads notice of them, and what they cost all nodes together."""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.cluster import nodes
from tests.bench.datasets.switching import Scene
from tests.bench.measurement import OURS
from tests.bench.processes import call

if TYPE_CHECKING:
    from gossipkv.launcher import Cluster
    from tests.bench.measurement import Bench

FILES = 16
NODES, COPIES = 5, 2


def switched(
    bench: Bench,
    *,
    databases: int = 10,
    keys: int = 20_000,
    proxy_timeout_ms: int = 1_000,
    before_s: float = 3.0,
    rounds: int = 2,
) -> None:
    """All databases get a new version, one after the other, while all nodes are asked."""
    scene = Scene(bench.directory, databases, keys, files=FILES)
    first = scene.show_first()
    settings = {"proxy_timeout": f"{proxy_timeout_ms}ms"}
    with nodes.running(
        bench.directory / "cluster", NODES, source=scene.source, replication=COPIES, **settings
    ) as cluster:
        asked = nodes.addresses(cluster)
        nodes.wait_for_copies(asked, scene.names, first)
        with scene.asked(asked, 1) as plain, scene.asked(asked, 1, min_version=True) as telling:
            for _ in range(rounds):
                version = scene.stage()
                sleep(before_s)
                scene.switch(asked, version)
            sleep(before_s)
            (counts, _), (told, _) = plain.stop(), telling.stop()
    bench.count(goals.CLUSTER_SWITCH_FAILED, counts.failed + told.failed, counts.reads + told.reads)
    bench.count(goals.CLUSTER_SWITCH_BACK, counts.back, counts.reads)
    bench.count(goals.CLUSTER_SWITCH_BACK_ACROSS, told.back, told.reads)
    bench.notes.append(
        f"switches: {NODES} nodes, `replication` {COPIES}, `proxy_timeout` {proxy_timeout_ms} ms, {databases} "
        f"databases of {keys:,} records, each of which got {rounds} new versions in turn; who says `min_version` was "
        f"told {told.not_ready:,} times to ask again (`NOT_READY`), by nodes that had not heard of it yet"
    )


def built(bench: Bench, *, records: int = 1_000_000, rounds: int = 2) -> None:
    """One version that three nodes share in two copies, beside as many bytes built by a node alone."""
    scene = Scene(bench.directory, 1, records, files=FILES)
    first = scene.show_first()
    with ExitStack() as stack:
        clusters = {}
        for name, count, copies in ((OURS, 3, COPIES), (goals.ALONE, 1, 1)):
            place = bench.directory / f"of-{count}"  # Each cluster looks at the source when it is its turn.
            cluster = nodes.running(place, count, source=scene.source, replication=copies, refresh_period="off")
            clusters[name] = stack.enter_context(cluster)
            nodes.wait_for_copies(nodes.addresses(clusters[name]), scene.names, first)
        for _ in range(rounds):
            used_s = dict.fromkeys(clusters, 0.0)
            for _ in range(COPIES):
                version = scene.stage()
                scene.show(scene.names[0], version)
                for name, cluster in clusters.items():
                    used_s[name] += _build_s(cluster, scene.names[0], version)
            bench.add(goals.CLUSTER_BUILT, used_s[OURS] / COPIES)
            bench.add(goals.CLUSTER_BUILT, used_s[goals.ALONE], goals.ALONE)
    bench.notes.append(
        f"{records:,} records in {FILES} files by hash: until every partition is on {COPIES} of three nodes and all "
        f"have switched to it, beside {COPIES} builds of the whole by a node alone; {rounds} rounds"
    )


def _build_s(cluster: Cluster, name: str, version: str) -> float:
    """Processor seconds that a cluster uses for a new version of its own."""
    before_s, asked = nodes.cpu_s(cluster), nodes.addresses(cluster)
    call(asked[0], "refresh", name)
    nodes.wait_for_copies(asked, [name], version)
    return nodes.cpu_s(cluster) - before_s
