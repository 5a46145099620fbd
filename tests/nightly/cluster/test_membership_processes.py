"""Sixteen real nodes find each other, and survive faults of processes and of their directories."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.launcher import Cluster
from tests.ci.cluster.views import LOGGED, NAME, PATIENCE_S, Views, alive, names

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(1200)

N = 16
ALL = range(1, N + 1)
FROZEN_S = 20  # This exceeds the longest suspicion of a healthy cluster.
FEW = range(1, 6)
START_S = 400.0  # All nodes start at once, on a machine that may be busy.

SUCCESSOR = """
import sys
from gossipkv import cli
from gossipkv.cli import serve
print("loaded", flush=True)
sys.stdin.read()
sys.exit(cli.run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Views]]:
    """Start sixteen nodes that know each other."""
    place = tmp_path_factory.mktemp("sixteen")
    with Cluster(place, nodes=N, settings=LOGGED, ready_timeout_s=START_S) as cluster:
        views = Views(cluster)
        try:
            yield cluster, views
        finally:
            views.close()


@pytest.fixture
def cluster(started: tuple[Cluster, Views]) -> Cluster:
    """The shared cluster, with all nodes alive before each test."""
    cluster, views = started
    for node in cluster.status():
        if node.state == "ended" and node.index <= N:
            cluster.start(node.index)
    views.until(alive(names(ALL)), ALL, within_s=START_S)
    return cluster


@pytest.fixture
def views(started: tuple[Cluster, Views]) -> Views:
    return started[1]


def others(*indexes: int) -> list[int]:
    return [index for index in ALL if index not in indexes]


def test_a_killed_node_is_dead_to_all(cluster, views):
    """All others declare the killed node dead, and no other; restarted, it is alive to all in a later epoch."""
    epoch, mark = views.of(1)["n16"].epoch, views.mark()
    cluster.kill(16)
    views.until(lambda view: view["n16"].state == "dead", others(16))
    assert views.declared_dead(mark) == {"n16"}
    cluster.start(16)
    views.until(alive(names(ALL)), ALL)
    assert all(views.of(index)["n16"].epoch > epoch for index in ALL)


def test_frozen_nodes_harm_nobody(cluster, views):
    """Four nodes freeze for 20 s: no healthy node is declared dead, and the four come back by themselves."""
    frozen, mark = (3, 7, 11, 15), views.mark()
    epochs = {index: views.of(1)[f"n{index}"].epoch for index in frozen}
    for index in frozen:
        cluster.send(index, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    while "n3" not in views.declared_dead(mark):  # The freeze must last until it matters.
        time.sleep(1)
    for index in frozen:
        cluster.send(index, signal.SIGCONT)
    views.until(alive(names(ALL)), ALL)
    assert views.declared_dead(mark) <= set(names(frozen))
    assert {index: views.of(1)[f"n{index}"].epoch for index in frozen} == epochs  # The nodes were not restarted.


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Views]]:
    """Start a few nodes that suspect a node for at least half a minute before they declare it dead."""
    settings = {**LOGGED, "profile": "wan"}
    with Cluster(tmp_path_factory.mktemp("few"), nodes=len(FEW), settings=settings) as cluster:
        views = Views(cluster)
        try:
            views.until(alive(names(FEW)), FEW)
            yield cluster, views
        finally:
            views.close()


@contextlib.contextmanager
def succeeded(cluster: Cluster, views: Views, index: int, *, elsewhere: bool = False) -> Iterator[str]:
    """Kill a node and start a successor on its data for the duration of the block; yield the successor's address.

    The successor has loaded its code before the kill: on a busy machine loading would be most of the time without a
    node.
    """
    node = cluster.node(index)
    running = Path(f"/proc/{node.process}")
    _, _, arguments = running.joinpath("cmdline").read_bytes().partition(b"\0gossipkv\0")
    command = arguments.decode().rstrip("\0").split("\0")
    if elsewhere:
        command[command.index("--listen") + 1] = "127.0.0.1:0"
    environ = dict(part.split(b"=", 1) for part in running.joinpath("environ").read_bytes().split(b"\0") if part)
    run = [sys.executable, "-c", SUCCESSOR, *command]
    with Path(node.log).open("ab") as log, subprocess.Popen(run, env=environ, stdin=-1, stdout=-1, stderr=log) as next_:
        try:
            assert next_.stdout.readline() == b"loaded\n"
            cluster.kill(index)
            next_.stdin.close()
            ready = next_.stdout.readline().decode().split()
            assert ready[0] == "ready", cluster.log(index)
            yield ready[1]
            assert next_.poll() is None, cluster.log(index)  # The successor met no node of its name.
        finally:
            next_.kill()
            next_.wait()
            if cluster.node(index).state == "ended":
                cluster.start(index)
            views.until(alive(names(FEW)), FEW)


