"""Reads while owners stop or die: how many fail, and how long they take.

The clients are processes apart (`load_client`), with raw connections to nodes that live, one get in flight on each: no
client of ours tries again.  Every value is checked.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.datasets import switching
from tests.bench.datasets.load_client import Task
from tests.bench.datasets.switching import Clients
from tests.bench.measurement import Measurement
from tests.bench.serving import percentile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.launcher import Cluster, NodeStatus

    Sample = tuple[int, int]  # When an answer came and how long it took, in nanoseconds.

SECOND_NS = 10**9
MICROSECONDS_A_MS = 1000.0
VERSION = "0001"
FILES = 16
OWNERS = 3


@dataclass(frozen=True)
class Load:
    """How much is served, how many ask, for how long."""

    keys: int = 100_000
    value_bytes: int = 100
    connections: int = 8  # To each node that is asked.
    proxy_timeout_ms: int = 100  # The default.
    stage_ms: int = 25  # The default of three copies.
    warming_s: float = 1.0
    before_s: float = 5.0
    later_s: float = 5.0  # After the first second.
    rounds: int = 5
    killed_proxy_timeout_ms: int = 1000
    killed_s: float = 3.0

    def scene(self, directory: Path) -> switching.Scene:
        """One database, with its first version at the source."""
        scene = switching.Scene(directory, switching.Load(1, self.keys, self.value_bytes), FILES)
        scene.stage(VERSION)
        scene.show(scene.names[0], VERSION)
        return scene

    def task(self, database: str, asked: list[tuple[str, int]], output: Path) -> Task:
        """What the clients ask."""
        return Task(asked, [database] * self.connections, self.keys, self.value_bytes, data.SEED, str(output))


@dataclass(frozen=True)
class Stop:
    """One round: begin of the quiet time, the stop, and the moment before the node goes on."""

    quiet_ns: int
    stop_ns: int
    end_ns: int

    def split(self, samples: list[Sample]) -> tuple[list[int], list[int], list[int]]:
        """How long gets took before; those of the first second, with all that were in flight at the stop; and later."""
        before, first, later = [], [], []
        for came_ns, took_ns in samples:
            if self.quiet_ns <= came_ns < self.stop_ns:
                before.append(took_ns)
            elif self.stop_ns <= came_ns < self.end_ns:
                (first if came_ns - took_ns < self.stop_ns + SECOND_NS else later).append(took_ns)
        return before, first, later


def frozen(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """One of three owners stops again and again, while a node that holds nothing is asked."""
    scene = load.scene(directory)
    settings = {
        "replication": str(OWNERS),
        "proxy_timeout": f"{load.proxy_timeout_ms}ms",
        "proxy_stage_timeout": f"{load.stage_ms}ms",
    }
    with ExitStack() as stack:
        cluster = stack.enter_context(
            nodes.running(directory / "cluster", scene.source, nodes=OWNERS, replication=OWNERS)
        )
        owners = nodes.addresses(cluster)
        nodes.wait_for_answers(owners, scene.names, VERSION)
        _, asked = stack.enter_context(nodes.bare(directory / "bare", cluster.addresses[0], settings))
        nodes.wait_for_answers([asked], scene.names, VERSION)
        nodes.wait_for_copies([asked], scene.names, VERSION)
        clients = Clients([load.task(scene.names[0], [asked], directory / "samples")])
        stack.callback(clients.kill)
        stops = [_stop(cluster, load, asked, scene.names, 1 + number % OWNERS) for number in range(load.rounds)]
        (counts,), samples = clients.stop()
    machine.say(f"    {counts}")
    yield from _frozen_rows(stops, samples, load)
    yield failed_of(goals.CLUSTER_FROZEN_FAILED, counts.failed, counts.reads)
    notes.append(
        f"one of three owners stopped (SIGSTOP) for {1 + load.later_s:.0f} s, {load.rounds} times: a fourth node, "
        f"which holds nothing, is asked on {load.connections} connections, one get in flight on each; `proxy_timeout` "
        f"{load.proxy_timeout_ms} ms, a stage {load.stage_ms} ms; {counts.reads:,} gets in all, every value checked; "
        "a get that was in flight at the stop counts as one of the first second"
    )


def _stop(cluster: Cluster, load: Load, asked: tuple[str, int], names: list[str], index: int) -> Stop:
    """One round; at its end all nodes are known alive."""
    sleep(load.warming_s)
    quiet_ns = monotonic_ns()
    sleep(load.before_s)
    stop_ns = monotonic_ns()
    cluster.send(index, signal.SIGSTOP)
    sleep(1 + load.later_s)
    end_ns = monotonic_ns()
    cluster.send(index, signal.SIGCONT)
    nodes.wait_for_copies([asked], names, VERSION)
    return Stop(quiet_ns, stop_ns, end_ns)


def _frozen_rows(stops: list[Stop], samples: list[Sample], load: Load) -> Iterator[Measurement]:
    first_rows: dict[str, list[float]] = {"GossipKV": [], goals.STAGE: []}
    later_rows: dict[str, list[float]] = {"GossipKV": [], goals.HEALTHY: []}
    for stop in stops:
        before, first, later = (percentile(found, 0.99) for found in stop.split(samples))
        first_rows["GossipKV"].append(first)
        first_rows[goals.STAGE].append(load.stage_ms * MICROSECONDS_A_MS + 3 * before)
        later_rows["GossipKV"].append(later)
        later_rows[goals.HEALTHY].append(before)
        machine.say(f"    p99 {before:.0f} us before, {first:.0f} us in the first second, {later:.0f} us later")
    yield Measurement(goals.CLUSTER_FROZEN_FIRST, "us", "GossipKV", first_rows)
    yield Measurement(goals.CLUSTER_FROZEN_LATER, "us", "GossipKV", later_rows)


def killed(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Two of five nodes are killed at once, of three copies, while the other three are asked."""
    scene = load.scene(directory)
    rng = random.Random(data.SEED)
    reads = failed = 0
    longest_ms: list[float] = []
    settings = {"proxy_timeout": f"{load.killed_proxy_timeout_ms}ms"}
    with nodes.running(directory / "cluster", scene.source, nodes=5, replication=3, settings=settings) as cluster:
        nodes.wait_for_answers(nodes.addresses(cluster), scene.names, VERSION)
        for number in range(load.rounds):
            nodes.wait_for_copies(nodes.addresses(cluster), scene.names, VERSION)
            victims, survivors = _drawn(rng, cluster.status())
            asked = [nodes.address_of(node.address) for node in survivors]
            with ExitStack() as stack:
                clients = Clients([load.task(scene.names[0], asked, directory / f"samples-{number}")])
                stack.callback(clients.kill)
                sleep(load.warming_s)
                killed_ns = _kill(victims)
                sleep(load.killed_s)
                (counts,), samples = clients.stop()
            took_ns = [took_ns for came_ns, took_ns in samples if came_ns >= killed_ns]
            reads += len(took_ns)
            failed += counts.failed
            longest_ms.append(max(took_ns) / 1e6)
            machine.say(f"    {len(took_ns):,} gets, longest {longest_ms[-1]:.1f} ms; {counts.first_failure}")
            for node in victims:
                cluster.wait_ended(node.index)
                cluster.start(node.index)
    yield failed_of(goals.CLUSTER_KILLED_FAILED, failed, reads)
    notes.append(
        f"two of five nodes killed (SIGKILL) at once, {load.rounds} times, each time another two: three copies, "
        f"`proxy_timeout` {load.killed_proxy_timeout_ms} ms; {load.connections} connections to each survivor, one get "
        f"in flight on each; {reads:,} gets were answered within {load.killed_s:.0f} s of a kill, the longest of a "
        f"round in {median(longest_ms):.0f} ms (the median) and {max(longest_ms):.0f} ms (the longest)"
    )


def _drawn(rng: random.Random, all_nodes: list[NodeStatus]) -> tuple[list[NodeStatus], list[NodeStatus]]:
    """Two, and the others."""
    shuffled = rng.sample(all_nodes, len(all_nodes))
    return shuffled[:2], shuffled[2:]


def _kill(victims: list[NodeStatus]) -> int:
    """Both at once; returns the moment before."""
    now_ns = monotonic_ns()
    for node in victims:
        assert node.process is not None
        os.kill(node.process, signal.SIGKILL)
    return now_ns


def failed_of(row: str, failed: int, reads: int) -> Measurement:
    """A row that must be nothing, and of how many."""
    return Measurement(row, f"of {reads:,}", "GossipKV", {"GossipKV": [float(failed)]})
