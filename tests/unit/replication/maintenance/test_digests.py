"""Digests: replicas with equal clocks and different live records are reported."""

from __future__ import annotations

from gossipkv.replication.maintenance.digests import HOUR_MS
from gossipkv.replication.replica.record import RecordWrite
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
    sums = [node.digests.digest(node.copy, one.copy.synced, 0) for node in (one, three)]
    assert sums[0] == sums[1]


def test_a_replica_without_any_expiring_record_left_equals_one_with_some():
    """Its digest holds for every time, since no record of it expires."""
    cluster = Cluster()
    one, two, _ = cluster.nodes
    one.replicas.originate({one.copy: [RecordWrite(b"k", b"v"), RecordWrite(b"soon", b"v", expiry=-1)]})
    cluster.pass_s(0.5)
    del two.spaces[two.copy.space][b"\1soon"]
    compare(cluster)
    assert (one.copy.digest.sum, one.copy.digest.at_ms > 0) == (two.copy.digest.sum, two.copy.digest.at_ms == 0)
    assert not any(node.told for node in cluster.nodes)


def test_records_that_expire_at_different_times_are_no_difference():
    """A pass omits records of its hour, so replicas agree whichever has dropped them; a later hour is compared anew."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    ttls = {b"soon": -1, b"later": -3 * HOUR_MS}
    one.replicas.originate({one.copy: [RecordWrite(key, b"v", expiry=ttl) for key, ttl in ttls.items()]})
    cluster.pass_s(0.5)
    del two.spaces[two.copy.space][b"\1soon"]
    compare(cluster)
    assert one.copy.digest.records == two.copy.digest.records == 1
    before = one.copy.digest.at_ms
    cluster.pass_s(HOUR_MS / 1000)
    three.replicas.dirty.moved(three.copy)
    three.copy.digest = None
    compare(cluster)
    assert one.copy.digest.at_ms == three.copy.digest.at_ms > before
    del two.spaces[two.copy.space][b"\1later"]
    assert not any(node.told for node in cluster.nodes)
    two.replicas.dirty.moved(two.copy)
    two.copy.digest = None
    compare(cluster)
    assert [node.number for node in cluster.nodes if node.told] == [2], "a record that has not expired is missing"
