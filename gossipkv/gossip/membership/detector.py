"""The failure detector: one member is probed in each interval, all of them in turn.

    0            PING to the next of the ring (a random order, drawn anew each time round)
    timeout      no ACK: others are asked to try (PING_REQUEST), and TCP is tried
    interval     nothing still: suspected

An ACK by any of these ways, however late within the interval, is an answer.  Helpers that could not reach the member
either say so (NACK); those that say nothing speak against me (`awareness.py`), and the interval grows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip import packets
from gossipkv.gossip.envelope import Dropped
from gossipkv.gossip.fields import Malformed
from gossipkv.gossip.membership.awareness import Awareness
from gossipkv.gossip.membership.timers import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.address import Address
    from gossipkv.gossip.membership.members import Members, Peer
    from gossipkv.gossip.membership.outbox import Outbox
    from gossipkv.gossip.membership.timers import Timers
    from gossipkv.gossip.profile import Profile

    Compose = Callable[[Peer, bytes], bytes]  # A message to a peer: the head, and what should ride on it.

_MAX_SEQUENCE: Final = (1 << 32) - 1
MAX_RELAYS: Final = 1024  # Members that I try to reach for others at a time; each is forgotten after an interval.
MAX_HINTS: Final = 16


@final
class Detector:
    """Probes one member after the other."""

    __slots__ = (
        "_asked",
        "_compose",
        "_failed",
        "_hints",
        "_members",
        "_nacks",
        "_outbox",
        "_period_ms",
        "_place",
        "_profile",
        "_random",
        "_relays",
        "_ring",
        "_sequence",
        "_target",
        "_timers",
        "awareness",
        "due_ms",
        "state_hash",
    )

    def __init__(
        self,
        members: Members,
        profile: Profile,
        random: Random,
        timers: Timers,
        outbox: Outbox,
        compose: Compose,
        failed: Callable[[bytes, int], None],
    ) -> None:
        self._members = members
        self._profile = profile
        self._random = random
        self._timers = timers
        self._outbox = outbox
        self._compose = compose
        self._failed = failed
        self.awareness = Awareness(profile.awareness_most if profile.lifeguard else 1)
        self._ring: list[Peer] = []
        self._place = 0
        self._hints: list[bytes] = []
        self._sequence = int(random.random() * _MAX_SEQUENCE)
        self._target: Peer | None = None  # Whom the current probe is about, until it has answered.
        self._asked = self._nacks = -1  # Helpers asked to try, -1 before the time-out; and those that said they failed.
        self._period_ms = 0  # When the current probe began.
        self._relays: dict[int, tuple[Address, int]] = {}
        self.due_ms = NEVER
        self.state_hash = bytes(packets.HASH_BYTES)

    def newcomer(self, peer: Peer, now_ms: int) -> None:
        """Probe this one too from now on: somewhere in the present round."""
        place = int(self._random.random() * (len(self._ring) + 1))
        self._ring.insert(place, peer)
        if place < self._place:
            self._place += 1
        if self.due_ms == NEVER:
            self._period_ms = now_ms
            self.due_ms = now_ms + int(self._random.random() * self._profile.probe_interval_ms)

    def hint(self, id_: bytes) -> None:
        """Probe this one next."""
        if id_ in self._members.peers and id_ not in self._hints and len(self._hints) < MAX_HINTS:
            self._hints.append(id_)

    def stalled(self, now_ms: int) -> None:
        """I was away: the answer to the present probe may be waiting to be read, so it is not held against anybody."""
        self._target = None
        if self.due_ms != NEVER:
            self.due_ms = min(now_ms, self.due_ms)

    def wake(self, now_ms: int) -> None:
        """What is due at `due_ms`."""
        if self._target is None:
            self._probe(now_ms)
        elif self._asked < 0:
            self._ask_others(now_ms)
        else:
            self._give_up(now_ms)
            self._probe(now_ms)

    def _probe(self, now_ms: int) -> None:
        peer = self._next()
        if peer is None:
            self.due_ms = NEVER
            return
        self._target, self._asked, self._period_ms = peer, -1, now_ms
        sequence = self._draw()
        member = peer.member
        head = packets.ping(self._members.own.id, sequence, member.id, self.state_hash)
        self._outbox.send(member.address, self._compose(peer, head))
        self.due_ms = now_ms + self._profile.probe_timeout_ms

    def _draw(self) -> int:
        self._sequence = self._sequence + 1 & _MAX_SEQUENCE
        return self._sequence

    def _next(self) -> Peer | None:
        peers = self._members.peers
        while self._hints:
            peer = peers.get(self._hints.pop(0))
            if peer is not None and peer.reachable:
                return peer
        while True:
            while self._place < len(self._ring):
                peer = self._ring[self._place]
                self._place += 1
                if peer.reachable:
                    return peer
            self._ring, self._place = self._members.ring(self._random), 0
            if not self._ring:
                return None

    def _ask_others(self, now_ms: int) -> None:
        target, sequence = self._target, self._sequence
        assert target is not None
        self.due_ms = self._period_ms + self.awareness.stretched(self._profile.probe_interval_ms)
        own, member = self._members.own.id, target.member
        helpers = self._members.draw(self._random, self._profile.indirect_probes, member.id)
        for helper in helpers:
            head = packets.ping_request(own, sequence, member.id, member.address)
            self._outbox.send(helper.member.address, self._compose(helper, head))
        self._asked, self._nacks = len(helpers), 0
        ping = packets.ping(own, sequence, member.id, self.state_hash)
        self._outbox.ask(member.address, ping, max(1, self.due_ms - now_ms), partial(self._answered, sequence))

    def _answered(self, sequence: int, reply: bytes | None, now_ms: int) -> None:
        """What TCP brought."""
        if reply is None:
            return
        try:
            message = self._outbox.envelope.unwrap(reply)
            if message[:1] != bytes((packets.ACK,)) or packets.read_ack(message)[0] != sequence:
                raise Malformed("no answer to a PING")
        except (Dropped, Malformed):
            self._outbox.counters["bad_reply"] += 1
            return
        if self._target is not None and sequence == self._sequence:
            self._outbox.counters["probes_saved_by_tcp"] += 1
        self.acknowledged(sequence, now_ms)

    def acknowledged(self, sequence: int, now_ms: int) -> None:
        """An ACK came."""
        if sequence == self._sequence and self._target is not None:
            self._target = None
            self.awareness.better()
            self.due_ms = max(now_ms, self._period_ms + self._profile.probe_interval_ms)
            return
        relayed = self._relays.pop(sequence, None)
        if relayed is not None:
            to, theirs = relayed
            self._outbox.send(to, packets.ack(self._members.own.id, theirs, self.state_hash))

    def missed(self, sequence: int) -> None:
        """A helper says that it did not reach the member either."""
        if sequence == self._sequence and self._nacks < self._asked:
            self._nacks += 1

    def _give_up(self, now_ms: int) -> None:
        target = self._target
        assert target is not None
        self._target = None
        if self._profile.lifeguard:
            self.awareness.worse(self._asked - self._nacks if self._asked else 1)
        self._failed(target.member.id, now_ms)

    def relay(self, source: Address, sequence: int, target: bytes, address: Address, now_ms: int) -> None:
        """Try to reach a member for another."""
        if len(self._relays) >= MAX_RELAYS:
            self._outbox.counters["relays_full"] += 1
            return
        mine = self._draw_relay()
        self._relays[mine] = source, sequence
        self._outbox.send(address, packets.ping(self._members.own.id, mine, target, self.state_hash))
        if self._profile.lifeguard:
            self._timers.at(now_ms + self._profile.nack_ms, partial(self._admit, mine))
        self._timers.at(now_ms + self._profile.probe_interval_ms, partial(self._drop, mine))

    def _draw_relay(self) -> int:
        """A random sequence that is not taken."""
        while True:
            sequence = int(self._random.random() * _MAX_SEQUENCE)
            if sequence not in self._relays and sequence != self._sequence:
                return sequence

    def _admit(self, mine: int, now_ms: int) -> None:  # noqa: ARG002 - every timer is told the time
        relayed = self._relays.get(mine)
        if relayed is not None:
            to, theirs = relayed
            self._outbox.send(to, packets.nack(self._members.own.id, theirs))

    def _drop(self, mine: int, now_ms: int) -> None:  # noqa: ARG002 - as above
        self._relays.pop(mine, None)
