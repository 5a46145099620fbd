"""Digests: replicas with equal clocks and different live records are reported."""

from __future__ import annotations

from tests.unit.replication.memory import Cluster


def compare(cluster):
    for _ in range(20):
        for node in cluster.nodes:
            node.digests.look()
        cluster.pass_s(0.05)


def written():
    """Return a cluster with records and a tombstone that only the first node has collected."""
    cluster = Cluster()
    one, two, _ = cluster.nodes
    one.write(**{f"k{number}": b"v" for number in range(7)})
    two.write(k0=None)
    cluster.pass_s(0.5)
    for _ in range(9):
        one.collector.look()
    cluster.run()
    return cluster


def test_what_is_equal_is_not_told():
    """Tombstones do not count; replicas at rest are not read or asked again."""
    cluster = written()
    compare(cluster)
    assert not any(node.told for node in cluster.nodes)
    asked = [method for method, _ in cluster.asked].count("replica_digest")
    assert asked == 6
    compare(cluster)
    assert [method for method, _ in cluster.asked].count("replica_digest") == asked


def test_what_differs_is_told():
    """The later node to look reports the difference once, and no record changes."""
    cluster = written()
    one, two, three = cluster.nodes
    records = three.spaces[three.copy.space]
    records[b"\1k3"] = records[b"\1k3"][:-1] + b"w"
    compare(cluster)
    told = [(node.number, what) for node in cluster.nodes for what in node.told]
    assert {frozenset({number, other}) for number, (_, other) in told} == {frozenset({1, 3}), frozenset({2, 3})}
    assert three.live[b"k3"] == b"w"
    assert one.live[b"k3"] == two.live[b"k3"] == b"v"
    assert any(node.digests.differ for node in cluster.nodes)
    one.write(k3=b"x")  # The new write is the same everywhere, so the difference is gone.
    cluster.pass_s(0.5)
    compare(cluster)
    assert not any(nodes for node in cluster.nodes for nodes in node.digests.differ.values())


def test_a_clock_that_moves_has_it_begun_again():
    """A digest belongs to one clock, so a concurrent write is no difference."""
    cluster = written()
    one, _, three = cluster.nodes
    for _ in range(9):
        three.digests.look()
    cluster.run()
    one.digests.look()
    one.write(k6=b"w")
    cluster.cut(three)  # The third node answers with its digest of the former clock.
    three.replicas.connected(one.uuid)
    one.digests.look()
    cluster.connect()
    for _ in range(9):
        one.digests.look()
    compare(cluster)
    assert not any(node.told for node in cluster.nodes)
    assert one.digests.digest(one.copy, one.copy.synced) == three.digests.digest(three.copy, one.copy.synced)
