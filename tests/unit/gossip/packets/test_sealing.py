from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import Key, key
from gossipkv.gossip.packets.prefix import REASONS, DroppedPacket
from gossipkv.gossip.packets.sealing import COUNTER_AT, MESSAGE_AT, SESSION_AT, WINDOW, Sealing

ID = b"cluster1"
OLD, NEW, THIRD = (key(bytes([number]) * 32) for number in (1, 2, 3))


class Node:
    """An envelope and its sealing."""

    def __init__(self, keys: list[Key], session: int, seal: Seal = Seal.REQUIRE, **limits: int) -> None:
        self.sealing = Sealing(keys, session.to_bytes(16, "big"), **limits)
        self.envelope = Envelope("one", ID, self.sealing, seal)
        self.wrap = self.envelope.wrap

    def hears(self, packet: bytes) -> bytes | str:
        try:
            return self.envelope.unwrap(packet)
        except DroppedPacket as dropped:
            assert dropped.reason in REASONS
            return dropped.reason


def test_a_sealed_packet_is_as_drawn() -> None:
    """The library opens the packet with the ring's key and the packet's fields alone."""
    packet = Node([OLD], 7).wrap(b"any message")
    assert packet[2] == 1
    assert packet[15:19] == OLD.id
    session, counter = packet[19:35], packet[35:43]
    assert (session, counter) == (bytes(15) + b"\x07", bytes(7) + b"\x01")
    derived = HKDF(algorithm=SHA256(), length=32, salt=session, info=b"gossipkv packets 1").derive(OLD.secret)
    assert AESGCM(derived).decrypt(bytes(4) + counter, packet[43:], packet[:43]) == b"any message"
    assert b"any message" not in packet


def test_any_changed_byte_is_seen() -> None:
    """Every change to a sealed packet is seen, even in its plain fields."""
    packet = Node([OLD], 1).wrap(b"any message")
    hearer = Node([OLD], 2)
    for at in range(len(packet)):
        for bit in range(8):
            got = hearer.hears(packet[:at] + bytes((packet[at] ^ 1 << bit,)) + packet[at + 1 :])
            assert isinstance(got, str)
            assert at < SESSION_AT or got == "not_authentic", at
    assert hearer.sealing.sessions == 0
    assert hearer.hears(packet) == b"any message"


def test_a_packet_is_opened_once() -> None:
    """A repeated packet is dropped, at once and later."""
    sender, hearer = Node([OLD], 1), Node([OLD], 2)
    packets = [sender.wrap(b"%d" % number) for number in range(100)]
    assert [hearer.hears(packet) for packet in packets] == [b"%d" % number for number in range(100)]
    assert {hearer.hears(packet) for packet in packets} == {"replayed"}


@given(st.data())
def test_late_packets_within_the_window_are_opened_once(data: st.DataObject) -> None:
    """A packet is opened if and only if it is new and at most a window behind the highest counter."""
    sender, hearer = Sealing([OLD], bytes(16)), Sealing([OLD], bytes(15) + b"\x01")
    opened: set[int] = set()
    steps = st.one_of(st.integers(-3, 3), st.sampled_from([-WINDOW - 1, -WINDOW, 1 - WINDOW, WINDOW, WINDOW + 1, 9**9]))
    counter = 10**6
    for step in data.draw(st.lists(steps, max_size=30)):
        counter = max(1, counter + step)
        sender._counter = counter - 1
        packet = sender.seal(bytes(15), b"")
        fresh = counter not in opened and (not opened or counter > max(opened) - WINDOW)
        try:
            hearer.open(packet)
        except DroppedPacket as dropped:
            assert dropped.reason == "replayed"
            assert not fresh
        else:
            assert fresh
            opened.add(counter)


def test_a_counter_far_ahead_costs_nothing() -> None:
    """A member may send any counter; the window does not grow with the step."""
    sender, hearer = Node([OLD], 1), Node([OLD], 2)
    for counter in (1, 2**40, 2**63, 2**64 - 1):
        sender.sealing._counter = counter - 1
        packet = sender.wrap(b"x")
        assert [hearer.hears(packet), hearer.hears(packet)] == [b"x", "replayed"]
    (heard,) = hearer.sealing._heard.values()
    assert heard.opened.bit_length() <= WINDOW


def test_a_forged_counter_moves_no_window() -> None:
    """Only authentic packets count: a stranger can neither close the window nor fill it."""
    sender, hearer = Node([OLD], 1), Node([OLD], 2)
    assert hearer.hears(sender.wrap(b"first")) == b"first"
    packet = sender.wrap(b"second")
    forged = packet[:COUNTER_AT] + b"\xff" * 8 + packet[MESSAGE_AT:]
    assert hearer.hears(forged) == "not_authentic"
    assert hearer.hears(packet) == b"second"


