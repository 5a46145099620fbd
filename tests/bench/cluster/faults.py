"""Reads while owners stop or die: how many fail, and how long they take.

The clients are processes apart (`load_client`), with raw connections to nodes that live, one get in flight on each: no
client of ours tries again.  Every value is checked.
"""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals
from tests.bench.asking import percentile
from tests.bench.cluster import nodes
from tests.bench.datasets.switching import Scene
from tests.bench.processes import parse_address

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.launcher import Cluster
    from tests.bench.measurement import Bench

SECOND_NS = 10**9
FILES = 16
OWNERS = 3


def frozen(
    bench: Bench,
    *,
    keys: int = 100_000,
    connections: int = 8,
    proxy_timeout_ms: int = 100,
    stage_ms: int = 25,
    warming_s: float = 1.0,
    before_s: float = 5.0,
    later_s: float = 5.0,
    rounds: int = 5,
) -> None:
    """One of three owners stops again and again, while a node that holds nothing is asked; with default times."""
    scene = Scene(bench.directory, 1, keys, files=FILES)
    first = scene.show_first()
    settings = {
        "replication": str(OWNERS),
        "proxy_timeout": f"{proxy_timeout_ms}ms",
        "proxy_stage_timeout": f"{stage_ms}ms",
    }
    with ExitStack() as stack:
        cluster = stack.enter_context(
            nodes.running(bench.directory / "cluster", OWNERS, source=scene.source, replication=OWNERS)
        )
        nodes.wait_for_copies(nodes.addresses(cluster), scene.names, first)  # Else the fourth would be to have some.
        asked = [stack.enter_context(nodes.bare(bench.directory / "bare", cluster, **settings)).address]
        nodes.wait_for_copies(asked, scene.names, first)
        with scene.asked(asked, 1, connections) as clients:
            moments = []
            for number in range(rounds):
                sleep(warming_s)
                quiet_ns = monotonic_ns()
                sleep(before_s)
                stop_ns = monotonic_ns()
                cluster.send(1 + number % OWNERS, signal.SIGSTOP)
                sleep(1 + later_s)
                moments.append((quiet_ns, stop_ns, monotonic_ns()))
                cluster.send(1 + number % OWNERS, signal.SIGCONT)
                nodes.wait_for_copies(asked, scene.names, first)
            counts, samples = clients.stop()
    for moment in moments:
        before_us, first_us, later_us = (percentile(found, 0.99) for found in split(samples, *moment))
        bench.add(goals.CLUSTER_FROZEN_FIRST, first_us)
        bench.add(goals.CLUSTER_FROZEN_FIRST, stage_ms * 1000 + 3 * before_us, goals.STAGE)
        bench.add(goals.CLUSTER_FROZEN_LATER, later_us)
        bench.add(goals.CLUSTER_FROZEN_LATER, before_us, goals.HEALTHY)
    bench.count(goals.CLUSTER_FROZEN_FAILED, counts.failed, counts.reads)
    bench.notes.append(
        f"one of three owners stopped for {1 + later_s:.0f} s, {rounds} times: {connections} connections, "
        f"`proxy_timeout` {proxy_timeout_ms} ms, a stage {stage_ms} ms"
    )


def split(samples: list[tuple[int, int]], quiet_ns: int, stop_ns: int, end_ns: int) -> tuple[list[int], ...]:
    """How long gets took before; those of the first second, with all that were in flight at the stop; and later."""
    before, first, later = [], [], []
    for came_ns, took_ns in samples:
        if quiet_ns <= came_ns < stop_ns:
            before.append(took_ns)
        elif stop_ns <= came_ns < end_ns:
            (first if came_ns - took_ns < stop_ns + SECOND_NS else later).append(took_ns)
    return before, first, later


def killed(
    bench: Bench,
    *,
    keys: int = 100_000,
    connections: int = 8,
    proxy_timeout_ms: int = 1000,
    warming_s: float = 1.0,
    killed_s: float = 3.0,
    rounds: int = 5,
) -> None:
    """Two of five nodes are killed at once, of three copies, while the other three are asked."""
    scene = Scene(bench.directory, 1, keys, files=FILES)
    first = scene.show_first()
    chance = random.Random(data.SEED)
    longest_ms = []
    settings = {"proxy_timeout": f"{proxy_timeout_ms}ms"}
    with nodes.running(bench.directory / "cluster", 5, source=scene.source, replication=3, **settings) as cluster:
        for _ in range(rounds):
            nodes.wait_for_copies(nodes.addresses(cluster), scene.names, first)
            victims, asked = _drawn(cluster, chance)
            with scene.asked(asked, 1, connections) as clients:
                sleep(warming_s)
                killed_ns = monotonic_ns()
                for number in victims:
                    cluster.send(number, signal.SIGKILL)
                sleep(killed_s)
                counts, samples = clients.stop()
            took_ns = [took_ns for came_ns, took_ns in samples if came_ns >= killed_ns]
            bench.count(goals.CLUSTER_KILLED_FAILED, counts.failed, len(took_ns))
            longest_ms.append(max(took_ns) / 1e6)
            for number in victims:
                cluster.wait_ended(number)
                cluster.start(number)
    bench.notes.append(
        f"two of five nodes killed at once, {rounds} times: `proxy_timeout` {proxy_timeout_ms} ms, {connections} "
        f"connections to each survivor; the longest get of each round: {', '.join(f'{ms:.0f}' for ms in longest_ms)} ms"
    )


def _drawn(cluster: Cluster, chance: random.Random) -> tuple[list[int], list[Address]]:
    """Two that are to die, and where the others are asked."""
    drawn = chance.sample(cluster.status(), 5)
    return [node.index for node in drawn[:2]], [parse_address(node.address) for node in drawn[2:]]
