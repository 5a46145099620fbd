"""Garbage collection of a tombstone: every assigned replica has it, and this replica has all their records."""

from __future__ import annotations

import pytest

from gossipkv.errors import Overloaded
from gossipkv.replication.maintenance.tombstone_gc import collectable, settled
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.smeared import KEEPS_MS
from tests.unit.replication.memory import Cluster


def collect(cluster):
    for _ in range(5):
        for node in cluster.nodes:
            node.collector.look()
        cluster.run()


def deleted(cluster, *nodes):
    """Write and delete a key; deliver the delete to all nodes, or to `nodes`."""
    one = cluster.nodes[0]
    one.write(a=b"1", b=b"1")
    cluster.pass_s(0.5)
    for node in cluster.nodes:
        if nodes and node not in nodes:
            cluster.cut(node)
    one.write(a=None)
    cluster.pass_s(0.5)


def test_a_tombstone_that_all_have_goes():
    """The index row goes with the tombstone; other records stay, and no message is sent."""
    cluster = Cluster()
    deleted(cluster)
    asked = len(cluster.asked)
    assert [node.tombstones for node in cluster.nodes] == [{b"a"}] * 3
    collect(cluster)
    for node in cluster.nodes:
        assert b"\1a" not in node.spaces[node.copy.space]
        assert not node.tombstones
        assert node.live == {b"b": b"1"}
        assert node.collector.collected == 1
        assert not node.collector.held_back
    cluster.pass_s(1.0)
    assert len(cluster.asked) == asked


def test_the_dead_hold_it_back():
    """A replica that lacks the tombstone, or is unheard in this life, holds it back and is named."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    deleted(cluster, one, two)
    collect(cluster)
    assert one.tombstones == two.tombstones == {b"a"}
    assert one.collector.held_back == {one.copy: (three.uuid,)}
    cluster.connect(three)
    cluster.pass_s(0.5)
    cluster.cut(three)
    collect(cluster)
    assert not one.tombstones
    deleted(cluster)
    cluster.crash(one)
    assert collectable(one.replicas, one.copy).held_back == (two.uuid, three.uuid)
    collect(cluster)
    assert one.tombstones == {b"a"}


def test_a_tombstone_of_what_has_ended():
    """A tombstone of a removed origin goes once each host has reported its clock under that map."""
    cluster = Cluster(4)
    gone, one, *_ = cluster.nodes
    gone.write(a=b"1")
    cluster.pass_s(0.5)
    gone.write(a=None)
    cluster.pass_s(0.5)
    hosts = [host for host in one.copy.hosts if host.node != gone.uuid]
    cluster.cut(gone)
    cluster.nodes.remove(gone)
    for node in cluster.nodes:
        assert [each.tombstones for each in cluster.nodes] == [{b"a"}] * 3
        node.replicas.place(node.copy.identity, 2, hosts)
        cluster.run()
        cluster.pass_s(0.5)
        collect(cluster)
    assert [each.tombstones for each in cluster.nodes] == [set()] * 3


def test_what_others_hold_is_not_known_before_the_map_has_come():
    """In a new life nothing is collected or settled before the map has arrived."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    deleted(cluster, one, two)
    cluster.cut(one)
    one.begin()
    collect(cluster)
    assert one.tombstones == {b"a"}
    assert one.collector.held_back == {one.copy: (one.uuid,)}
    assert not any(count for _, count in clock.entries(settled(one.replicas, one.copy)))
    cluster.adopt(1, one)
    cluster.connect(one, three)
    cluster.pass_s(0.5)
    collect(cluster)
    assert not one.tombstones


def test_who_has_another_config_holds_it_back():
    """A node with another config may know other hosts, and such a host may lack the tombstone."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    deleted(cluster)
    cluster.adopt(2, one, two)
    cluster.pass_s(0.5)
    collect(cluster)
    assert one.tombstones == {b"a"}
    assert one.collector.held_back == {one.copy: (three.uuid,)}
    cluster.adopt(2, three)
    cluster.pass_s(0.5)
    collect(cluster)
    assert not one.tombstones


def test_a_copy_that_lacks_something_of_another_keeps_its_tombstones():
    """The missing record may be an older one of the same key."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    one.skew_s = 10
    cluster.cut(two)
    two.write(a=b"older")
    cluster.pass_s(0.5)
    one.write(a=None)
    cluster.pass_s(0.5)
    for node in (one, three):  # Both nodes know all clocks and still lack the record.
        feed = node.replicas.peers[two.uuid].sender
        feed.statuses[node.copy] = feed.statuses[node.copy]._replace(clock=all_of(one, two))
    collect(cluster)
    assert one.tombstones == three.tombstones == {b"a"}
    assert one.collector.held_back == {one.copy: (one.uuid,)}
    cluster.connect(two)
    cluster.until(lambda: cluster.is_caught_up)
    collect(cluster)
    assert [node.live for node in cluster.nodes] == [{}] * 3
    assert not one.tombstones


def all_of(one, other):
    return clock.merge(one.copy.synced, other.copy.synced)


def test_a_record_that_was_written_again_is_not_collected():
    """The row outlives its tombstone, which a synced or pending write has replaced."""
    cluster = Cluster()
    one = cluster.nodes[0]
    deleted(cluster)
    one.write(a=b"2", b=None)
    cluster.pass_s(0.5)
    collect(cluster)
    assert [node.live for node in cluster.nodes] == [{b"a": b"2"}] * 3
    one.write(c=b"1")
    one.write(c=None)
    cluster.pass_s(0.5)
    one.syncs = False
    one.write(c=b"2")
    one.collector.look()
    assert len(one.unsynced) == 1
    one.syncs = True
    one.sync()
    cluster.pass_s(0.5)
    assert [node.live for node in cluster.nodes] == [{b"a": b"2", b"c": b"2"}] * 3


