"""Helpers of `test_replication_aimed.py` and `test_replication_aimed_slow.py`."""

from __future__ import annotations

from gossipkv.replication.replica.acks import ONE
from gossipkv.replication.replica.record import RecordWrite
from tests.world.replication.world import stage

KEY = b"key"
FIRST = 0  # A partition whose replicas are at the nodes in their order.


def staged(play, seed=1, **how):
    witness = stage(play, seed, **how)
    assert not witness.violations, witness.violations[0]
    return witness


def ways(cluster, *pairs):
    """Cut the one-way links between the pairs, and return the cuts."""
    cuts = {(cluster.nodes[source].uuid, cluster.nodes[to].uuid) for source, to in pairs}
    cluster.network.cuts |= cuts
    return cuts


def put(cluster, at, value=b"value", level=ONE, key=KEY):
    """Write to the first partition at node `at`, and return the number of the write."""
    number = cluster.have(cluster.nodes[at], FIRST, [RecordWrite(key, value)], level, 1.0)
    assert number is not None
    return number
