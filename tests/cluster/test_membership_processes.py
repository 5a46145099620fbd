"""Sixteen real nodes find each other, and survive what happens to processes and their directories."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.cluster import Cluster
from tests.cluster.views import LOGGED, NAME, PATIENCE_S, Views, alive, names

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(600)

N = 16
ALL = range(1, N + 1)
FROZEN_S = 20  # Longer than the longest suspicion of a healthy cluster.


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Views]]:
    """Sixteen nodes that know each other."""
    with Cluster(tmp_path_factory.mktemp("sixteen"), nodes=N, settings=LOGGED) as cluster:
        views = Views(cluster)
        try:
            yield cluster, views
        finally:
            views.close()


@pytest.fixture
def cluster(started: tuple[Cluster, Views]) -> Cluster:
    """The same for all tests, and whole before each."""
    cluster, views = started
    for node in cluster.status():
        if node.state == "ended" and node.index <= N:
            cluster.start(node.index)
    views.until(alive(names(ALL)), ALL)
    return cluster


@pytest.fixture
def views(started: tuple[Cluster, Views]) -> Views:
    """What its nodes see."""
    return started[1]


def others(*indexes: int) -> list[int]:
    """All but these."""
    return [index for index in ALL if index not in indexes]


def test_a_killed_node_is_dead_to_all(cluster, views):
    """SIGKILL: all others come to see it dead, and nobody else; started again it is alive to all in a later epoch."""
    epoch, mark = views.of(1)["n16"].epoch, views.mark()
    cluster.kill(16)
    views.until(lambda view: view["n16"].state == "dead", others(16))
    assert views.declared_dead(mark) == {"n16"}
    cluster.start(16)
    views.until(alive(names(ALL)), ALL)
    assert all(views.of(index)["n16"].epoch > epoch for index in ALL)


def test_frozen_nodes_harm_nobody(cluster, views):
    """Four stand still for 20 s: no healthy node is declared dead by anybody, and the four come back by themselves."""
    frozen, mark = (3, 7, 11, 15), views.mark()
    epochs = {index: views.of(1)[f"n{index}"].epoch for index in frozen}
    for index in frozen:
        cluster.send(index, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    assert "n3" in views.declared_dead(mark)  # It was long enough to matter.
    for index in frozen:
        cluster.send(index, signal.SIGCONT)
    views.until(alive(names(ALL)), ALL)
    assert views.declared_dead(mark) <= set(names(frozen))
    assert {index: views.of(1)[f"n{index}"].epoch for index in frozen} == epochs  # They were not started anew.


def test_a_quick_restart(cluster, views):
    """The same name at the same port within a second: alive to all in its new epoch, and never a conflict."""
    epoch, mark = views.of(1)["n5"].epoch, views.mark()
    cluster.kill(5)
    cluster.start(5)
    views.until(lambda view: view["n5"].state == "alive" and view["n5"].epoch > epoch, ALL)
    assert views.declared_dead(mark) <= {"n5"}


def test_a_quick_restart_elsewhere(cluster, views):
    """The same name at another port within a second: all come to know it by its new address."""
    old, mark = cluster.node(6).address, views.mark()
    cluster.kill(6)
    new = cluster.start(6, port=0).address
    assert new != old
    views.until(lambda view: (view["n6"].state, view["n6"].address) == ("alive", new), ALL)
    assert views.declared_dead(mark) <= {"n6"}


def test_all_are_restarted_at_once(cluster, views):
    """SIGKILL to all sixteen: started again, they find each other from what they remember."""
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
    """SIGTERM: all others see that it left, none suspects death; started again it is back."""
    mark = views.mark()
    assert cluster.stop(8).exit_status == 0
    views.until(lambda view: view["n8"].state == "left", others(8))
    assert views.declared_dead(mark) == set()
    cluster.start(8)
    views.until(alive(names(ALL)), ALL)


def test_a_wrong_cluster_name(cluster, views):
    """A node of another cluster is not let in, and its log names both clusters."""
    stranger = cluster.add(settings={"cluster": "other"})
    give_up_s = time.monotonic() + PATIENCE_S
    while not any(NAME in line and "other" in line for line in refusals(cluster.log(stranger.index))):
        assert time.monotonic() < give_up_s, cluster.log(stranger.index)
        time.sleep(0.2)
    assert views.states(stranger.index) == {stranger.name: "alive"}
    assert all(stranger.name not in views.of(index) for index in ALL)
    cluster.stop(stranger.index)


def refusals(log: str) -> list[str]:
    """The lines about what others refused."""
    return [line for line in log.splitlines() if "refused" in line or "complaint" in line]


def test_a_lost_data_directory(cluster, views):
    """A node whose files are gone comes back under its name, after everything it ever said."""
    epoch = views.of(1)["n10"].epoch
    shutil.rmtree(Path(cluster.kill(10).data))
    cluster.start(10)
    views.until(lambda view: view["n10"].state == "alive" and view["n10"].epoch > epoch, ALL)


def test_a_copied_data_directory(cluster, views):
    """The copy of a node that runs stops and names both addresses; the node itself goes on in everybody's view."""
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
