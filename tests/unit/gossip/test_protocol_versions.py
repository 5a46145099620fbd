"""Cores of releases that speak different protocol versions, over a fake link."""

from __future__ import annotations

import pytest

from gossipkv.gossip.member import MemberState
from gossipkv.protocol import ProtocolVersions
from tests.unit.gossip.links import Link, Node, all_alive

OLD, NEW, LATER = ProtocolVersions(1, 1), ProtocolVersions(1, 2), ProtocolVersions(2, 3)
NAMES = ("n00", "n01", "n02")
PATIENCE_MS = 60_000


def replaced(link: Link, nodes: list[Node], index: int, versions: ProtocolVersions, *, sealed: bool = False) -> Node:
    """Stop a node, and start its next release in its place."""
    before = nodes[index]
    before.core.leave(now_ms=link.now_ms)
    link.settle(before)
    link.run(1000)
    link.kill(before)
    node = link.node(
        before.me.name, port=before.address.port, epoch=before.me.epoch + 1, versions=versions, sealed=sealed
    )
    nodes[index] = link.start(node, remembered=tuple(other.address for other in nodes if other is not before))
    return node


def protocols(nodes: list[Node]) -> list[int]:
    """Return the version in which each node writes, by its core and by its envelope."""
    assert [node.core.protocol for node in nodes] == [node.envelope.version for node in nodes]
    return [node.core.protocol for node in nodes]


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize(
    ("here", "there", "agreed"), [(OLD, NEW, (1, 1, 2)), (NEW, LATER, (2, 2, 3))], ids=["newest", "range"]
)
def test_a_cluster_rolls_to_the_next_release_and_back(
    here: ProtocolVersions, there: ProtocolVersions, agreed: tuple[int, ...], *, sealed: bool
) -> None:
    """All nodes see each other at each step, and write the new version only while all members announce it."""
    link = Link()
    nodes = link.cluster(3, versions=here, sealed=sealed)
    for versions, expected in ((there, agreed), (here, (here.newest,) * 3)):
        for index, protocol in enumerate(expected):
            replaced(link, nodes, index, versions, sealed=sealed)
            assert link.run(PATIENCE_MS, lambda: all_alive(nodes)), [node.states() for node in nodes]
            assert link.run(PATIENCE_MS, lambda protocol=protocol: protocols(nodes) == [protocol] * 3)
            assert {member.versions for member in nodes[index].core.members.list()} <= {here, there}


def test_members_that_are_down_count_until_they_are_forgotten() -> None:
    """A stopped or dead member of the old release may come back, so nothing newer is written before it is forgotten."""
    link = Link()
    nodes = link.cluster(3, versions=OLD)
    for index in (0, 1):
        replaced(link, nodes, index, NEW)
    link.kill(nodes[2])
    left = nodes[:2]
    assert link.run(PATIENCE_MS, lambda: all(node.states()["n02"] == "DEAD" for node in left))
    assert protocols(left) == [1, 1]
    assert link.run(50 * 3_600_000, lambda: all("n02" not in node.states() for node in left))
    assert protocols(left) == [2, 2]


def test_a_node_that_has_not_met_its_members_again_writes_its_oldest_version() -> None:
    """A restarted node does not take the versions of the members that it knows already for those of all."""
    link = Link()
    nodes = link.cluster(3, versions=NEW)
    link.kill(nodes[1])
    link.cut = lambda source, to: nodes[2].address in {source, to}
    node = replaced(link, nodes, 0, NEW)
    assert not link.run(10_000, lambda: node.core.protocol != 1)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_stopped_member_that_comes_back_as_a_misfit_is_looked_at(*, sealed: bool) -> None:
    """A misfit asks, and is asked back at its address, so both sides hear of the versions; neither joins."""
    link = Link()
    nodes = link.cluster(3, versions=OLD, sealed=sealed)
    misfit = replaced(link, nodes, 2, LATER, sealed=sealed)
    link.run(PATIENCE_MS)
    assert misfit.core.counters["dropped_protocol_version"] > 0
    assert all(node.core.counters["dropped_protocol_version"] > 0 for node in nodes[:2])
    assert misfit.states() == {"n02": "ALIVE"}
    assert nodes[0].core.members.list()[2].state is not MemberState.ALIVE
