"""Eight real nodes in namespaces of their own: cut apart, cut one way, without UDP, with three packets in ten lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster import networks
from tests.ci.cluster.networks import Network
from tests.ci.cluster.views import LOGGED, Views, alive, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.ci.cluster.views import View

pytestmark = pytest.mark.timeout(1200)

N = 8
ALL = range(1, N + 1)
FEW, MANY = (1, 2, 3), (4, 5, 6, 7, 8)
WATCHED_S = 16  # Longer than the longest suspicion of a cluster of this size, 12 s.
START_S = 400.0  # Eight nodes at once, on a machine that may have others to do.


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Eight machines and a switch."""
    if (reason := networks.missing()) is not None:
        pytest.skip(reason)
    with Network(N) as network:
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node on each."""
    settings = {**LOGGED, "insecure_gossip": "true"}  # Nobody else is on that network.
    place = tmp_path_factory.mktemp("eight")
    with Cluster(place, places=network.places(), settings=settings, ready_timeout_s=START_S) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def views(network: Network, cluster: Cluster) -> Views:
    """What they see, as the switch hears it: nothing is cut there."""
    return Views(cluster, lambda node: network.ask(node, "members"))


@pytest.fixture(autouse=True)
def whole(network: Network, views: Views) -> Iterator[None]:
    """Before each test all is well; afterwards no rule is left."""
    views.until(alive(names(ALL)), ALL, within_s=START_S)
    yield
    network.heal()


def divided(well: Iterable[int], dead: Iterable[int]) -> Callable[[View], bool]:
    wanted = dict.fromkeys(names(well), "alive") | dict.fromkeys(names(dead), "dead")
    return lambda view: {name: seen.state for name, seen in view.items()} == wanted


def test_a_full_cut(network, views):
    """Each side sees the other dead and itself well; when the cut is healed, all see all again."""
    mark = views.mark()
    network.cut(FEW, MANY)
    views.until(divided(FEW, MANY), FEW)
    views.until(divided(MANY, FEW), MANY)
    assert views.declared_dead(mark, by=names(FEW)) == set(names(MANY))
    assert views.declared_dead(mark, by=names(MANY)) == set(names(FEW))
    assert network.heal() > 0
    views.until(alive(names(ALL)), ALL)


def test_a_link_that_is_cut_one_way(network, views):
    """What n1 sends n2 is lost: others ask for the two, so that nobody is dead."""
    mark = views.mark()
    network.cut([1], [2], one_way=True)
    time.sleep(WATCHED_S)
    assert views.declared_dead(mark) == set()
    assert network.heal() > 0


def test_a_node_that_is_not_heard(network, views):
    """All that n1 sends is lost: the others see it dead and each other well, and it comes back."""
    mark, others = views.mark(), ALL[1:]
    network.cut([1], others, one_way=True)
    views.until(divided(others, [1]), others)
    assert views.declared_dead(mark, by=names(others)) == {"n1"}
    assert network.heal() > 0
    views.until(alive(names(ALL)), ALL)


def test_no_udp_between_two_sides(network, cluster, views):
    """Datagrams are lost and connections are not: nobody is declared dead, and what one side learns the other does."""
    mark = views.mark()
    network.cut(FEW, MANY, what="meta l4proto udp")
    time.sleep(WATCHED_S)
    assert views.declared_dead(mark) == set()
    cluster.stop(8)
    views.until(lambda view: view["n8"].state == "left", ALL[:-1])
    cluster.start(8)
    views.until(alive(names(ALL)), ALL)
    assert network.heal() > 0


def test_three_packets_in_ten_are_lost(network, cluster, views):
    """Nobody is declared dead who is not; who is killed is, and who is started is alive, to everybody."""
    mark = views.mark()
    network.lose(30)
    time.sleep(WATCHED_S)
    assert views.declared_dead(mark) == set()
    cluster.kill(8)
    views.until(divided(ALL[:-1], [8]), ALL[:-1])
    cluster.start(8)
    views.until(alive(names(ALL)), ALL)
    assert views.declared_dead(mark) == {"n8"}
    assert network.heal() > 0
