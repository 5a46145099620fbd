"""Cores joined by a link that loses, delays and cuts packets; no sockets, the real codec."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

from gossipkv.address import Address
from gossipkv.gossip.core import Gossip, GossipLimits, Me
from gossipkv.gossip.effects import AskOverTcp, Complain, MemberChanged, Remember, SendDatagram, Stop, StoreDurably
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import SESSION_BYTES, key
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.packets.sealing import Sealing
from gossipkv.gossip.profile import LAN
from gossipkv.protocol import OURS, ProtocolVersions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.gossip.profile import TimingProfile

CLUSTER_ID = b"cluster!"
LIMITS = GossipLimits()
KEY = key(bytes(range(32)))


class Node:
    """A core, its address, and the state that its shell would keep."""

    def __init__(self, core: Gossip, me: Me, envelope: Envelope) -> None:
        self.core = core
        self.me = me
        self.envelope = envelope
        self.address = me.address
        self.stopped: Stop | None = None
        self.complaints: list[Complain] = []
        self.changes: list[MemberChanged] = []
        self.remembered: tuple[Address, ...] = ()
        self.stores: list[StoreDurably] = []
        self.sent = 0
        self.frozen = False
        self.held: list[tuple[bytes, Address]] = []

    def states(self) -> dict[str, str]:
        return {member.name: member.state.name for member in self.core.members.list()}


class Link:
    """Virtual time, and the datagrams and requests of all nodes."""

    def __init__(self, seed: int = 1, *, delay_ms: int = 1) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.delay_ms = delay_ms
        self.connect_ms = 0  # The longest time that a request takes beyond its reply.
        self.loss = 0.0
        self.nodes: dict[Address, Node] = {}
        self.cut: Callable[[Address, Address], bool] = lambda source, to: False
        self.udp_cut: Callable[[Address, Address], bool] = lambda source, to: False
        self.store_ms = 1
        self.dropped_packets = 0
        self.largest = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def node(
        self,
        name: str,
        *,
        host: str = "10.0.0.1",
        port: int | None = None,
        epoch: int = 1,
        uuid: bytes | None = None,
        cluster: str = "c",
        cluster_id: bytes = CLUSTER_ID,
        pinned: bool = False,
        profile: TimingProfile = LAN,
        limits: GossipLimits = LIMITS,
        sealed: bool = False,
        silent: bool = False,
        is_first: bool = False,
        versions: ProtocolVersions = OURS,
    ) -> Node:
        address = Address(host, port if port is not None else 7000 + len(self.nodes))
        me = Me(name, uuid or name.encode().ljust(16, b"-"), epoch, address, cluster, cluster_id, pinned, is_first)
        sealing = Sealing([KEY], self.random.randbytes(SESSION_BYTES)) if sealed else None
        envelope = Envelope(cluster, cluster_id, sealing, Seal.REQUIRE, versions)
        chance = random.Random(self.random.getrandbits(64))
        core = Gossip(me, profile, chance, limits=limits, envelope=envelope, silent=silent)
        node = self.nodes[address] = Node(core, me, envelope)
        return node

    def start(self, node: Node, *joins: Node | Address, remembered: tuple[Address, ...] = ()) -> Node:
        addresses = [one.address if isinstance(one, Node) else one for one in joins]
        node.core.start(joins=addresses, remembered=remembered, now_ms=self.now_ms)
        self.settle(node)
        return node

    def cluster(self, size: int, **more) -> list[Node]:
        first = self.start(self.node("n00", **more))
        rest = [self.start(self.node(f"n{i:02}", **more), first) for i in range(1, size)]
        self.run(4000)
        return [first, *rest]

    def kill(self, node: Node) -> None:
        del self.nodes[node.address]

    def at(self, after_ms: int, call: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (self.now_ms + after_ms, self._serial, call))

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Advance the time; stop early when `until` holds."""
        end = self.now_ms + for_ms
        while True:
            if until is not None and until():
                return True
            timers = [(node.core.wakes_at_ms, node) for node in self.nodes.values() if not node.frozen]
            wake_ms = min((at for at, _ in timers), default=end + 1)
            event_ms = self._heap[0][0] if self._heap else end + 1
            if min(wake_ms, event_ms) > end:
                self.now_ms = end
                return until is not None and until()
            self.now_ms = max(self.now_ms, min(wake_ms, event_ms))
            if event_ms <= wake_ms:
                heapq.heappop(self._heap)[2]()
                continue
            for at, node in timers:
                if at <= self.now_ms and self.nodes.get(node.address) is node:
                    node.core.wake(now_ms=self.now_ms)
                    self.settle(node)

    def freeze(self, node: Node) -> None:
        node.frozen = True

    def thaw(self, node: Node) -> None:
        """Read the packets that waited in the socket first, like a process after SIGCONT."""
        node.frozen = False
        held, node.held = node.held, []
        for packet, source in held:
            self._deliver(packet, source, node.address)

    def settle(self, node: Node) -> None:
        for effect in node.core.take():
            if isinstance(effect, SendDatagram):
                node.sent += len(effect.packet)
                self.largest = max(self.largest, len(effect.packet))
                self._send(node.address, effect.to, effect.packet)
            elif isinstance(effect, AskOverTcp):
                self._ask(node, effect)
            elif isinstance(effect, StoreDurably):
                node.stores.append(effect)
                self.at(self.store_ms, lambda effect=effect: self._stored(node, effect))
            elif isinstance(effect, Remember):
                node.remembered = effect.peers
            elif isinstance(effect, MemberChanged):
                node.changes.append(effect)
            elif isinstance(effect, Complain):
                node.complaints.append(effect)
            elif isinstance(effect, Stop):
                node.stopped = effect
                self.nodes.pop(node.address, None)

    def _stored(self, node: Node, effect: StoreDurably) -> None:
        if self.nodes.get(node.address) is node:
            node.core.stored(effect.token, now_ms=self.now_ms)
            self.settle(node)

    def _send(self, source: Address, to: Address, packet: bytes) -> None:
        if self.cut(source, to) or self.udp_cut(source, to) or self.random.random() < self.loss:
            return
        self.at(self.delay_ms, lambda: self._deliver(packet, source, to))

    def _deliver(self, packet: bytes, source: Address, to: Address) -> None:
        node = self.nodes.get(to)
        if node is None:
            return
        if node.frozen:
            node.held.append((packet, source))
            return
        node.core.receive(packet, source, now_ms=self.now_ms)
        self.settle(node)

    def _ask(self, asker: Node, ask: AskOverTcp) -> None:
        connect_ms = self.random.randrange(self.connect_ms + 1) if self.connect_ms else 0

        def answer() -> None:
            asked = self.nodes.get(ask.to)
            if asked is None:
                back(None)
            elif asked.frozen or self.cut(asker.address, ask.to) or self.cut(ask.to, asker.address):
                self.at(ask.timeout_ms - connect_ms - self.delay_ms, lambda: back(None))
            else:
                reply = asked.core.reply(ask.request, now_ms=self.now_ms)
                self.settle(asked)
                self.at(self.delay_ms, lambda: back(reply))

        def back(reply: bytes | None) -> None:
            if self.nodes.get(asker.address) is asker:
                asker.core.answered(ask.token, reply, now_ms=self.now_ms)
                self.settle(asker)

        self.at(connect_ms + self.delay_ms, answer)


def all_see(nodes: list[Node], states: dict[str, str]) -> bool:
    return all(node.states() == states for node in nodes)


def all_alive(nodes: list[Node]) -> bool:
    return all_see(nodes, {node.me.name: "ALIVE" for node in nodes})


def no_id(link: Link, name: str, **more) -> Node:
    """Return a node at its first start: it has no cluster id."""
    return link.node(name, cluster_id=NO_CLUSTER, **more)
