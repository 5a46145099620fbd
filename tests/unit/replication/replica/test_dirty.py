"""Upkeep: a copy that rests is left alone, and one that has changed is looked at again, also after a restart."""

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
        """Have all nodes look at what is to be looked at; how many scans and questions that took."""
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
    """Three nodes at rest, which have looked at their copies."""
    watched = Watched(monkeypatch)
    watched.cluster.nodes[0].write(a=b"1", b=b"1")
    watched.cluster.pass_s(0.5)
    assert watched.look() > (0, 0)
    return watched


def test_a_copy_at_rest_is_left_alone(watched):
    """It is not scanned, and nobody is asked about it, however long it rests."""
    assert watched.look(100) == (0, 0)


def test_a_copy_without_deletes_is_not_swept_again(watched):
    """A put has its digest made anew, and no tombstone looked for."""
    watched.cluster.nodes[0].write(b=b"2")
    watched.cluster.pass_s(0.5)
    assert watched.look() == (3, 6)  # A page each, and two others that are asked.


def test_what_was_deleted_is_collected_and_then_left_alone(watched):
    """By the nodes that took the delete as well."""
    watched.cluster.nodes[0].write(a=None)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert [node.collector.collected for node in watched.cluster.nodes] == [1, 1, 1]
    assert watched.look(100) == (0, 0)


def test_what_is_held_back_is_looked_at_until_it_goes(watched):
    """A node that is away holds it; once it is back all is collected, and left alone."""
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
    """Tombstones of the former life are collected, and a copy that differs is found, though nothing changes."""
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
    """In a new life they are passed over while it loads, and not forgotten; nor are those that it brings."""
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
    watched.cluster.until(lambda: watched.cluster.is_level)
    watched.cluster.pass_s(0.5)
    watched.look()
    assert not any(node.tombstones for node in watched.cluster.nodes)
    assert watched.look(100) == (0, 0)
