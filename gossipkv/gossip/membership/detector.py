"""The failure detector: each interval probes one member, all of them in turn.

    0            PING to the next peer of the ring (a random order, drawn anew for each round)
    timeout      no ACK: other members are asked to try (PING_REQUEST), and TCP is tried
    interval     still no ACK: the peer is suspected

An ACK on any of these ways within the interval counts, however late. Helpers that could not reach the member either say
so (NACK). Helpers that say nothing speak against this node (`lifeguard.py`), and the interval grows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.gossip.member import REACHABLE
from gossipkv.gossip.membership.timers import NEVER
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.prefix import DroppedPacket

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.lifeguard import Awareness
    from gossipkv.gossip.membership.members import MemberPeer
    from gossipkv.gossip.membership.rumours import Spreading
    from gossipkv.gossip.membership.shared_state import SharedState


_SEQUENCES: Final = 1 << 32
# Members that this node tries to reach for others at a time; each is forgotten after an interval.
MAX_RELAYS: Final = 1024
MAX_HINTS: Final = 16


class PiggybackHash(Protocol):
    """The state hash of this node, in eight bytes, which rides on each PING and ACK."""

    @property
    def value(self) -> bytes: ...


class DetectorListener(Protocol):
    """Receiver of ACKs that come over TCP."""

    def on_reply(self, reply: bytes, now_ms: int) -> None:
        """Process a reply over TCP to a probe.

        Raises:
            DroppedPacket: the packet is not for this node.
            Malformed: the packet is no ACK.
        """


@final
class Detector:
    """Probes one member after the other."""

    def __init__(
        self,
        state: SharedState,
        *,
        awareness: Awareness,
        spreading: Spreading,
        state_hash: PiggybackHash,
        beliefs: Beliefs,
        listener: DetectorListener,
    ) -> None:
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._timers = state.timers
        self._outbox = state.outbox
        self._awareness = awareness
        self._spreading = spreading
        self._state_hash = state_hash
        self._beliefs = beliefs
        self._listener = listener
        own = state.members.own.id
        self._ping_head, self._ack_head = bytes((messages.PING,)) + own, bytes((messages.ACK,)) + own
        self._ring: list[MemberPeer] = []
        self._place = 0
        self._hints: list[bytes] = []
        self._was_hinted = False  # True if the last probe was hinted.
        self._count = int(self._random.random() * _SEQUENCES)
        self._sequence = b""  # Sequence of the present probe.
        self._target: MemberPeer | None = None  # The probed peer, until it has answered.
        self._probed: Member = self._members.own  # The record of the target at the start of the probe.
        self._asked = self._nacks = -1  # Helpers asked to try (-1 before the timeout), and their NACKs.
        self._period_ms = 0  # When the present probe began.
        self._relays: dict[bytes, tuple[Address, bytes, bool]] = {}
        self.due_ms = NEVER

    # The two messages of a probe

    def ping(self, sequence: bytes, target: bytes, *, bare: bool = False) -> bytes:
        """Return a PING with news; a bare PING carries none."""
        head = self._ping_head + sequence + target + self._state_hash.value
        if bare:
            return head
        peer = self._members.peers.get(target)
        return self._spreading.laden(head) if peer is None else self._spreading.laden_for(peer, head)

    def ack(self, sequence: bytes, *, bare: bool = False) -> bytes:
        """Return an ACK with news; a bare ACK carries none."""
        head = self._ack_head + sequence + self._state_hash.value
        return head if bare else self._spreading.laden(head)

    # Probes

    def stop(self) -> None:
        """Stop probing."""
        self.due_ms = NEVER

    def newcomer(self, peer: MemberPeer, now_ms: int) -> None:
        """Insert a peer at a random place in the rest of this round, unless it awaits its probe already."""
        if not peer.awaits_probe:
            peer.awaits_probe = True
            left = len(self._ring) - self._place
            self._ring.insert(self._place + int(self._random.random() * (left + 1)), peer)
        if self.due_ms == NEVER:
            self._period_ms = now_ms
            self.due_ms = now_ms + int(self._random.random() * self._profile.probe_interval_ms)

    def hint(self, id_: bytes, now_ms: int) -> None:
        """Probe this peer next, half an interval after the last probe, unless the last probe was hinted too."""
        if id_ in self._members.peers and id_ not in self._hints and len(self._hints) < MAX_HINTS:
            self._hints.append(id_)
            if self._target is None and self.due_ms != NEVER:
                self.due_ms = min(self.due_ms, max(now_ms, self._period_ms + self._profile.probe_timeout_ms))

    def stalled(self, now_ms: int) -> None:
        """Drop the present probe after a stall of this process: the answer may still wait in the socket."""
        self._target = None
        if self.due_ms != NEVER:
            self.due_ms = min(now_ms, self.due_ms)

    def wake(self, now_ms: int) -> None:
        """Do the step that is due at `due_ms`."""
        if self._target is None:
            self._probe(now_ms)
        elif self._asked < 0:
            self._ask_others(now_ms)
        else:
            self._give_up(now_ms)
            self._probe(now_ms)
        # A probe without a due time would never end.
        assert (self._target is None) is (self.due_ms == NEVER), self.due_ms

    def _probe(self, now_ms: int) -> None:
        peer = self._next()
        if peer is None:
            self.due_ms = NEVER
            return
        member = peer.member
        assert member.state in REACHABLE, member
        assert self._members.peers.get(member.id) is peer, member
        self._target, self._asked, self._period_ms = peer, -1, now_ms
        self._sequence = self._draw()
        self._probed = member
        self._outbox.send(member.address, self.ping(self._sequence, member.id))
        self.due_ms = now_ms + self._profile.probe_timeout_ms

    def _draw(self) -> bytes:
        self._count = (self._count + 1) % _SEQUENCES
        return self._count.to_bytes(4, "big")

    def _next(self) -> MemberPeer | None:
        peers = self._members.peers
        # Every other probe belongs to the ring, however many requests fail.
        while self._hints and not self._was_hinted:
            peer = peers.get(self._hints.pop(0))
            if peer is not None and peer.reachable:
                self._was_hinted = True
                return peer
        self._was_hinted = False
        while True:
            while self._place < len(self._ring):
                peer = self._ring[self._place]
                self._place += 1
                assert peer.awaits_probe, peer.member  # Each peer is probed once in a round.
                peer.awaits_probe = False
                if peer.reachable:
                    return peer
            self._ring, self._place = self._members.ring(self._random), 0
            for peer in self._ring:
                peer.awaits_probe = True
            if not self._ring:
                return None

    def _ask_others(self, now_ms: int) -> None:
        target, sequence = self._target, self._sequence
        assert target is not None
        self.due_ms = self._period_ms + self._awareness.stretched(self._profile.probe_interval_ms)
        own, member = self._members.own.id, target.member
        helpers = self._members.draw(self._random, self._profile.indirect_probes, member.id)
        for helper in helpers:
            head = messages.ping_request(own, int.from_bytes(sequence, "big"), member.id, member.address)
            self._outbox.send(helper.member.address, self._spreading.laden_for(helper, head))
        self._asked, self._nacks = len(helpers), 0
        wait_ms = max(1, self.due_ms - now_ms)
        then = partial(self._answered, target, sequence)
        self._outbox.ask(member.address, self.ping(sequence, member.id), wait_ms, then)

    def _answered(self, target: MemberPeer, sequence: bytes, reply: bytes | None, now_ms: int) -> None:
        if reply is None:
            return
        waiting = self._target is target and self._sequence == sequence
        try:
            self._listener.on_reply(reply, now_ms)
        except (DroppedPacket, Malformed):
            self._outbox.counters["bad_reply"] += 1
        if waiting and self._target is None:
            self._outbox.counters["probes_saved_by_tcp"] += 1

    def acknowledged(self, sequence: bytes, now_ms: int) -> None:
        """Process an ACK: end the present probe, or pass the ACK on to the node that asked for the relay."""
        if sequence == self._sequence and self._target is not None:
            self._target = None
            self._awareness.better()
            self.due_ms = max(now_ms, self._period_ms + self._profile.probe_interval_ms)
            return
        relayed = self._relays.pop(sequence, None)
        if relayed is not None:
            to, theirs, bare = relayed
            self._outbox.send(to, self.ack(theirs, bare=bare))

    def missed(self, sequence: bytes) -> None:
        """Count a NACK: a helper did not reach the member either."""
        if sequence == self._sequence and self._nacks < self._asked:
            self._nacks += 1

    def _give_up(self, now_ms: int) -> None:
        target = self._target
        assert target is not None
        self._target = None
        assert 0 <= self._nacks <= self._asked, (self._nacks, self._asked)
        self._awareness.worse(self._asked - self._nacks if self._asked else 1)
        before, current = self._probed, target.member
        if before._replace(state=current.state) == current:
            # A changed record shows that the member has spoken since, perhaps in a new life or at another address.
            self._beliefs.unanswered(current.id, now_ms=now_ms)

    def greet(self, peer: MemberPeer) -> None:
        """Send a PING that is no probe: a missing answer has no consequence."""
        self._outbox.send(peer.member.address, self.ping(self._draw(), peer.member.id))

    def relay(
        self, source: Address, sequence: bytes, target: bytes, address: Address, *, stranger: bool, now_ms: int
    ) -> None:
        """Try to reach a member for another node.

        The PING carries news only if the asking node is a member and the target is known at that address.
        """
        if len(self._relays) >= MAX_RELAYS:
            self._outbox.counters["relays_full"] += 1
            return
        mine = self._draw()
        self._relays[mine] = source, sequence, stranger
        peer = self._members.peers.get(target)
        bare = stranger or peer is None or peer.member.address != address
        self._outbox.send(address, self.ping(mine, target, bare=bare))
        if self._profile.lifeguard and not stranger:
            self._timers.at(now_ms + self._profile.nack_ms, partial(self._admit, mine))
        self._timers.at(now_ms + self._profile.probe_interval_ms, partial(self._drop, mine))

    def _admit(self, mine: bytes, _now_ms: int) -> None:
        relayed = self._relays.get(mine)
        if relayed is not None:
            to, theirs, _ = relayed
            self._outbox.send(to, messages.nack(self._members.own.id, int.from_bytes(theirs, "big")))

    def _drop(self, mine: bytes, _now_ms: int) -> None:
        self._relays.pop(mine, None)
