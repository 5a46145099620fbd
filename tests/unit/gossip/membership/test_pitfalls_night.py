"""Pitfalls of other implementations that take many members or minutes to show."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import Link, Node, all_alive
from tests.unit.gossip.membership.test_pitfalls import DEAD, SECOND_MS, SUSPECT, dead_among, halves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.address import Address


@pytest.mark.parametrize("size", [7, 8, 9, 10])
def test_the_hole_of_the_retransmit_limit(size):
    """Memberlist sends a rumour four times at n <= 9, and one in twenty misses a member; here it is twelve times."""
    assert LAN.retransmits(size) >= 12
    missed = 0
    for seed in range(60):
        link = Link(seed)
        nodes = link.cluster(size)
        for node in nodes:  # Without anti-entropy, only the rumour counts.
            node.core._exchange.differs = lambda source, now_ms: None
        gone = nodes.pop()
        gone.core.leave(now_ms=link.now_ms)
        link.settle(gone)
        link.run(3 * SECOND_MS)
        missed += any(node.states()[gone.me.name] != "LEFT" for node in nodes)
    assert missed == 0


@pytest.mark.parametrize("seed", [6, 12])
def test_what_a_node_finds_out_while_it_hears_nobody_is_its_own(seed):
    """After cuts of 16 s in each 17 s, suspected members hear of the suspicion before they are called dead."""
    link = Link(seed)
    nodes = link.cluster(24)
    away = nodes[0].address
    for _ in range(6):
        link.cut = lambda source, to: away in {source, to}
        link.run(16 * SECOND_MS)
        link.cut = lambda source, to: False
        link.run(SECOND_MS)
    dead = {change.member.name for node in nodes[1:] for change in node.changes if change.member.state is DEAD}
    assert dead <= {nodes[0].me.name}
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))


def test_packets_fit():
    """No datagram in a cluster of forty exceeds the profile's packet size."""
    link = Link()
    nodes = link.cluster(40)
    for number in range(30):
        nodes[number].core.tree.publish(f"partitions/db/{number}", b"x" * 300)
        link.settle(nodes[number])
    link.run(3 * SECOND_MS)
    halves(link, nodes)
    link.run(50 * SECOND_MS)
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))
    assert LAN.packet_bytes - 200 < link.largest <= LAN.packet_bytes


@contextlib.contextmanager
def starved(link: Link, nodes: list[Node]) -> Iterator[None]:
    """Hold the packets from and to these nodes while the block runs, with timers going on; deliver them afterwards."""
    ill = {node.address for node in nodes}
    held, send = [], link._send

    def hold(source: Address, to: Address, packet: bytes) -> None:
        if ill.isdisjoint((source, to)):
            send(source, to, packet)
        else:
            held.append((source, to, packet))

    link._send = hold
    link.cut = lambda source, to: not ill.isdisjoint((source, to))
    yield
    link._send = send
    link.cut = lambda source, to: False
    for packet in held:
        send(*packet)


@pytest.mark.parametrize("busy", [1, 4])
def test_serf_269_members_do_not_flap_for_a_busy_one(busy):
    """serf#269, #336, consul#1212: a node with I/O starved for 16 s of 17 accuses many and kills no healthy member."""
    link = Link()
    nodes = link.cluster(24)
    for _ in range(7):
        with starved(link, nodes[:busy]):
            link.run(16 * SECOND_MS)
        link.run(SECOND_MS)
    assert SUSPECT in {change.member.state for change in nodes[0].changes}
    assert dead_among(nodes[busy:]) == set()
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))


def test_memberlist_145_a_nearly_deaf_member_harms_nobody():
    """Only the member that loses four fifths of its packets, over TCP and UDP, may be called dead."""
    link = Link()
    nodes = link.cluster(24)
    deaf = nodes[5]
    link.cut = lambda source, to: to == deaf.address and link.random.random() < 0.8
    link.run(300 * SECOND_MS)
    others = [node for node in nodes if node is not deaf]
    assert any(change.member.state is SUSPECT for change in deaf.changes)
    assert dead_among(others) == set()
    link.cut = lambda source, to: False
    assert link.run(35 * SECOND_MS, lambda: all_alive(nodes))
