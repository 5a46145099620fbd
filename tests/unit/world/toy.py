"""A small core for worlds: it pings each known peer once a second, and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.effects import AskOverTcp, Remember, SendDatagram, StoreDurably
from gossipkv.gossip.member import member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.prefix import DroppedPacket
from tests.world.gossip.rig import running
from tests.world.world import World

if TYPE_CHECKING:
    from gossipkv.gossip.effects import Effect
    from tests.world.gossip.program import Boot

NEVER_MS = 1 << 62
PERIOD_MS = 1000


class Toy:
    """A core that pings every joined peer once a second, and records what happens."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.id = member_id(boot.name)
        self.envelope = Envelope("toy")
        self.peers = []
        self.wakes_at_ms = NEVER_MS
        self.wakes = []  # The times at which it was woken.
        self.heard = []  # Tuples of (time, kind, sequence, source).
        self.answers = []
        self.was_stored = []
        self.dropped = 0
        self.spoke_ms = None
        self.sequence = 0
        self.effects: list[Effect] = []

    def start(self, *, joins, remembered, now_ms):
        self.peers = list(joins)
        self.remembered = list(remembered)
        self.wakes_at_ms = now_ms + 1 + int(self.boot.random.random() * PERIOD_MS)

    def speak(self, *, now_ms):
        self.spoke_ms = now_ms

    def wake(self, *, now_ms):
        self.wakes.append(now_ms)
        if now_ms < self.wakes_at_ms:
            return
        self.wakes_at_ms = now_ms + PERIOD_MS
        self.sequence += 1
        for peer in self.peers:
            message = messages.ping(self.id, self.sequence, self.id, bytes(8))
            self.effects.append(SendDatagram(peer, self.envelope.wrap(message)))

    def receive(self, packet, source, *, now_ms):
        try:
            message = self.envelope.unwrap(packet)
        except DroppedPacket:
            self.dropped += 1
            return
        kind = message[0]
        sequence = messages.read_ping(message)[0] if kind == messages.PING else messages.read_ack(message)[0]
        self.heard.append((now_ms, kind, sequence, source))
        if kind == messages.PING:
            self.effects.append(SendDatagram(source, self.envelope.wrap(messages.ack(self.id, sequence, bytes(8)))))

    def reply(self, request, *, now_ms):
        return None if request == b"no" else b"you said " + request

    def answered(self, token, reply, *, now_ms):
        self.answers.append((now_ms, token, reply))

    def stored(self, token, *, now_ms):
        self.was_stored.append(token)

    def leave(self, *, now_ms):
        self.wakes_at_ms = NEVER_MS

    def take(self):
        effects, self.effects = self.effects, []
        return effects

    # Methods by which tests make it act.

    def ask(self, to, request, token, timeout_ms=10_000):
        self.effects.append(AskOverTcp(to, request, token, timeout_ms))

    def store(self, epoch, cluster_id, token):
        self.effects.append(StoreDurably(epoch, cluster_id, token))

    def remember(self, *peers):
        self.effects.append(Remember(tuple(peers)))


def two(seed=1):
    """Return a world of two machines that ping each other, and both machines."""
    world = World(seed)
    first, second = world.add("first", running(Toy)), world.add("second", running(Toy))
    first.joins.append(second.address)
    second.joins.append(first.address)
    first.start()
    second.start()
    return world, first, second


def pings(machine):
    """Return the sequence numbers of the pings that a machine heard, in order."""
    return [sequence for _, kind, sequence, _ in machine.core.heard if kind == messages.PING]