def test_a_row_of_a_key_that_was_written_again_goes():
    """The live record stays, also while it is appended and not synced."""
    cluster = Cluster()
    one, two, _ = cluster.nodes
    deleted(cluster)
    one.write(a=b"2")
    cluster.pass_s(0.5)
    two.syncs = False
    two.write(a=None, b=None)
    collect(cluster)
    two.syncs = True
    two.sync()
    cluster.pass_s(0.5)
    collect(cluster)
    assert [node.live for node in cluster.nodes] == [{}] * 3
    assert not any(node.tombstones for node in cluster.nodes)


def test_a_copy_that_loads_collects_nothing(monkeypatch):
    """The old tombstones decide which records may not return."""
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)
    cluster = Cluster()
    one, _, three = cluster.nodes
    deleted(cluster)
    cluster.cut(three)
    one.write(**{f"k{number}": b"v" for number in range(9)})
    for node in cluster.nodes[:2]:
        node.trim()
    cluster.connect(three)
    cluster.until(lambda: three.replicas.loader.loads)
    collect(cluster)
    assert three.tombstones == {b"a"}
    cluster.until(lambda: cluster.is_caught_up)
    cluster.pass_s(0.5)
    collect(cluster)
    assert not three.tombstones


def test_a_copy_that_loads_is_left_alone(monkeypatch):
    """After the batch that drops the old space, no other batch may write to it."""
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)
    cluster = Cluster()
    one, _, three = cluster.nodes
    deleted(cluster)
    cluster.cut(three)
    one.write(**{f"k{number}": b"v" for number in range(9)})
    cluster.pass_s(0.5)
    for node in cluster.nodes[:2]:
        node.trim()
    cluster.connect(three)
    three.keeps_spaces = True
    cluster.until(lambda: not three.syncs)
    feeds = [peer.sender for peer in three.replicas.peers.values()]
    for feed in feeds:  # Let the other replicas seem to have dropped records that this replica keeps.
        feed.statuses[three.copy] = feed.statuses[three.copy]._replace(clock=three.copy.synced)
    three.collector.look()
    three.syncs, three.keeps_spaces = True, False
    assert len(three.unsynced) == 1
    three.sync()


def test_a_store_without_room_is_tried_again():
    cluster = Cluster()
    deleted(cluster)
    one = cluster.nodes[0]
    one.refuses = Overloaded("no room")
    collect(cluster)
    assert one.tombstones == {b"a"}
    assert one.collector.collected == 0
    one.refuses = None
    collect(cluster)
    assert one.collector.collected == 1


@pytest.mark.parametrize("skew_s", [3600, -3600])
def test_a_clock_that_is_off_most_others_originates_nothing(skew_s):
    """The node reports the skew, still merges entries, and writes again once its clock is right."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    cluster.now, three.skew_s = 10_000.0, skew_s  # Times before 1970 are invalid.
    cluster.connect(three)
    cluster.pass_s(0.5)
    assert not three.replicas.may_originate(three.copy)
    assert f"{skew_s:+} s from those of 2 of 2 nodes" in three.replicas.refusal(three.copy)
    assert one.replicas.may_originate(one.copy)
    two.write(a=b"1")
    cluster.pass_s(0.5)
    assert three.live == {b"a": b"1"}
    three.skew_s = 0
    cluster.connect(three)
    cluster.pass_s(0.5)
    assert three.replicas.may_originate(three.copy)


def test_who_was_not_heard_lately_does_not_count():
    """A clock reading expires after a minute."""
    cluster = Cluster()
    three = cluster.nodes[2]
    three.skew_s = 3600
    cluster.connect(three)
    cluster.pass_s(0.5)
    cluster.now += 61
    assert three.replicas.may_originate(three.copy)


def test_a_record_from_the_end_of_times_is_taken():
    """The record is merged, but its holders originate nothing, because no later time exists."""
    cluster = Cluster()
    one, two, three = cluster.nodes
    two.write(b=b"1")
    one.copy.time = (1 << 64) - 3
    one.replicas.originate({one.copy: [RecordWrite(b"a", b"1")]})
    cluster.run()
    cluster.pass_s(0.5)
    assert [node.live for node in cluster.nodes] == [{b"a": b"1", b"b": b"1"}] * 3
    assert not any(node.replicas.may_originate(node.copy) for node in (two, three))
    assert "near the largest possible one" in two.replicas.refusal(two.copy)


def test_where_puts_are_smeared_a_tombstone_stays_an_hour(monkeypatch):
    """Tombstones of smeared tables stay for an hour of local time, and young ones do not delay others."""
    cluster = Cluster()
    deleted(cluster)
    for node in cluster.nodes:
        node.copy.rules = node.copy.rules._replace(smears=True)
    collect(cluster)
    assert [node.tombstones for node in cluster.nodes] == [{b"a"}] * 3
    assert not cluster.nodes[0].collector.held_back
    times = {node: node.now_ms() for node in cluster.nodes}
    for passed_ms, left in ((KEEPS_MS - 10_000, {b"a"}), (KEEPS_MS + 1000, set())):
        for node in cluster.nodes:
            monkeypatch.setattr(node, "now_ms", lambda at_ms=times[node] + passed_ms: at_ms)
            node.replicas.skew.most_ms = 1e9
        cluster.nodes[0].write(b=None)
        collect(cluster)
        assert [node.tombstones - {b"b"} for node in cluster.nodes] == [left] * 3
    assert b"b" in cluster.nodes[0].tombstones
