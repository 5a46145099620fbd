"""The target of a move is fed by its hosts and feeds no other node."""

from __future__ import annotations

from itertools import combinations

import pytest

from gossipkv.errors import Overloaded
from gossipkv.replication.replica import clock
from gossipkv.replication.replica_set import ASK_OWN_S, ReplicaSet
from tests.unit.replication.memory import Cluster
from tests.unit.replication.moved import AVAILABLE, LOADING, PROPOSED, adopt, cut, heal, records


@pytest.fixture
def cluster():
    """Return three connected hosts, and a spare node."""
    cluster = Cluster(4, adopts=False)
    adopt(cluster, 1, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE)
    cluster.connect()
    cluster.pass_s(ASK_OWN_S)
    return cluster


def test_a_target_is_fed_what_comes_after_the_adoption(cluster):
    """Each host feeds later writes only; tombstones of earlier writes may be collected already."""
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
    """The predecessor of a span may never arrive, since its only holder may have fed other replicas before."""
    one, two, three, target = cluster.nodes
    for other in (two, three):
        cut(cluster, one, other)
    one.write(a=b"1")
    adopt(cluster, 2, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=PROPOSED)
    one.write(b=b"2")
    cluster.pass_s(0.5)
    adopt(cluster, 3, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=LOADING)
    cluster.until(lambda: target.copy.joining.is_loaded)  # The load came from the third host, which has no records.
    cluster.until(lambda: target.copy.joining is None, most_s=5.0)
    cluster.pass_s(1.0)
    assert records(target) == {b"a", b"b"}


def test_hosts_need_not_hear_that_a_target_takes_no_entries(cluster, monkeypatch):
    """The end of a load may come before the report of its last step, so that no host ever sees the target frozen."""
    changes = ReplicaSet.changes

    def unfrozen(replicas, replica):
        if not replica.is_frozen:
            changes(replicas, replica)

    monkeypatch.setattr(ReplicaSet, "changes", unfrozen)
    test_what_stays_open_is_let_go_of_and_loaded_anew(cluster)


def test_a_target_that_begins_anew_is_not_looked_at_without_end(cluster):
    """The store has no room at first, and syncs late; then no host is reached to load from."""
    one, two, three, target = cluster.nodes
    for other in (two, three):
        cut(cluster, one, other)
    one.write(a=b"1")
    adopt(cluster, 2, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=PROPOSED)
    one.write(b=b"2")
    cluster.pass_s(0.5)
    adopt(cluster, 3, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n4=LOADING)
    loader = target.replicas.loader
    cluster.until(lambda: target.copy.joining.is_loaded)
    target.refuses = Overloaded("no room")
    for _ in range(30):
        cluster.pass_s(0.1)
        assert loader.due > cluster.now
    target.refuses, target.syncs = None, False
    cluster.until(lambda: loader.loads)
    target.wake()
    cluster.pass_s(0.1)
    for host in (one, two, three):
        cut(cluster, host, target)
    target.syncs = True
    target.sync()
    cluster.pass_s(3.0)
    assert not target.copy.joining.is_loaded
    assert loader.due > cluster.now


@pytest.fixture
def torn():
    """Return a target with open spans of two isolated hosts, after a load from the third host.

    The third host has no records.
    """
    cluster = Cluster(5, adopts=False)
    hosts = dict.fromkeys(("n1", "n2", "n3", "n5"), AVAILABLE)
    adopt(cluster, 1, **hosts)
    cluster.connect()
    cluster.pass_s(ASK_OWN_S)
    one, two, three, target, five = cluster.nodes
    for this, other in combinations((one, two, three, five), 2):
        cut(cluster, this, other)
    one.write(a=b"1")
    two.write(x=b"1")
    adopt(cluster, 2, **hosts, n4=PROPOSED)
    one.write(b=b"2")
    two.write(y=b"2")
    cluster.pass_s(0.5)
    adopt(cluster, 3, **hosts, n4=LOADING)
    cluster.until(lambda: target.copy.joining.is_loaded)
    assert records(target) == {b"b", b"y"}
    return cluster


def test_a_target_feeds_nobody(torn):
    """A closing span makes the clock jump over early records; a peer fed only that entry would lack them."""
    one, _, three, target, five = torn.nodes
    target.replicas.tail._most_bytes = 1 << 20  # The target need not read its log.
    heal(torn, one, five)  # The fifth host has the predecessor of the first host's span.
    torn.until(lambda: clock.counter(target.copy.synced, 1) == 2)
    torn.pass_s(1.0)
    assert target.copy.joining is not None
    assert (records(target), records(three)) == ({b"a", b"b", b"y"}, set())
    assert clock.counter(three.copy.synced, 1) == 0


def test_the_log_of_a_target_feeds_nobody(torn):
    """After a restart, the complete target no longer knows the start of its former log."""
    one, two, three, target, five = torn.nodes
    heal(torn, one, five)
    heal(torn, two, five)
    torn.until(lambda: target.copy.joining is None)
    had = records(target)
    assert had == {b"a", b"b", b"x", b"y"}
    target.begin()
    adopt(torn, 3, n1=AVAILABLE, n2=AVAILABLE, n3=AVAILABLE, n5=AVAILABLE, n4=LOADING)
    heal(torn, target, three)
    torn.pass_s(1.0)
    assert (records(target), records(three)) == (had, set())
    assert clock.entries(three.copy.synced) == [(origin, 0) for origin in range(1, 6)]
