"""A target among the hosts of a partition that moves, in memory: what it is fed, and that it feeds nobody."""

from __future__ import annotations

import pytest

from gossipkv.replication import clock
from gossipkv.replication.replicas import ASK_OWN_S
from tests.unit.replication.memory import Cluster
from tests.unit.replication.moved import AVAILABLE, LOADING, PROPOSED, adopt, cut, heal, records


@pytest.fixture
def cluster():
    """Three hosts that have a record."""
    cluster = Cluster(4, adopts=False)
    adopt(cluster, 1, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE)
    cluster.connect()
    cluster.pass_s(ASK_OWN_S)
    return cluster


def test_a_target_is_fed_what_comes_after_the_adoption(cluster):
    """By each host; what was written before may have a tombstone that is collected already."""
    one, two, _, target = cluster.nodes
    one.write(old=b"1")
    two.write(older=b"1")
    cluster.pass_s(0.5)
    adopt(cluster, 2, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=PROPOSED)
    cluster.pass_s(0.5)
    one.write(new=b"2")
    two.write(newer=b"2")
    cluster.pass_s(1.0)
    assert records(target) == {b"new", b"newer"}


def test_what_stays_open_is_let_go_of_and_loaded_anew(cluster):
    """What a span goes on from may never come: who had it alone has fed others before, or is to be loaded from."""
    one, two, three, target = cluster.nodes
    for other in (two, three):
        cut(cluster, one, other)
    one.write(a=b"1")
    adopt(cluster, 2, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=PROPOSED)
    one.write(b=b"2")
    cluster.pass_s(0.5)
    adopt(cluster, 3, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=LOADING)
    cluster.until(lambda: target.copy.joining.is_loaded)  # From the third, which has nothing.
    cluster.until(lambda: target.copy.joining is None, most_s=5.0)
    cluster.pass_s(1.0)
    assert records(target) == {b"a", b"b"}


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_a_target_feeds_nobody(cluster, tail_bytes):
    """By what closes a span its clock takes what it merged before: who took that entry alone would lack the rest."""
    one, two, three, target = cluster.nodes
    target.replicas.tail._most_bytes = tail_bytes
    for other in (two, three):
        cut(cluster, one, other)
    cut(cluster, two, three)
    one.write(a=b"1")
    adopt(cluster, 2, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=PROPOSED)
    one.write(b=b"2")
    cluster.pass_s(0.5)
    assert records(target) == {b"b"}
    adopt(cluster, 3, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=LOADING)
    cluster.until(lambda: target.copy.joining.is_loaded)  # From the third, which has nothing.
    heal(cluster, one, two)
    cluster.until(lambda: target.copy.joining is None)
    one.write(c=b"3")  # Once it is whole it passes that on, and reads its log for it.
    cluster.pass_s(5.0)
    assert (records(target), records(three)) == ({b"a", b"b", b"c"}, set())
    assert clock.counter(three.copy.synced, 1) == 0
