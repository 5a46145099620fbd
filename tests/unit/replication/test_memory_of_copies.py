"""The memory of a replica at rest is small, since a node may hold thousands."""

from __future__ import annotations

import gc
import random
import sys

from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica
from tests.unit.replication.memory import TABLE, Cluster

COPIES = 512
CONFIG = 1 << 48
MAX_BYTES = 1536  # Per replica, with the reports of two peers and the record of own reports.
MAX_WRITTEN_BYTES = 2048  # The same after a write.


def placed():
    """Return three nodes that hold the same partitions, under ids of realistic size."""
    cluster, chance = Cluster(adopts=False), random.Random(1)
    for _ in range(COPIES):
        partition, ids = chance.getrandbits(63), [chance.getrandbits(63) for _ in cluster.nodes]
        slots = chance.sample(range(3), 3)
        hosts = [
            AssignedReplica(id_, node.uuid, slot, counts=True, available=True)
            for id_, node, slot in zip(ids, cluster.nodes, slots, strict=True)
        ]
        for id_, node in zip(ids, cluster.nodes, strict=True):
            node.replicas.place(ReplicaIdentity(TABLE, partition, id_), CONFIG, hosts)
    cluster.run()
    cluster.connect()
    cluster.pass_s(1.0)
    return cluster


def size_bytes(root, but):
    """Return the size of all objects reachable from `root` but not `but`."""
    seen, size, left = {id(one) for one in but}, 0, [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type | type(sys) | type(placed)):
            seen.add(id(one))
            size += sys.getsizeof(one)
            left += gc.get_referents(one)
    return size


def at_rest(node):
    """Return the bytes per replica, with the reports from and to peers."""
    return size_bytes(node.replicas, but=[node, node.cluster, node.replicas.tail]) / COPIES


def test_a_copy_at_rest_is_small():
    """Two peers have exchanged reports with the node, and no client has used it."""
    one = placed().nodes[0]
    assert len(one.replicas.by_partition) == COPIES
    assert at_rest(one) < MAX_BYTES


def test_a_copy_that_was_written_to_is_little_more():
    """The pending state of a write is released; feed statuses and the log's end remain."""
    cluster = placed()
    one = cluster.nodes[0]
    for copy in one.replicas.by_partition.values():
        one.replicas.originate({copy: [RecordWrite(b"key", bytes(100))]})
        one.replicas.acks[copy].wait("majority", 1, lambda: None)
    cluster.run()
    cluster.pass_s(2.0)
    for copy in cluster.nodes[2].replicas.by_partition.values():
        assert sum(count for _, count in clock.entries(copy.synced)) == 1
    assert at_rest(one) < MAX_WRITTEN_BYTES
