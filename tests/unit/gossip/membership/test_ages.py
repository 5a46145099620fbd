"""Digests carry the time since members were heard or found dead, and ages belong to the right life and death."""

from __future__ import annotations

from gossipkv.gossip.member import MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import MemberVerdict
from tests.unit.gossip.links import Link, Node

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS


def dead_since_s(link: Link, node: Node, member: Node) -> int:
    return (link.now_ms - node.core.members.peers[member.core.members.own.id].since_ms) // SECOND_MS


def test_what_is_known_is_equal_although_a_death_is_older_elsewhere():
    """A node that learns of an old death, which counts no more, agrees with the cluster at once."""
    link = Link(3)
    nodes = link.cluster(6)
    sides = {node.address: number for number, node in enumerate(nodes)}
    link.cut = lambda source, to: (sides[source] < 3) != (sides[to] < 3)
    link.run(12 * MINUTE_MS)
    dead = nodes[2]
    link.kill(dead)
    link.run(MINUTE_MS)
    link.cut = lambda source, to: False
    nodes.remove(dead)
    assert link.run(35 * SECOND_MS, lambda: len({node.core._exchange.state_hash for node in nodes}) == 1)
    link.run(20 * MINUTE_MS)
    assert len({node.core._exchange.state_hash for node in nodes}) == 1


def test_a_death_has_no_age_of_an_earlier_one_that_was_refuted():
    """With the older age the member would be forgotten too early and could come back."""
    link = Link(3)
    away, teller, _, mortal = nodes = link.cluster(4)
    link.cut = lambda source, to: away.address in {source, to}
    link.run(60 * MINUTE_MS)
    own = mortal.core.members.own
    said = messages.verdict(
        MemberVerdict(own.id, MemberState.SUSPECT, own.incarnation, own.epoch, teller.core.members.own.id)
    )
    message = messages.gossip(teller.core.members.own.id) + said
    mortal.core.receive(teller.envelope.wrap(message), teller.address, now_ms=link.now_ms)
    link.settle(mortal)
    link.run(5 * SECOND_MS)
    link.kill(mortal)
    link.run(MINUTE_MS)
    link.cut = lambda source, to: False
    link.run(2 * MINUTE_MS)
    for node in nodes[:3]:
        assert node.core.members.get(own.id).incarnation == own.incarnation + 1
        assert 170 <= dead_since_s(link, node, mortal) <= 180


def test_what_the_dead_had_published_is_as_old_to_a_newcomer():
    """A newcomer takes over the age of a death, not the time at which it heard of it."""
    link = Link(3)
    nodes = link.cluster(3)
    dead = nodes.pop()
    dead.core.tree.publish("k/y")
    link.settle(dead)
    link.run(3 * SECOND_MS)
    link.kill(dead)
    link.run(60 * MINUTE_MS)
    nodes.append(link.start(link.node("new"), nodes[0]))
    link.run(5 * SECOND_MS)
    for node in nodes:
        (entry,) = node.core.tree.entries("k", now_ms=link.now_ms, all=True)
        assert 59 * MINUTE_MS <= entry.age_ms <= 61 * MINUTE_MS
