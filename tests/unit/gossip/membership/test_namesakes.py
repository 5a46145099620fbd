"""At most one of two nodes with one name stops, and the cost of a conflict is bounded."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import product

import pytest

from gossipkv.address import Address
from gossipkv.errors import TooLarge
from gossipkv.gossip.core import DUPLICATES, GossipLimits
from gossipkv.gossip.effects import AskOverTcp
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.membership.namesakes import must_stop
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import Who
from gossipkv.gossip.packets.prefix import DroppedPacket
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.links import CLUSTER_ID, Link, Node, all_alive

SECOND_MS = 1000
HOUR_MS = 3600 * SECOND_MS
SLACK_MS = 2 * LAN.probe_interval_ms
LIAR = Address("10.9.9.9", 1)


def who(age_ms: int) -> Who:
    """Return the answer of a node of this age; 0 means not announced yet."""
    return Who(1, b"u" * 16, 1, age_ms)


def test_not_both_stop_whatever_the_ways_take():
    """For any ages and delays, at most one node stops by its own observation."""
    draw = random.Random(1)
    stopped = set()
    for _ in range(20_000):
        began = [draw.randrange(-5000, 0), draw.randrange(-5000, 0)]
        wins = draw.randrange(2)
        stops = []
        for me, other in ((0, 1), (1, 0)):
            asked_ms = draw.randrange(10_000)
            there_ms, back_ms = draw.randrange(500), draw.randrange(500)
            mine = who(asked_ms - began[me])
            theirs = who(asked_ms + there_ms - began[other])
            stops.append(must_stop(mine, theirs, there_ms + back_ms, slack_ms=SLACK_MS, loses=wins != me))
        assert stops != [True, True], began
        stopped.add(tuple(stops))
        if abs(began[0] - began[1]) > SLACK_MS + 1000:
            assert stops == [began[0] > began[1], began[1] > began[0]]  # The younger node stops.
        if abs(began[0] - began[1]) < SLACK_MS - 1000:
            assert stops == [wins != 0, wins != 1]  # Exactly one stops here.
    assert len(stopped) == 3


@pytest.mark.parametrize(("mine", "theirs", "loses"), [*product((0, 1, 100_000), (0, 1, 100_000), (False, True))])
def test_who_has_not_announced_itself_is_younger(mine, theirs, loses):
    """The ages do not matter; a common rule decides between two unannounced nodes."""
    if mine and theirs:
        return
    expected = loses if not mine and not theirs else not mine
    assert must_stop(who(mine), who(theirs), 0, slack_ms=SLACK_MS, loses=loses) is expected


def twins(link: Link, *, sealed: bool = False, apart_ms: int = 60 * SECOND_MS) -> tuple[list[Node], Node, Node]:
    """Return four nodes, and two of one name that started on the two sides of a cut, which has ended."""
    nodes = link.cluster(4, sealed=sealed)
    left = {node.address for node in nodes[:2]} | {Address("10.0.0.1", 9001)}
    link.cut = lambda source, to: (source in left) != (to in left)
    elder = link.start(link.node("x", port=9001, uuid=b"2" * 16, sealed=sealed), nodes[0])
    link.run(5 * SECOND_MS)
    younger = link.start(link.node("x", port=9002, uuid=b"1" * 16, sealed=sealed), nodes[3])
    link.run(apart_ms)
    link.cut = lambda source, to: False
    return nodes, elder, younger


def duplicates(nodes: list[Node]) -> list[set[str]]:
    """Return the places of namesakes that each node sees."""
    return [set(node.core.tree.children(DUPLICATES)) for node in nodes]


def test_sealed_the_younger_stops():
    """With keys the younger node stops, whatever its uuid, and the elder stays."""
    for seed in range(12):
        link = Link(seed)
        nodes, elder, younger = twins(link, sealed=True)
        assert link.run(60 * SECOND_MS, lambda younger=younger: younger.stopped is not None)
        assert str(elder.address) in str(younger.stopped.error)
        assert elder.stopped is None
        assert link.run(30 * SECOND_MS, lambda nodes=nodes, elder=elder: all_alive([*nodes, elder]))
        assert link.run(HOUR_MS, lambda nodes=nodes: not any(duplicates(nodes)))


def test_a_twin_that_ends_is_forgotten():
    """After one of the two is gone, no member reports the name as claimed twice."""
    link = Link(5)
    nodes, elder, younger = twins(link)
    assert link.run(60 * SECOND_MS, lambda: any(duplicates(nodes)))
    link.run(60 * SECOND_MS)
    link.kill(younger)
    assert link.run(10 * 60 * SECOND_MS, lambda: not any(duplicates(nodes)) and all_alive([*nodes, elder]))
    link.run(HOUR_MS)
    assert all_alive([*nodes, elder])


class Liar:
    """A stranger without keys that claims a node's name at its own address and reports any age."""

    def __init__(self, link: Link, *, age_ms: int) -> None:
        self.link = link
        self.age_ms = age_ms
        self.asked = 0
        link.nodes[LIAR] = self
        self.address = LIAR
        self.frozen = False
        self.core = self
        self.wakes_at_ms = 1 << 60
        self.envelope = Envelope("c", CLUSTER_ID)

    def claim(self, victim: Node, *, more_epochs: int = 1) -> None:
        """Claim the victim's name in a later epoch."""
        own = victim.core.members.own
        record = own._replace(address=LIAR, epoch=own.epoch + more_epochs, uuid=b"liar" * 4)
        packet = self.envelope.wrap(messages.gossip(member_id("nobody")) + messages.record(record))
        victim.core.receive(packet, LIAR, now_ms=self.link.now_ms)
        self.link.settle(victim)

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None:
        """Ignore a datagram."""

    def reply(self, request: bytes, *, now_ms: int) -> bytes | None:
        try:
            message = self.envelope.unwrap(request)
        except DroppedPacket:
            return None
        if message[:1] != bytes((messages.WHO,)):
            return None
        self.asked += 1
        asked = messages.read_who(message)
        sender = message[messages.SENDER]
        return self.envelope.wrap(messages.who(messages.ME, sender, Who(asked.sequence, b"liar" * 4, 99, self.age_ms)))

    def take(self) -> list[object]:
        return []


