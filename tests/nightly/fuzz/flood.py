"""A flood on a living cluster of cores, in a separate process, because `VmHWM` never falls.

    python -m tests.nightly.fuzz.flood SCENARIO PACKETS [SEED]

The program prints one line of JSON with the sent packets, the drops and the memory. Every failure is an assertion.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from gossipkv.address import Address
from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import key
from gossipkv.gossip.packets.sealing import Sealing
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.limits import TreeLimits
from tests.nightly.fuzz.datagrams import NOISE, SHARES, Stranger, member_id
from tests.oracle import packets as oracle
from tests.unit.gossip.links import CLUSTER_ID, Link, Node, all_alive
from tests.unit.gossip.membership.recounted import recount_core

SECRET = bytes(range(32))
NAMES = [f"n{place}" for place in range(4)]
KEYS = {name: {f"nodes/{place}@10.0.0.1:700{place}": name.encode()} for place, name in enumerate(NAMES)}
LIMITS = GossipLimits(max_members=300, tree=TreeLimits(max_branch_bytes=2048, protocol_branch_bytes=2048))
REQUESTS = 0.2  # The share of packets that come over TCP.
MAX_ANSWERED = 1 << 20
STRANGERS = [Address("192.0.2.1", 9), Address("10.0.0.1", 7000), Address("10.0.0.1", 7001), Address("::1", 65535)]


class Flooded(Link):
    """A cluster on a link on which a stranger listens."""

    def __init__(self, seed: int, *, sealed: bool) -> None:
        super().__init__(seed)
        self.stranger = Stranger(random.Random(seed), NAMES, cluster="c", cluster_id=CLUSTER_ID)
        self.gates: dict[str, oracle.Gate] = {}
        self.cluster_nodes = [self._make(name, place, sealed=sealed) for place, name in enumerate(NAMES)]
        self.expected: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
        for node in self.cluster_nodes:
            self.start(node, *self.cluster_nodes[:2])
        assert self.run(10_000, lambda: all_alive(self.cluster_nodes))
        for node in self.cluster_nodes:
            for path, value in KEYS[node.me.name].items():
                node.core.tree.publish(path, value)
        assert self.run(10_000, self.agree)
        self.run(20_000)
        assert self.drops() == {name: Counter() for name in NAMES}

    def _make(self, name: str, place: int, *, sealed: bool) -> Node:
        address = Address("10.0.0.1", 7000 + place)
        me = Me(name, name.encode().ljust(16, b"-"), 1, address, "c", CLUSTER_ID, pinned=False)
        session = self.random.randbytes(16)
        if sealed:
            envelope = Envelope("c", CLUSTER_ID, Sealing([key(SECRET)], session), Seal.REQUIRE)
            self.gates[name] = oracle.Gate("c", CLUSTER_ID, secret=SECRET, plain=False, session=session)
        else:
            envelope = Envelope("c", CLUSTER_ID)
            self.gates[name] = oracle.Gate("c", CLUSTER_ID)
        core = Gossip(me, LAN, random.Random(self.random.getrandbits(64)), limits=LIMITS, envelope=envelope)
        node = self.nodes[me.address] = Node(core, me, envelope)
        self._watch(core, self.gates[name])
        return node

    def _watch(self, core: Gossip, gate: oracle.Gate) -> None:
        reply, answered = core.reply, core.answered

        def replies(request: bytes, *, now_ms: int) -> bytes | None:
            gate.reason(request, any_cluster=True)
            return reply(request, now_ms=now_ms)

        def is_answered(token: int, answer: bytes | None, *, now_ms: int) -> None:
            if answer is not None:
                gate.reason(answer, any_cluster=True)
            answered(token, answer, now_ms=now_ms)

        core.reply, core.answered = replies, is_answered

    def _send(self, source: Address, to: Address, packet: bytes) -> None:
        heard = self.stranger.heard
        if len(heard) < 3000:
            heard.append(packet)
        else:
            heard[self.stranger.draw.randrange(3000)] = packet
        super()._send(source, to, packet)

    def _deliver(self, packet: bytes, source: Address, to: Address) -> None:
        if to in self.nodes:
            self.expect(self.nodes[to], packet)
        super()._deliver(packet, source, to)

    def expect(self, node: Node, packet: bytes) -> None:
        """Predict the node's counters for a datagram."""
        name = node.me.name
        reason = self.gates[name].reason(packet)
        if reason is None:
            message = packet[19:] if packet[2] == 0 else oracle.unwrap(packet, "c", CLUSTER_ID, SECRET)
            reason = "message" if is_dropped(message, member_id(name)) else None
        if reason is not None:
            self.expected[name][reason] += 1

    def drops(self) -> dict[str, Counter[str]]:
        """Return each node's drops by reason; all faults of a message share one name."""
        found = {}
        for node in self.cluster_nodes:
            counted = found[node.me.name] = Counter()
            for name, count in node.core.counters.items():
                reason = name.removeprefix("dropped_")
                if reason != name:
                    counted["message" if reason in {"kind", "malformed", "not_for_me"} else reason] += count
        return found

    def agree(self) -> bool:
        """True if all are alive to all, and all see exactly the keys that each published."""
        for node in self.cluster_nodes:
            states = node.states()
            if any(states.get(name) != "ALIVE" for name in NAMES):
                return False
            entries = node.core.tree.entries("nodes", now_ms=self.now_ms)
            seen = {(entry.owner, f"nodes/{entry.name}", entry.value) for entry in entries if entry.owner in NAMES}
            if seen != {(name, path, value) for name in NAMES for path, value in KEYS[name].items()}:
                return False
        return True


