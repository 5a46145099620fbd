"""Expired records leave the disks of simulated nodes, and no older record comes back."""

from __future__ import annotations

from unittest import mock

import pytest
import trio

from gossipkv.placement.partition import AssignmentState
from gossipkv.replication.maintenance import expiry
from gossipkv.replication.maintenance.tombstone_gc import Collectable
from gossipkv.replication.replica.acks import ALL, MAJORITY
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica_set import CLOCK_S
from tests.simulation.staged_copies import FIRST, KEY, put, staged, ways
from tests.simulation.test_divisions_aimed import HIGH, LOW, WHOLE, adopted, divide
from tests.simulation.test_moves_aimed import begun, left
from tests.world.replication.world import stage

TTL_MS = 100


async def merged(cluster, *nodes):
    """Let all records expire, and merge those of the nodes."""
    await trio.sleep(1.0)
    for node in nodes:
        node.life.fill()
    await trio.sleep(1.0)


async def an_older_record_comes_late(cluster):
    """One node alone has an older record without expiry; it lacks the expired record while the others merge."""
    one, two, late = cluster.nodes
    late.skew_ms = -500
    cuts = ways(cluster, (0, 2), (1, 2), (2, 0), (2, 1))
    put(cluster, 2, b"older")
    cluster.have(one, FIRST, [RecordWrite(KEY, b"v", expiry=-TTL_MS)], MAJORITY, 1.0)
    await merged(cluster, one, two)
    cluster.network.heal(cuts)
    await cluster.until(lambda: cluster.is_caught_up)
    await merged(cluster, *cluster.nodes)


def test_an_expired_record_leaves_once_all_have_it():
    witness = staged(an_older_record_comes_late)
    assert witness.counts["expired"] == 3


def test_a_record_that_leaves_too_early_is_found():
    """The plant: a merge takes everything that a node has for settled."""

    def all_of_it(_, replica):
        return Collectable(replica.synced, ended=True, held_back=())

    with mock.patch.object(expiry, "collectable", all_of_it):
        witness = stage(an_older_record_comes_late)
    assert {"collected", "older wins"} <= {violation.checker for violation in witness.violations}


def test_expired_records_of_a_split_range_leave():
    """Children know what all replicas of their parent had confirmed, once they have heard of each other."""

    async def play(cluster):
        for key in (LOW, HIGH):
            cluster.have(cluster.nodes[0], WHOLE, [RecordWrite(key, b"v", expiry=-TTL_MS)], ALL, 1.0)
        await trio.sleep(0.5)
        await divide(cluster, 0, HIGH)
        await adopted(cluster, 0, 1, 2)
        await merged(cluster, *cluster.nodes)

    assert staged(play, ranges=1).counts["expired"] == 6


@pytest.mark.parametrize("expires_ms", [TTL_MS, 60_000], ids=["expired before", "present"])
def test_records_of_an_assignment_that_has_ended_leave(expires_ms):
    """The first node is replaced: the newcomer loads the record, expired or not, and lets it go like the others."""

    async def play(cluster):
        cluster.have(cluster.nodes[0], FIRST, [RecordWrite(KEY, b"v", expiry=-expires_ms)], ALL, 1.0)
        await trio.sleep(0.5)
        await begun(cluster, AssignmentState.AVAILABLE)
        await left(cluster)
        await cluster.until(lambda: cluster.is_done, 20.0)
        assert len({*cluster.newest(FIRST, KEY)}) == 1
        for node in cluster.nodes:
            node.skew_ms += expires_ms
        await trio.sleep(CLOCK_S + 5)  # Peers are asked in multiples of five seconds.
        await merged(cluster, *cluster.nodes[1:])

    assert staged(play, spare=1).counts["expired"] == 3


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_an_expired_record_stays_absent_after_a_restart_with_a_slower_clock(is_stopped, power):
    """The node's time for reads is on disk: exactly after a stop, as of the last count of requests after a crash."""

    async def play(cluster):
        node = cluster.nodes[0]
        cluster.have(node, FIRST, [RecordWrite(KEY, b"v", expiry=-TTL_MS)], ALL, 1.0)
        await trio.sleep(1.0)
        skew = node.life.replication.replicas.skew
        before_ms, now_ms = skew.expiry_ms(), int(trio.current_time() * 1000)
        if is_stopped:
            node.life.replication.keep_places(is_read=True)
        else:
            for replica in node.life.replication.replicas.by_partition.values():
                replica.requests += 1
            await node.life.measuring.count(10.0)
        await trio.sleep(0.5)
        node.life.end(power=power)
        node.skew_ms = -20_000
        node.start()
        await cluster.until(lambda: node.life is not None and node.life.replication.replicas.by_partition)
        after_ms = node.life.replication.replicas.skew.expiry_ms()
        passed_ms = int(trio.current_time() * 1000) - now_ms
        assert after_ms <= before_ms + passed_ms
        assert after_ms >= before_ms

    staged(play)
