"""New versions on a cluster: what reads notice of them, and what they cost all nodes together."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import goals, machine
from tests.bench.cluster import nodes
from tests.bench.cluster.faults import failed_of
from tests.bench.datasets import switching
from tests.bench.datasets.switching import Clients
from tests.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.launcher import Cluster

FILES = 16
NODES, COPIES = 5, 2


@dataclass(frozen=True)
class Load:
    """How much is served, how often it changes."""

    databases: int = 10
    keys: int = 20_000
    value_bytes: int = 100
    proxy_timeout_ms: int = 1_000
    before_s: float = 3.0
    rounds: int = 2
    built_records: int = 1_000_000
    built_rounds: int = 2


def switched(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """All databases get a new version, one after the other, while all nodes are asked."""
    scene = switching.Scene(directory, switching.Load(load.databases, load.keys, load.value_bytes), FILES)
    _first(scene)
    with ExitStack() as stack:
        cluster = stack.enter_context(
            nodes.running(
                directory / "cluster",
                scene.source,
                nodes=NODES,
                replication=COPIES,
                settings={"proxy_timeout": f"{load.proxy_timeout_ms}ms"},
            )
        )
        asked = nodes.addresses(cluster)
        nodes.wait_for_answers(asked, scene.names, "0001")
        nodes.wait_for_copies(asked, scene.names, "0001")
        clients = Clients([
            scene.task(asked, number, directory / f"samples-{number}", min_version=number == 1) for number in range(2)
        ])  # fmt: skip
        stack.callback(clients.kill)
        for number in range(load.rounds):
            version = f"{number + 2:04}"
            scene.stage(version)
            sleep(load.before_s)
            for name in scene.names:
                scene.show(name, version)
                nodes.refresh(asked[0], name)
                nodes.wait_for_answers(asked, [name], version)
            machine.say(f"    version {version} of all databases is switched to on all nodes")
        sleep(load.before_s)
        (plain, told), _ = clients.stop()
    for counts in (plain, told):
        machine.say(f"    {counts}")
    reads = plain.reads + told.reads
    yield failed_of(goals.CLUSTER_SWITCH_FAILED, plain.failed + told.failed, reads)
    yield failed_of(goals.CLUSTER_SWITCH_BACK, plain.back, plain.reads)
    yield failed_of(goals.CLUSTER_SWITCH_BACK_ACROSS, told.back, told.reads)
    notes.append(
        f"switches: {NODES} nodes, `replication` {COPIES}, `proxy_timeout` {load.proxy_timeout_ms} ms, "
        f"{load.databases} databases of {load.keys:,} records, each of which got {load.rounds} new versions in turn; "
        "two processes of clients have a connection to each database at each node and one get in flight on each, every "
        "value checked; one of them says `min_version`, the newest that any node has answered it, and was told "
        f"{told.not_ready:,} times to ask again (`NOT_READY`), by nodes that had not heard of it yet"
    )


def built(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """One version that three nodes share in two copies, beside as many bytes built by a node alone."""
    scene = switching.Scene(directory, switching.Load(1, load.built_records, load.value_bytes), FILES)
    _first(scene)
    samples: dict[str, list[float]] = {"GossipKV": [], goals.ALONE: []}
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(
                nodes.running(
                    directory / f"of-{count}",
                    scene.source,
                    nodes=count,
                    replication=copies,
                    settings={"refresh_period": "off"},  # Each cluster looks when it is its turn.
                )
            )
            for count, copies in ((3, COPIES), (1, 1))
        ]
        for cluster in clusters:
            _wait(cluster, scene.names, "0001")
        versions = (f"{number:04}" for number in range(2, 2 + COPIES * load.built_rounds))
        for _ in range(load.built_rounds):
            used = [_build(scene, next(versions), clusters) for _ in range(COPIES)]
            samples["GossipKV"].append(sum(each[0] for each in used) / COPIES)
            samples[goals.ALONE].append(sum(each[1] for each in used))
            machine.say(f"    CPU {samples['GossipKV'][-1]:.2f} s, alone twice {samples[goals.ALONE][-1]:.2f} s")
    yield Measurement(goals.CLUSTER_BUILT, "s", "GossipKV", samples)
    notes.append(
        f"{load.built_records:,} records in {FILES} files by hash: processor time of all nodes and of their builds, "
        f"from the version's appearance at the source until every partition is on {COPIES} of three nodes and all have "
        f"switched to it, beside {COPIES} builds of the whole by a node alone, that is as many bytes; "
        f"{load.built_rounds} rounds"
    )


def _build(scene: switching.Scene, version: str, clusters: list[Cluster]) -> list[float]:
    """Processor seconds that each cluster uses for a new version of its own, one after the other."""
    scene.stage(version)
    scene.show(scene.names[0], version)
    used = []
    for cluster in clusters:
        before_s = nodes.cpu_s(cluster)
        nodes.refresh(nodes.addresses(cluster)[0], scene.names[0])
        _wait(cluster, scene.names, version)
        used.append(nodes.cpu_s(cluster) - before_s)
    return used


def _first(scene: switching.Scene) -> None:
    scene.stage("0001")
    for name in scene.names:
        scene.show(name, "0001")


def _wait(cluster: Cluster, names: list[str], version: str) -> None:
    asked = nodes.addresses(cluster)
    nodes.wait_for_answers(asked, names, version)
    nodes.wait_for_copies(asked, names, version)
