"""Scenarios of the ring that assigns builds to nodes."""

from __future__ import annotations

from tests.world.datasets.sharing_cluster import TERMS, SharingCluster
from tests.world.gossip.members import SETTLE_MS


def automatic_ids_at_once():
    """Eight nodes start in one moment and claim the same ids; each partition finally has its owners."""
    cluster = SharingCluster(1, 8)
    cluster.offer("1", partitions=16)
    cluster.start(within_ms=1)
    cluster.until_active("1", within_s=60)
    cluster.readers.begin(20)
    cluster.run(10)
    copies = sum(len(disk.versions["1"].ready) for disk in cluster.shared.disks.values() if disk.versions)
    if copies != TERMS.replication * 16:
        cluster.checkers.found("shares", "-", f"{copies} copies of 16 partitions")
    cluster.must_not_fail()
    return cluster.checkers.result()


def all_who_are_expected():
    """Four nodes that expect each other get shares before gossip settles, and each partition has its owners.

    A later node is awaited as any newcomer is. After a restart of all nodes the ring is the former one.
    """
    cluster = SharingCluster(1, 4, expected=4)
    cluster.offer("1", partitions=16)
    cluster.start(within_ms=1)
    cluster.until(lambda: ring_sizes(cluster) == {4}, "no ring", within_s=SETTLE_MS / 2_000)
    cluster.until_active("1", within_s=60)
    cluster.run(10)
    copies = sum(len(disk.versions["1"].ready) for disk in cluster.shared.disks.values())
    if copies != TERMS.replication * 16:
        cluster.checkers.found("shares", "-", f"{copies} copies of 16 partitions")
    cluster.readers.begin(20)
    cluster.add().start()
    cluster.until(lambda: ring_sizes(cluster) == {5}, "it does not grow", within_s=60)
    cluster.must_not_fail()
    for machine in cluster.machines:
        machine.crash()
        machine.start()
    cluster.until_active("1", within_s=60)
    cluster.run(10)
    if ring_sizes(cluster) != {5}:
        cluster.checkers.found("ring", "-", f"{ring_sizes(cluster)}")
    return cluster.checkers.result()


def ring_sizes(cluster):
    """Return the sizes of the stored rings."""
    return {len(disk.ring) for disk in cluster.shared.disks.values()}
