"""Maintenance leaves resting replicas alone, and looks again after changes and restarts."""

from __future__ import annotations

import pytest

from tests.unit.replication.memory import Cluster


class Watched:
    """Nodes whose scans and questions are counted."""

    def __init__(self, monkeypatch):
        self.cluster = Cluster()
        self.scans = 0
        for node in self.cluster.nodes:
            monkeypatch.setattr(node, "scan", self._counted(node.scan))

    def _counted(self, scan):
        def counted(*where, **how):
            self.scans += 1
            return scan(*where, **how)

        return counted

    def look(self, rounds=20):
        """Run maintenance on all nodes; return the number of scans and of questions."""
        before = self.scans, len(self.cluster.asked)
        for _ in range(rounds):
            for node in self.cluster.nodes:
                node.collector.look()
                node.digests.look()
            self.cluster.pass_s(0.05)
        self.cluster.pass_s(0.5)
        return self.scans - before[0], len(self.cluster.asked) - before[1]


@pytest.fixture
def watched(monkeypatch):
    """Return three nodes at rest that have looked at their replicas."""
    watched = Watched(monkeypatch)
    watched.cluster.nodes[0].write(a=b"1", b=b"1")
    watched.cluster.pass_s(0.5)
    assert watched.look() > (0, 0)
    return watched


def test_a_copy_at_rest_is_left_alone(watched):
    assert watched.look(100) == (0, 0)


def test_a_copy_without_deletes_is_not_swept_again(watched):
    """A put causes a new digest but no search for tombstones."""
    watched.cluster.nodes[0].write(b=b"2")
    watched.cluster.pass_s(0.5)
    assert watched.look() == (3, 6)  # Each node reads a page and asks two others.


def test_what_was_deleted_is_collected_and_then_left_alone(watched):
    """The nodes that merged the delete collect it, too."""
    watched.cluster.nodes[0].write(a=None)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert [node.collector.collected for node in watched.cluster.nodes] == [1, 1, 1]
    assert watched.look(100) == (0, 0)


def test_what_is_held_back_is_looked_at_until_it_goes(watched):
    """An absent node holds back the tombstone; after its return, all nodes collect it and rest."""
    one, two, three = watched.cluster.nodes
    watched.cluster.cut(three)
    one.write(a=None)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert one.tombstones == two.tombstones == {b"a"}
    watched.cluster.connect(three)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert not any(node.tombstones for node in watched.cluster.nodes)
    assert watched.look(100) == (0, 0)


def test_a_restart_learns_what_there_is(watched):
    """A restarted node collects old tombstones and finds a differing replica, without any change."""
    one, two, _ = watched.cluster.nodes
    one.write(a=None)
    watched.cluster.pass_s(0.5)
    records = two.spaces[two.copy.space]
    records[b"\1b"] = records[b"\1b"][:-1] + b"w"
    watched.cluster.crash(two)
    watched.cluster.connect(two)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert two.collector.collected == 1
    assert not two.tombstones
    assert ("differs", 1) in two.told or ("differs", 2) in one.told
    assert watched.look(100) == (0, 0)


def test_a_load_that_is_torn_leaves_the_tombstones_to_be_looked_at(watched, monkeypatch):
    """Tombstones that a torn load has skipped or brought are collected later."""
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)
    one, two, three = watched.cluster.nodes
    one.write(a=None)
    watched.cluster.pass_s(0.5)
    watched.cluster.cut(three)
    one.write(b=None, **{f"k{number}": b"v" for number in range(9)})
    for node in (one, two):
        node.trim()
    watched.cluster.crash(three)
    watched.cluster.connect(three)
    watched.cluster.until(lambda: three.replicas.loader.loads)
    three.collector.look()
    watched.cluster.cut(three)
    assert "began" in three.told
    assert three.tombstones == {b"a"}
    assert [*three.replicas.dirty.unswept] == [three.copy]
    watched.cluster.connect(three)
    watched.cluster.until(lambda: watched.cluster.is_caught_up)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert not any(node.tombstones for node in watched.cluster.nodes)
    assert watched.look(100) == (0, 0)
