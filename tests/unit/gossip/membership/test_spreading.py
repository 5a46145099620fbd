"""Membership and tree share the room in packets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.gossip.effects import SendDatagram
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.rumours import Rumours, Spreading
from gossipkv.gossip.membership.shared_state import SharedState
from gossipkv.gossip.membership.timers import NEVER, Timers
from gossipkv.gossip.packets.envelope import HEADER_BYTES, Envelope
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.membership.believing import member


class Spreader:
    """One node with news of two kinds."""

    def __init__(self, peers: int = 20) -> None:
        self.members = MemberTable(member("me"), 100)
        for number in range(peers):
            self.members.put(member(f"n{number}"), 0)
        self.outbox = Outbox(Envelope("c"), 1)
        self.first, self.second = Rumours(), Rumours()
        self.speaks = True
        state = SharedState(self.members, LAN, random.Random(1), Timers(), self.outbox)
        self.spreading = Spreading(state, self, self.first, self.second)

    def flood(self, rumours: Rumours, letter: bytes, size: int = 60, count: int = 500) -> None:
        for number in range(count):
            rumours.add(number.to_bytes(8, "big"), letter * size)

    def shares(self) -> tuple[int, int]:
        message = self.spreading.laden(b"")
        assert len(message) <= LAN.packet_bytes - HEADER_BYTES
        return message.count(b"m"), message.count(b"t")


def test_halves():
    """Each kind gets half if both have more than fits."""
    spreader = Spreader()
    spreader.flood(spreader.first, b"m")
    spreader.flood(spreader.second, b"t")
    room = LAN.packet_bytes - HEADER_BYTES
    for _ in range(20):
        first, second = spreader.shares()
        assert first >= room // 2 - 60
        assert second >= room // 2 - 60


@pytest.mark.parametrize("which", ["first", "second"])
def test_what_one_leaves_the_other_uses(which):
    """One kind alone fills the packet; with little news of the other kind, nearly so."""
    spreader = Spreader()
    spreader.flood(getattr(spreader, which), b"m")
    assert spreader.shares()[0] >= LAN.packet_bytes - HEADER_BYTES - 60
    other = spreader.second if which == "first" else spreader.first
    other.add(b"one", b"t" * 100)
    first, second = spreader.shares()
    assert second == 100
    assert first >= LAN.packet_bytes - HEADER_BYTES - 160


@given(sizes=st.lists(st.integers(1, 600), min_size=1, max_size=20), flood=st.booleans())
def test_neither_starves(sizes, flood):
    """For any sizes up to half a packet, all news of one kind get out while the other kind floods."""
    spreader = Spreader()
    flooding, other = (spreader.first, spreader.second) if flood else (spreader.second, spreader.first)
    for number, size in enumerate(sizes):
        other.add(bytes([number]), b"t" * size)
    packets = 0
    while other:
        if len(flooding) < 100:
            spreader.flood(flooding, b"m")
        spreader.shares()
        packets += 1
    total = sum(sizes) * LAN.retransmits(21)
    assert packets <= 4 + 3 * total / ((LAN.packet_bytes - HEADER_BYTES) // 2) + LAN.retransmits(21)


def test_news_go_out_at_once():
    """The first news wake the node at once; further news go out in intervals until none is left."""
    spreader = Spreader()
    assert spreader.spreading.due_ms == NEVER
    spreader.first.add(b"a", b"news")
    assert spreader.spreading.due_ms <= 1000
    sent, now_ms = 0, 1000
    while spreader.spreading.due_ms != NEVER:
        spreader.spreading.wake(now_ms)
        assert spreader.spreading.due_ms in {now_ms + LAN.gossip_interval_ms, NEVER}
        now_ms += LAN.gossip_interval_ms
        sent = sum(isinstance(effect, SendDatagram) for effect in spreader.outbox.effects)
        assert now_ms < 60_000
    assert sent == LAN.retransmits(21)


def test_alone_nothing_is_sent():
    """Without peers there are no packets and no timer, and the news waits for the first peer."""
    spreader = Spreader(peers=0)
    spreader.first.add(b"a", b"news")
    assert spreader.spreading.due_ms == NEVER
    assert len(spreader.first) == 1
