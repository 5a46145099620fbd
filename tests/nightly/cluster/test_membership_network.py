"""Eight real nodes in network namespaces: cut apart, cut one way, without UDP, with 30 % packet loss."""

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
WATCHED_S = 16  # This exceeds the longest suspicion of a cluster of this size, 12 s.
START_S = 400.0  # Eight nodes start at once, on a machine that may be busy.


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if (reason := networks.missing()) is not None:
        pytest.skip(reason)
    with Network(N) as network:
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**LOGGED, "insecure_gossip": "true"}  # The network is private.
    place = tmp_path_factory.mktemp("eight")
    with Cluster(place, places=network.places(), settings=settings, ready_timeout_s=START_S) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def views(network: Network, cluster: Cluster) -> Views:
    """The nodes' views, read at the switch, which no cut affects."""
    return Views(cluster, lambda node: network.ask(node, "members"))


@pytest.fixture(autouse=True)
def whole(network: Network, views: Views) -> Iterator[None]:
    """All nodes are alive before each test; all rules are removed afterwards."""
    views.until(alive(names(ALL)), ALL, within_s=START_S)
    yield
    network.heal()


def divided(well: Iterable[int], dead: Iterable[int]) -> Callable[[View], bool]:
    wanted = dict.fromkeys(names(well), "alive") | dict.fromkeys(names(dead), "dead")
    return lambda view: {name: seen.state for name, seen in view.items()} == wanted


def test_a_full_cut(network, views):
    """Each side sees the other dead and itself alive; after the cut is healed, all see all again."""
    mark = views.mark()
    network.cut(FEW, MANY)
    views.until(divided(FEW, MANY), FEW)
    views.until(divided(MANY, FEW), MANY)
    assert views.declared_dead(mark, by=names(FEW)) == set(names(MANY))
    assert views.declared_dead(mark, by=names(MANY)) == set(names(FEW))
    assert network.heal() > 0
    views.until(alive(names(ALL)), ALL)


def test_a_link_that_is_cut_one_way(network, views):
    """With packets from n1 to n2 lost, other nodes probe on behalf of both, and no node is declared dead."""
    mark = views.mark()
    network.cut([1], [2], one_way=True)
    time.sleep(WATCHED_S)
    assert views.declared_dead(mark) == set()
    assert network.heal() > 0


def test_a_node_that_is_not_heard(network, views):
    """With all packets from n1 lost, the others see n1 dead and each other alive, and n1 comes back."""
    mark, others = views.mark(), ALL[1:]
    network.cut([1], others, one_way=True)
    views.until(divided(others, [1]), others)
    assert views.declared_dead(mark, by=names(others)) == {"n1"}
    assert network.heal() > 0
    views.until(alive(names(ALL)), ALL)


def test_no_udp_between_two_sides(network, cluster, views):
    """With only datagrams lost, no node is declared dead, and news still passes between the sides."""
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
    """No living node is declared dead; a killed node is, and after its restart all see it alive."""
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