def is_dropped(message: bytes, own: bytes) -> bool:
    """True if an authenticated message is dropped as invalid."""
    kind = message[0] if message else 0
    if kind == 1 and message[13:21] != own:
        return True
    if kind not in range(1, 8):
        return True
    try:
        name, fields, begin = oracle.decode_head(message)
    except oracle.Broken:
        return True
    if name in {"NACK", "WHO"}:
        return False
    return bool(name == "SYNC" and fields["flags"] & 16) or not oracle.decode_parts(message, begin)[1]


def peak_bytes() -> int:
    (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) << 10


def request(link: Flooded, node: Node, packet: bytes) -> None:
    """Send a packet over TCP: either a bounded answer without a drop, or one drop and at most a refusal."""
    counts = link.drops()[node.me.name]
    answer = node.core.reply(packet, now_ms=link.now_ms)
    dropped = link.drops()[node.me.name] - counts
    refusal = Envelope("c").wrap(messages.refusal(member_id(node.me.name), "c"))
    if answer is None or answer == refusal:
        assert dropped.total() == 1
        assert (answer is None) is ("cluster_name" not in dropped)
    else:
        assert dropped.total() == 0
        assert len(answer) < MAX_ANSWERED
    link.expected[node.me.name] += dropped


def send(link: Flooded, kind: str) -> Node:
    """Send a packet of that kind to a random node as a datagram or request; return the node."""
    packet = link.stranger.packet(kind)
    node = link.stranger.draw.choice(link.cluster_nodes)
    if link.stranger.draw.random() < REQUESTS:
        request(link, node, packet)
    else:
        link.expect(node, packet)
        node.core.receive(packet, link.stranger.draw.choice(STRANGERS), now_ms=link.now_ms)
    link.settle(node)
    link.run(1)
    return node


def noise(link: Flooded, count: int) -> dict[str, object]:
    """Send packets that any host of the network can send: no node changes its view of any member."""
    changes = [len(node.changes) for node in link.cluster_nodes]
    sent: Counter[str] = Counter()
    for _ in range(count):
        kind = link.stranger.draw.choices(NOISE, SHARES)[0]
        sent[kind] += 1
        send(link, kind)
    assert link.drops() == link.expected
    assert [len(node.changes) for node in link.cluster_nodes] == changes
    assert link.agree()
    link.run(10_000)
    assert link.agree()
    return {"sent": sent}


def forged(link: Flooded, count: int) -> dict[str, object]:
    """Send forged packets as datagrams and requests: afterwards the cluster is as before."""
    for number in range(count):
        if number % 100 == 0:
            link.stranger.epochs = [node.core.members.own.epoch for node in link.cluster_nodes]
        node = send(link, "forged")
        assert len(node.core.members) <= LIMITS.max_members
        if number % 100 == 0:
            recount_core(node.core)
    begin_ms = link.now_ms
    assert all(node.stopped is None for node in link.cluster_nodes)
    assert link.run(1_200_000, link.agree), [node.states() for node in link.cluster_nodes]
    return {"agreed_after_ms": link.now_ms - begin_ms}


def crowded(link: Flooded, count: int) -> dict[str, object]:
    """Forge more members than a node remembers."""
    link.stranger.invented = [f"y{number}" for number in range(10 * LIMITS.max_members)]
    return forged(link, count)


SCENARIOS = {"plain": (noise, False), "sealed": (noise, True), "forged": (forged, False), "crowded": (crowded, False)}


def main(scenario: str, count: int, seed: int = 1) -> None:
    flood, sealed = SCENARIOS[scenario]
    begin_s = time.process_time()
    link = Flooded(seed, sealed=sealed)
    before = peak_bytes()
    told = flood(link, count)
    drops: Counter[str] = sum(link.drops().values(), Counter())
    grown = peak_bytes() - before
    told |= {"drops": drops, "grown_bytes": grown, "cpu_s": round(time.process_time() - begin_s, 1)}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