def test_a_quick_restart(patient):
    """Back at its port before any suspicion ends, a node is alive to all in a new epoch, and was never dead."""
    cluster, views = patient
    epoch, mark = views.of(1)["n5"].epoch, views.mark()
    with succeeded(cluster, views, 5) as address:
        assert address == cluster.node(5).address
        views.until(lambda view: view["n5"].state == "alive" and view["n5"].epoch > epoch, FEW)
        assert views.declared_dead(mark) == set()


def test_a_quick_restart_elsewhere(patient):
    """Back at another port before any suspicion ends, a node is known at its new address, and was never dead."""
    cluster, views = patient
    mark = views.mark()
    with succeeded(cluster, views, 4, elsewhere=True) as address:
        assert address != cluster.node(4).address
        views.until(lambda view: (view["n4"].state, view["n4"].address) == ("alive", address), [1, 2, 3, 5])
        with blocking.connect(address, timeout_ms=60_000) as client:
            assert {member["node"]: member["state"] for member in client.call("members")} == dict.fromkeys(
                names(FEW), "alive"
            )
        assert views.declared_dead(mark) == set()


def test_all_are_restarted_at_once(cluster, views):
    """After SIGKILL to all sixteen, the restarted nodes find each other from remembered addresses."""
    epochs = {name: seen.epoch for name, seen in views.of(1).items() if seen.state == "alive"}
    for index in ALL:
        cluster.send(index, signal.SIGKILL)
    for index in ALL:
        cluster.wait_ended(index)
    for index in ALL:
        cluster.start(index, wait=False)
    cluster.wait_ready(*ALL)
    views.until(alive(names(ALL)), ALL)
    assert all(seen.epoch > epochs[name] for name, seen in views.of(9).items() if name in epochs)


def test_a_node_leaves(cluster, views):
    """After SIGTERM all others see the node as left; restarted, it is back."""
    mark = views.mark()
    cluster.send(8, signal.SIGTERM)
    views.until(lambda view: view["n8"].state == "left", others(8))
    assert cluster.wait_ended(8).exit_status == 0
    assert views.declared_dead(mark) == set()
    cluster.start(8)
    views.until(alive(names(ALL)), ALL)


def test_a_wrong_cluster_name(cluster, views):
    """A node of another cluster is refused, and its log names both clusters."""
    stranger = cluster.add(settings={"cluster": "other"})
    give_up_s = time.monotonic() + PATIENCE_S
    while not any(NAME in line and "other" in line for line in refusals(cluster.log(stranger.index))):
        assert time.monotonic() < give_up_s, cluster.log(stranger.index)
        time.sleep(0.2)
    assert views.states(stranger.index) == {stranger.name: "alive"}
    assert all(stranger.name not in views.of(index) for index in ALL)
    cluster.stop(stranger.index)


def refusals(log: str) -> list[str]:
    return [line for line in log.splitlines() if "refused" in line or "complaint" in line]


def test_a_lost_data_directory(cluster, views):
    """A node whose files are lost comes back under its name with a higher epoch."""
    epoch = views.of(1)["n10"].epoch
    shutil.rmtree(Path(cluster.kill(10).data))
    cluster.start(10)
    views.until(lambda view: view["n10"].state == "alive" and view["n10"].epoch > epoch, ALL)


def test_a_copied_data_directory(cluster, views):
    """The copy of a running node stops and names both addresses; the node itself goes on in all views."""
    node, mark = cluster.node(12), views.mark()
    place = Path(node.data).parents[1] / f"n{len(cluster.status()) + 1}" / "data"
    shutil.copytree(node.data, place)
    copy = cluster.add(called="n12", wait=False)
    assert Path(copy.data) == place
    ended = cluster.wait_ended(copy.index)
    assert ended.exit_status == 3
    assert node.address in "".join(ended.last_words())
    assert copy.address in "".join(ended.last_words())
    views.until(alive(names(ALL)), ALL)
    assert views.declared_dead(mark) == set()
    assert all(views.of(index)["n12"].address == node.address for index in ALL)
