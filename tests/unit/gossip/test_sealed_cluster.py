"""Sealing starts and keys change in a live cluster; replayed packets do no harm."""

from __future__ import annotations

import random

import pytest

from gossipkv.address import Address
from gossipkv.gossip.core import Gossip, Me
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import Key, key
from gossipkv.gossip.packets.prefix import PLAIN, SEALED
from gossipkv.gossip.packets.sealing import Sealing
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import CLUSTER_ID, LIMITS, Link, Node, all_alive

OLD, NEW = key(bytes(range(32))), key(bytes(range(1, 33)))


class Tapped(Link):
    """A link that records all packets."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.heard: list[tuple[bytes, Address, Address]] = []
        self.sealings: dict[str, Sealing] = {}

    def _send(self, source: Address, to: Address, packet: bytes) -> None:
        self.heard.append((packet, source, to))
        super()._send(source, to, packet)

    def forms(self) -> set[int]:
        """Return the forms that were sent since the last call."""
        found = {packet[2] for packet, _, _ in self.heard}
        self.heard.clear()
        return found

    def sealed_node(
        self, name: str, place: int, *, seal: Seal | None, keys: list[Key] | None = None, epoch: int = 1
    ) -> Node:
        """Return a node with a key ring, or without one."""
        address = Address("10.0.0.1", 7000 + place)
        me = Me(name, name.encode().ljust(16, b"-"), epoch, address, "c", CLUSTER_ID, pinned=False)
        sealing = None
        if seal is not None:
            sealing = self.sealings[name] = Sealing(keys or [OLD], self.random.randbytes(16))
        envelope = Envelope("c", CLUSTER_ID, sealing, seal or Seal.ACCEPT)
        core = Gossip(me, LAN, random.Random(self.random.getrandbits(64)), limits=LIMITS, envelope=envelope)
        node = self.nodes[address] = Node(core, me, envelope)
        return node

    def sealed_cluster(self, size: int, seal: Seal | None = Seal.REQUIRE) -> list[Node]:
        nodes = [self.sealed_node(f"n{place}", place, seal=seal) for place in range(size)]
        for node in nodes:
            self.start(node, *(other for other in nodes if other is not node))
        assert self.run(10_000, lambda: all_alive(nodes))
        return nodes

    def restarted(self, nodes: list[Node], place: int, seal: Seal | None, keys: list[Key] | None = None) -> None:
        """Restart the node of this place after half a second, in its next epoch."""
        before = nodes[place]
        self.kill(before)
        self.run(500)
        node = self.sealed_node(before.me.name, place, seal=seal, keys=keys, epoch=before.me.epoch + 1)
        nodes[place] = node
        self.start(node, *(other for other in nodes if other is not node))


def drops(nodes: list[Node]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in nodes:
        for name, count in node.core.counters.items():
            if name.startswith("dropped_"):
                found[name] = found.get(name, 0) + count
    return found


def test_a_running_cluster_is_sealed_in_three_rolling_steps() -> None:
    """A rolling restart per step seals the cluster: no node or packet is lost, and none is plain at the end."""
    link = Tapped()
    nodes = link.sealed_cluster(4, seal=None)
    link.run(5000)
    forms = [link.forms()]
    for seal in (Seal.ACCEPT, Seal.SEND, Seal.REQUIRE):
        for place in range(4):
            link.restarted(nodes, place, seal)
            assert link.run(15_000, lambda: all_alive(nodes)), (seal, place)
            assert drops(nodes) == {}
        forms.append(link.forms())
    link.run(10_000)
    assert [*forms, link.forms()] == [{PLAIN}, {PLAIN}, {PLAIN, SEALED}, {SEALED}, {SEALED}]


def test_the_way_back_is_the_same() -> None:
    """The reversed steps lead from sealed to plain."""
    link = Tapped()
    nodes = link.sealed_cluster(3)
    for seal in (Seal.SEND, Seal.ACCEPT, None):
        for place in range(3):
            link.restarted(nodes, place, seal)
            assert link.run(15_000, lambda: all_alive(nodes)), (seal, place)
            assert drops(nodes) == {}
    link.forms()
    link.run(10_000)
    assert link.forms() == {PLAIN}


@pytest.mark.parametrize("seal", [None, Seal.ACCEPT])
def test_a_step_that_is_left_out_splits_nothing_that_stays(seal: Seal | None) -> None:
    """Nodes that require seals drop and count plain packets and keep each other; the third node returns."""
    link = Tapped()
    nodes = link.sealed_cluster(3)
    link.restarted(nodes, 2, seal)
    link.run(30_000)
    assert nodes[0].states()["n1"] == nodes[1].states()["n0"] == "ALIVE"
    assert nodes[0].states()["n2"] != "ALIVE"
    assert drops(nodes[:2]).keys() == {"dropped_not_sealed"}
    link.restarted(nodes, 2, Seal.SEND)
    assert link.run(15_000, lambda: all_alive(nodes))


def test_keys_change_while_a_cluster_runs() -> None:
    """With a tenth of the packets lost, changing keys on every node drops no packet and loses no node."""
    link = Tapped()
    nodes = link.sealed_cluster(4)
    link.loss = 0.1
    before = [len(node.changes) for node in nodes]
    for keys in ([OLD, NEW], [NEW, OLD], [NEW]):
        for node in nodes:
            link.sealings[node.me.name].use(keys)
            link.run(1500)
    assert drops(nodes) == {}
    assert {packet[15:19] for packet, _, _ in link.heard[-20:]} == {NEW.id}
    lost = [
        change.member.state.name for node, start in zip(nodes, before, strict=True) for change in node.changes[start:]
    ]
    assert "DEAD" not in lost
    assert all_alive(nodes)


def test_a_key_used_too_early_is_counted_and_mended() -> None:
    """Nodes without the key drop and count the packets; after its installation all is well."""
    link = Tapped()
    nodes = link.sealed_cluster(3)
    link.sealings["n0"].use([NEW, OLD])
    link.run(2000)
    assert drops(nodes[1:]).keys() == {"dropped_unknown_key"}
    for name in ("n1", "n2"):
        link.sealings[name].use([OLD, NEW])
    assert link.run(30_000, lambda: all_alive(nodes))


def test_a_wrong_key_joins_nobody() -> None:
    """A node with another ring stays alone; the cluster counts its packets and never hears its name."""
    link = Tapped()
    nodes = link.sealed_cluster(3)
    stranger = link.sealed_node("stranger", 9, seal=Seal.REQUIRE, keys=[NEW])
    link.start(stranger, *nodes)
    link.run(30_000)
    assert all_alive(nodes)
    assert stranger.states() == {"stranger": "ALIVE"}
    assert drops(nodes).keys() == {"dropped_unknown_key"}


@pytest.mark.parametrize("seed", range(3))
def test_recorded_packets_change_nothing(seed: int) -> None:
    """All packets are replayed to the nodes that heard them, then to a restarted node as well."""
    link = Tapped(seed)
    nodes = link.sealed_cluster(4)
    gone = link.sealed_node("gone", 8, seal=Seal.REQUIRE)
    link.start(gone, nodes[0])
    assert link.run(10_000, lambda: all_alive([*nodes, gone]))
    gone.core.leave(now_ms=link.now_ms)
    link.settle(gone)
    link.run(1000)
    link.kill(gone)
    link.freeze(nodes[3])  # The node is suspected and refutes, so the recording has statements of two incarnations.
    link.run(5000)
    link.thaw(nodes[3])
    expected = {"n0": "ALIVE", "n1": "ALIVE", "n2": "ALIVE", "n3": "ALIVE", "gone": "LEFT"}
    assert link.run(30_000, lambda: all(node.states() == expected for node in nodes))
    recorded = list(link.heard)

    def play() -> None:
        for packet, source, _ in link.random.sample(recorded, len(recorded)):
            for node in nodes:
                node.core.receive(packet, source, now_ms=link.now_ms)
                link.settle(node)
            link.run(1)

    before = [len(node.changes) for node in nodes]
    play()
    link.run(5000)
    assert drops(nodes)["dropped_replayed"] > len(recorded) // 2
    assert drops(nodes)["dropped_own"] > 0
    states = [change for node, start in zip(nodes, before, strict=True) for change in node.changes[start:]]
    assert states == []

    link.restarted(nodes, 1, Seal.REQUIRE)
    link.run(200)
    play()
    assert link.run(30_000, lambda: all(node.states() == expected for node in nodes))
    assert all(node.stopped is None for node in nodes)
    assert [node.core.members.own.epoch for node in nodes] == [1, 2, 1, 1]