def test_one_forged_packet_does_not_end_an_established_node():
    """A stranger that claims the name and reports a great age causes a complaint and stops no node."""
    link = Link(3)
    nodes = link.cluster(4)
    link.run(LAN.converge_ms)
    liar = Liar(link, age_ms=1 << 40)
    liar.claim(nodes[1])
    link.run(5 * SECOND_MS)
    assert liar.asked
    assert nodes[1].stopped is None
    assert str(LIAR) in str(nodes[1].complaints[0].error)
    link.run(10 * SECOND_MS)
    assert all_alive(nodes)
    assert duplicates(nodes) == [{str(LIAR)}] * 4


def test_a_full_branch_says_so_too():
    """A node whose branch is full still reports that its name is claimed twice."""
    link = Link(3)
    nodes = link.cluster(3, limits=GossipLimits(tree=TreeLimits(max_branch_bytes=8192)))
    link.run(LAN.converge_ms)
    for number in range(100):
        with suppress(TooLarge):
            nodes[1].core.tree.publish(f"many/{number}", bytes(100))
    assert 10 < len(nodes[1].core.tree.published()) < 30
    link.settle(nodes[1])
    Liar(link, age_ms=1 << 40).claim(nodes[1])
    link.run(15 * SECOND_MS)
    assert duplicates(nodes) == [{str(LIAR)}] * 3


@pytest.mark.parametrize("established", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_liar_can_stop(sealed, established):
    """A liar can stop only a node that is neither established nor sealed."""
    link = Link(3)
    nodes = link.cluster(3, sealed=sealed)
    node = link.start(link.node("x", sealed=sealed), nodes[0])
    link.run(LAN.converge_ms + 2 * SECOND_MS if established else SECOND_MS)
    liar = Liar(link, age_ms=1 << 40)
    liar.claim(node)
    link.run(5 * SECOND_MS)
    assert (node.stopped is not None) is (not sealed and not established)
    assert bool(liar.asked) is not sealed


def test_it_asks_no_more_than_it_must():
    """A record that echoes an address without a node is not examined again."""
    link = Link(1)
    node = link.start(link.node("a", epoch=5))
    old = Member(member_id("a"), "a", node.me.uuid, Address("10.0.0.9", 9), 7, 0, MemberState.ALIVE)
    packet = Envelope("c", CLUSTER_ID).wrap(messages.gossip(member_id("b")) + messages.record(old))
    asked = []
    for _ in range(50):
        node.core.receive(packet, LIAR, now_ms=link.now_ms)
        asked += [effect for effect in node.core._outbox.effects if isinstance(effect, AskOverTcp)]
        link.settle(node)
        link.run(100)
    assert node.core.members.own.epoch == 8
    assert len(asked) <= 2
    assert not node.complaints