def test_strangers_push_nobody_out() -> None:
    """Packets with invented sessions are not remembered."""
    sender, hearer = Node([OLD], 1), Node([OLD], 2, max_sessions=1)
    first = sender.wrap(b"first")
    assert hearer.hears(first) == b"first"
    draw = random.Random(1)
    for _ in range(100):
        assert hearer.hears(first[:SESSION_AT] + draw.randbytes(16) + first[COUNTER_AT:]) == "not_authentic"
    assert hearer.sealing.sessions == 1
    assert hearer.hears(first) == "replayed"


def test_sessions_are_bounded_and_the_silent_one_is_forgotten() -> None:
    """The least recently used session is forgotten at the limit; its packets pass once more."""
    senders = [Node([OLD], number) for number in range(1, 5)]
    hearer = Node([OLD], 9, max_sessions=3)
    packets = [sender.wrap(b"x") for sender in senders]
    assert [hearer.hears(packet) for packet in packets[:3]] == [b"x"] * 3
    assert hearer.hears(senders[0].wrap(b"again")) == b"again"
    assert hearer.hears(packets[3]) == b"x"
    assert hearer.sealing.sessions == 3
    assert [hearer.hears(packet) for packet in (packets[0], packets[2], packets[3])] == ["replayed"] * 3
    assert hearer.hears(packets[1]) == b"x"


def test_our_own_packets_are_dropped() -> None:
    node = Node([OLD], 1)
    assert node.hears(node.wrap(b"any message")) == "own"


def test_each_start_has_its_own_key() -> None:
    """The same counter in two sessions gives different key streams."""
    one, other = Node([OLD], 1).wrap(bytes(64)), Node([OLD], 2).wrap(bytes(64))
    assert one[COUNTER_AT:MESSAGE_AT] == other[COUNTER_AT:MESSAGE_AT]
    assert one[MESSAGE_AT:] != other[MESSAGE_AT:]


def test_a_nonce_is_never_used_twice() -> None:
    """Nonces stay unique when keys change back and forth."""
    node = Node([OLD, NEW], 1)
    used = set()
    for keys in ([OLD, NEW], [NEW, OLD], [OLD], [NEW], [OLD, NEW]):
        node.sealing.use(keys)
        for _ in range(3):
            packet = node.wrap(b"")
            used.add(packet[15:MESSAGE_AT])
    assert len(used) == 15


def test_a_key_of_another_ring_opens_nothing() -> None:
    """The key id may be unknown or equal by chance."""
    packet = Node([OLD], 1).wrap(b"any message")
    assert Node([NEW], 2).hears(packet) == "unknown_key"
    assert Node([Key(OLD.id, NEW.secret)], 2).hears(packet) == "not_authentic"


STEPS = [
    ("install", [OLD, NEW]),
    ("use", [NEW, OLD]),
    ("remove", [NEW]),
]


@pytest.mark.parametrize("first", [0, 1])
def test_keys_change_while_nodes_talk(first: int) -> None:
    """Install, use and remove keys node by node: no packet is lost, and the old key is gone."""
    nodes = [Node([OLD], 1), Node([OLD], 2)]

    def talk() -> None:
        for one, other in (nodes, nodes[::-1]):
            assert other.hears(one.wrap(b"any message")) == b"any message"

    talk()
    before = nodes[0].wrap(b"from before")
    for _, keys in STEPS:
        for node in (nodes[first], nodes[1 - first]):
            node.sealing.use(keys)
            talk()
    assert nodes[1].hears(before) == "unknown_key"
    assert nodes[0].sealing.keys == (NEW,)
    assert nodes[0].sealing.sessions == 1, "sessions of a key that is gone are forgotten with it"


def test_a_step_that_is_left_out_costs_packets() -> None:
    """A key used before its installation everywhere is unknown; for this reason there are three steps."""
    one, other = Node([OLD], 1), Node([OLD], 2)
    one.sealing.use([NEW, OLD])
    assert other.hears(one.wrap(b"any message")) == "unknown_key"
    assert one.hears(other.wrap(b"any message")) == b"any message"


def test_sealing_comes_to_a_live_cluster_in_three_steps() -> None:
    """Nodes hear each other throughout the rolling restarts from none over accept and send to require."""
    nodes: list[Node | Envelope] = [Envelope("one", ID), Envelope("one", ID)]
    sessions = iter(range(1, 100))
    forms = []

    def talk() -> None:
        for one, other in (nodes, nodes[::-1]):
            packet = one.wrap(b"any message")
            forms.append(packet[2])
            opened = other.unwrap(packet) if isinstance(other, Envelope) else other.hears(packet)
            assert opened == b"any message"

    talk()
    for seal in (Seal.ACCEPT, Seal.SEND, Seal.REQUIRE):
        for place in (0, 1):
            nodes[place] = Node([OLD], next(sessions), seal)
            talk()
    assert forms[:6] == [0] * 6, "plain until both can open"
    assert forms[-6:-2] == [1] * 4, "sealed before it is required"
    talk()
    plain = Envelope("one", ID).wrap(b"any message")
    assert [node.hears(plain) for node in nodes] == ["not_sealed"] * 2
