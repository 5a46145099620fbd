"""A partition that moves among in-memory nodes, with control over adopted maps and links."""

from __future__ import annotations

from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
from tests.unit.replication.memory import TABLE

AVAILABLE, PROPOSED, LOADING = "AVAILABLE", "PROPOSED", "LOADING"
SLOTS = {1: 0, 2: 1, 3: 2, 4: 2, 5: 3}  # By node; the fourth node takes the slot of the third.


def adopt(cluster, config, **states):
    states = {int(name[1:]): state for name, state in states.items()}
    hosts = [
        AssignedReplica(one, cluster.nodes[one - 1].uuid, SLOTS[one], counts=True, available=state == AVAILABLE)
        for one, state in states.items()
    ]
    for one, state in states.items():
        rules = PartitionRules(3, loads=state == LOADING)
        cluster.nodes[one - 1].replicas.place(ReplicaIdentity(TABLE, 7, one), config, hosts, rules)
    cluster.run()


def cut(cluster, one, other):
    cluster.cuts |= {(one, other), (other, one)}
    one.replicas.disconnected(other.uuid)
    other.replicas.disconnected(one.uuid)


def heal(cluster, one, other):
    cluster.cuts -= {(one, other), (other, one)}
    one.replicas.connected(other.uuid)
    other.replicas.connected(one.uuid)


def records(node):
    """Return the keys of a node's records."""
    return {key[1:] for key in node.spaces[node.copy.space] if key[:1] == b"\1"}
