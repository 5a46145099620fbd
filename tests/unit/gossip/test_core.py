"""Cores over a fake link start, join, probe, suspect, refute and leave."""

from __future__ import annotations

from gossipkv.gossip.packets.prefix import NO_CLUSTER
from tests.unit.gossip.links import Link, all_alive, all_see, no_id


def test_a_lone_node_draws_a_cluster_id():
    """The first node forms a cluster, and uses its id only after it is stored."""
    link = Link()
    node = link.start(no_id(link, "a"))
    assert node.envelope.cluster_id == NO_CLUSTER
    link.run(100)
    (store,) = node.stores
    assert node.envelope.cluster_id == store.cluster_id != NO_CLUSTER
    assert node.states() == {"a": "ALIVE"}


def test_joining_takes_the_cluster_id():
    """The node takes the id of its seed, and both know each other."""
    link = Link()
    first = link.start(no_id(link, "a"))
    link.run(100)
    second = link.start(no_id(link, "b"), first)
    assert link.run(1000, lambda: all_alive([first, second]))
    assert second.envelope.cluster_id == first.envelope.cluster_id


def test_a_cluster_forms():
    link = Link()
    nodes = link.cluster(12)
    assert all_alive(nodes)
    assert link.run(20_000, lambda: not all_alive(nodes)) is False


def test_the_dead_are_found():
    link = Link()
    nodes = link.cluster(8)
    lost = nodes.pop()
    link.kill(lost)
    dead = {node.me.name: "ALIVE" for node in nodes} | {lost.me.name: "DEAD"}
    assert link.run(10_000, lambda: all_see(nodes, dead))
    changes = [one.member.state.name for one in nodes[0].changes if one.member.name == "n07"]
    assert changes == ["ALIVE", "SUSPECT", "DEAD"]


def test_who_is_suspected_refutes():
    """A node that stood still for a while is suspected, refutes, and is alive everywhere."""
    link = Link()
    nodes = link.cluster(8)
    slow = nodes[3]
    link.freeze(slow)
    assert link.run(6000, lambda: nodes[0].states()["n03"] == "SUSPECT")
    link.thaw(slow)
    assert link.run(2000, lambda: all_alive(nodes))
    assert slow.core.members.own.incarnation > 0


def test_leaving_is_told():
    """All nodes see the departure within a second and a half."""
    link = Link()
    nodes = link.cluster(8)
    gone = nodes.pop()
    gone.core.leave(now_ms=link.now_ms)
    link.settle(gone)
    left = {node.me.name: "ALIVE" for node in nodes} | {gone.me.name: "LEFT"}
    assert link.run(1500, lambda: all_see(nodes, left))


def test_a_cut_heals():
    """Two halves that took each other for dead reunite by themselves."""
    link = Link()
    nodes = link.cluster(8)
    left = {node.address for node in nodes[:4]}
    link.cut = lambda source, to: (source in left) != (to in left)
    link.run(40_000)
    assert sorted(nodes[0].states().values()) == ["ALIVE"] * 4 + ["DEAD"] * 4
    link.cut = lambda source, to: False
    assert link.run(35_000, lambda: all_alive(nodes))
