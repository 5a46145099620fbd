"""Membership and tree behind one object: it is told bytes and the time, and leaves effects behind.

    receive     a datagram                      wake     timers that are due, at `wakes_at_ms`
    reply       answers an Ask of another node  answered, stored    what an Ask or a Store came to
    take        the effects, after each of these

Nothing here raises on bytes of a peer: what is not understood is dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.gossip import packets
from gossipkv.gossip.effects import Remember
from gossipkv.gossip.envelope import Dropped, Envelope, cluster_id_of
from gossipkv.gossip.fields import Malformed
from gossipkv.gossip.member import ID_BYTES, Member, State, member_id
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.detector import Detector
from gossipkv.gossip.membership.joining import Joining
from gossipkv.gossip.membership.meeting import Outcome
from gossipkv.gossip.membership.members import Members
from gossipkv.gossip.membership.naming import Naming
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.plain_exchange import PlainExchange
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.membership.spreading import Spreading
from gossipkv.gossip.membership.timers import Timers
from gossipkv.gossip.packets import Delta, Verdict
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.gossip.tree.tree import Tree

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable
    from random import Random

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.membership.members import Peer
    from gossipkv.gossip.profile import Profile

    Handle = Callable[[bytes, Address, int], None]

ALIVE, SUSPECT, DEAD, LEFT = State
REMEMBERED = 64  # Addresses kept for the next start: one of them will do.


class Me(NamedTuple):
    """Who this node is."""

    name: str
    uuid: bytes
    epoch: int  # Higher than at any start before, and kept already.
    address: Address
    cluster: str
    cluster_id: bytes
    pinned: bool  # It has a catalogue and never takes another cluster id.


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much others can make this node hold."""

    max_members: int = 4096
    tree: TreeLimits = field(default_factory=TreeLimits)


@final
class Gossip:
    """A node's membership and tree."""

    def __init__(self, me: Me, profile: Profile, random: Random, *, limits: Limits, envelope: Envelope) -> None:
        own = Member(member_id(me.name), me.name, me.uuid, me.address, me.epoch, 0, ALIVE)
        self._id = own.id
        self._profile = profile
        self._random = random
        self._unwrap = envelope.unwrap
        self._timers = Timers()
        self._outbox = Outbox(envelope, me.epoch)
        self.counters: Counter[str] = self._outbox.counters
        self.members = Members(own, limits.max_members)
        self._peers = self.members.peers
        self.tree = Tree(own.id, me.epoch, limits.tree)
        self._heard = self.tree.heard_ms
        self._rumours = Rumours()
        self._spreading = Spreading(self.members, profile, random, self._outbox, self._rumours, self.tree.rumours)
        self._detector = Detector(
            self.members, profile, random, self._timers, self._outbox, self._buddied, self._unanswered
        )
        self._beliefs = Beliefs(self.members, profile, self._rumours, self._timers, self._outbox, self)
        self._naming = Naming(self.members, profile, random, self._timers, self._outbox, self._announce, self._doubted)
        self._joining = Joining(
            self.members,
            profile,
            random,
            self._timers,
            self._outbox,
            cluster=me.cluster,
            pinned=me.pinned,
            request=self._join_request,
            merge=self._merge,
            introduce=self._naming.introduce,
        )
        self._exchange = PlainExchange(self.members, self._told)
        self._heard_ms = 0
        self._remember = False
        self.left = False
        self._plain_envelope = Envelope(me.cluster)
        self._cluster = me.cluster
        handlers: dict[int, Handle] = {
            packets.PING: self._on_ping,
            packets.ACK: self._on_ack,
            packets.NACK: self._on_nack,
            packets.PING_REQUEST: self._on_ping_request,
            packets.GOSSIP: self._on_gossip,
            packets.SYNC: self._on_sync,
            packets.WHO: self._on_who,
        }
        self._handlers = {bytes((kind,)): handle for kind, handle in handlers.items()}
        self._touch(own)

    # What the shell calls

    def start(self, *, joins: Iterable[Address], remembered: Iterable[Address], now_ms: int) -> None:
        """Begin; `joins` are addresses that this node was told, `remembered` those of its last run."""
        self._heard_ms = self._naming.started_ms = now_ms
        self.tree.on_member(self.members.own, now_ms=now_ms)
        self._timers.at(self._later(now_ms, self._profile.reconnect_interval_ms), self._reconnect)
        self._joining.start(joins, remembered, now_ms)

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Addresses to join that were not known before."""
        self._joining.join(addresses, now_ms)

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None:
        """A datagram."""
        try:
            message = self._unwrap(packet)
            handle = self._handlers.get(message[:1])
            if handle is None or len(message) < 1 + ID_BYTES:
                self.counters["dropped_kind"] += 1
                return
            self._heard_ms = now_ms
            handle(message, source, now_ms)
        except Dropped as dropped:
            self.counters[f"dropped_{dropped.reason}"] += 1
        except Malformed:
            self.counters["dropped_malformed"] += 1

    def reply(self, request: bytes, *, now_ms: int) -> bytes | None:
        """The reply to another node's Ask; None: refused."""
        try:
            message = self._unwrap(request, any_cluster=True)
            return self._reply(message, cluster_id_of(request), now_ms)
        except Dropped as dropped:
            self.counters[f"dropped_{dropped.reason}"] += 1
            if dropped.reason == "cluster_name":
                return self._plain_envelope.wrap(packets.refusal(self._id, self._cluster))
        except Malformed:
            self.counters["dropped_malformed"] += 1
        return None

    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None:
        """What came of an Ask."""
        self._outbox.answered(token, reply, now_ms)

    def stored(self, token: int, *, now_ms: int) -> None:
        """What a Store asked for is durable."""
        self._outbox.stored(token, now_ms)

    @property
    def wakes_at_ms(self) -> int:
        """When to call `wake` next."""
        return min(self._detector.due_ms, self._spreading.due_ms, self._timers.next_ms)

    def wake(self, *, now_ms: int) -> None:
        """Timers are due; early, late or doubled it does no harm."""
        if now_ms - self.wakes_at_ms > self._profile.probe_interval_ms:
            self._was_away(now_ms)
        if self._timers.next_ms <= now_ms:
            self._timers.run(now_ms)
        if self._spreading.due_ms <= now_ms:
            self._spreading.wake(now_ms)
        if self._detector.due_ms <= now_ms:
            self._detector.wake(now_ms)

    def leave(self, *, now_ms: int) -> None:
        """Say that this node goes for good; the shell gives it a moment to be heard."""
        if self.left:
            return
        self.left = True
        self.members.own = self.members.own._replace(state=LEFT)
        self._announce(now_ms)
        self._spreading.tell(self._profile.gossip_members)

    def take(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects = self._outbox.effects
        self._outbox.effects = []
        return effects

    def suspect_hint(self, id_: bytes, *, now_ms: int) -> None:  # noqa: ARG002 - as all that is told
        """A request to a member failed elsewhere: probe it soon."""
        self._detector.hint(id_)

    def isolated(self, *, now_ms: int) -> bool:
        """Whether peers are known, and none was heard for half a suspicion time."""
        if all(peer.member.state is LEFT for peer in self._peers.values()):
            return False
        return now_ms - self._heard_ms > self._profile.suspicion_least_ms(self.members.reachable) // 2

    # Datagrams

    def _on_ping(self, message: bytes, source: Address, now_ms: int) -> None:
        sequence, target, state_hash = packets.read_ping(message)
        if target != self._id:
            self.counters["dropped_not_for_me"] += 1
            return
        if len(message) > packets.PING_BYTES:
            self._read(message, packets.PING_BYTES, now_ms)
        sender = message[1:9]
        peer = self._peers.get(sender)
        answer = packets.ack(self._id, sequence, self._exchange.state_hash)
        if peer is not None:
            self._heard[sender] = now_ms
            if not peer.alive or peer.member.address != source:
                answer += packets.record(peer.member)
        self._outbox.send(source, self._spreading.laden(answer))

    def _on_ack(self, message: bytes, source: Address, now_ms: int) -> None:
        sequence, state_hash = packets.read_ack(message)
        if len(message) > packets.ACK_BYTES:
            self._read(message, packets.ACK_BYTES, now_ms)
        if message[1:9] in self._peers:
            self._heard[message[1:9]] = now_ms
        self._detector.acknowledged(sequence, now_ms)

    def _on_nack(self, message: bytes, source: Address, now_ms: int) -> None:
        self._detector.missed(packets.read_nack(message))

    def _on_ping_request(self, message: bytes, source: Address, now_ms: int) -> None:
        sequence, target, address, begin = packets.read_ping_request(message)
        self._read(message, begin, now_ms)
        self._detector.relay(source, sequence, target, address, now_ms)

    def _on_gossip(self, message: bytes, source: Address, now_ms: int) -> None:
        self._read(message, packets.GOSSIP_BYTES, now_ms)

    def _on_sync(self, message: bytes, source: Address, now_ms: int) -> None:
        pass

    def _on_who(self, message: bytes, source: Address, now_ms: int) -> None:
        answer = self._naming.who(message, now_ms)
        if answer is not None:
            self._outbox.send(source, answer)

    def _read(self, message: bytes, begin: int, now_ms: int) -> None:
        """Parts that rode on a message."""
        for part in packets.read_parts(message, begin):
            if isinstance(part, Verdict):
                if part.id == self._id:
                    self._naming.judged(part, now_ms)
                else:
                    self._beliefs.judged(part, now_ms=now_ms)
            elif isinstance(part, Member):
                self._told(part, now_ms)
            elif isinstance(part, Delta):
                self.tree.apply(part)

    def _told(self, record: Member, now_ms: int) -> None:
        if record.id == self._id:
            self._naming.told(record, now_ms)
        else:
            self._beliefs.told(record, now_ms=now_ms)

    # Requests

    def _reply(self, message: bytes, cluster_id: bytes, now_ms: int) -> bytes | None:
        kind = message[:1]
        envelope = self._outbox.envelope
        if kind == bytes((packets.SYNC,)):
            flags = packets.read_sync(message)[1]
            mine = packets.REPLY | self._joining.flags(asked=True)
            if self._joining.asked(cluster_id, flags, now_ms) is not Outcome.SAME:
                return envelope.wrap(packets.sync(self._id, self._exchange.state_hash, mine))
            self._exchange.merge(message, now_ms)
            return envelope.wrap(self._exchange.message(mine))
        if cluster_id != envelope.cluster_id:
            raise Dropped("cluster_id")
        answer = None
        if kind == bytes((packets.PING,)):
            sequence, target, _ = packets.read_ping(message)
            if target == self._id:
                answer = packets.ack(self._id, sequence, self._exchange.state_hash)
        elif kind == bytes((packets.WHO,)):
            answer = self._naming.who(message, now_ms)
        if answer is None:
            self.counters["dropped_request"] += 1
            return None
        return envelope.wrap(answer)

    def _join_request(self) -> bytes:
        return self._exchange.message(self._joining.flags(asked=False), own=self._naming.announced)

    def _merge(self, message: bytes, address: Address, now_ms: int) -> None:
        self._heard_ms = now_ms
        self._exchange.merge(message, now_ms)

    # Between the parts

    def _later(self, now_ms: int, wait_ms: int) -> int:
        """A time about so much later, not the same on all nodes."""
        return now_ms + int(wait_ms * (0.75 + self._random.random() / 2))

    def _was_away(self, now_ms: int) -> None:
        """This process stood still: its own silence is no evidence against others."""
        self.counters["stalls"] += 1
        self._beliefs.grace_until_ms = now_ms + self._profile.probe_interval_ms
        self._detector.stalled(now_ms)

    def _buddied(self, peer: Peer, head: bytes) -> bytes:
        """A message to a peer, with what it must hear first when it is not alive here."""
        if not peer.alive and self._profile.lifeguard:
            head += packets.record(peer.member)
        return self._spreading.laden(head)

    def _unanswered(self, id_: bytes, now_ms: int) -> None:
        self._beliefs.unanswered(id_, now_ms=now_ms)

    def _doubted(self) -> None:
        if self._profile.lifeguard:
            self._detector.awareness.worse(1)

    def _announce(self, now_ms: int) -> None:
        """Tell everyone what I am now."""
        own = self.members.own
        self._rumours.add(own.id, packets.record(own))
        self.tree.on_member(own, now_ms=now_ms)
        self._touch(own)
        self._spreading.news(now_ms)

    def _touch(self, member: Member) -> None:
        self._exchange.touch(member.id)
        self._detector.state_hash = self._exchange.state_hash

    def on_changed(self, member: Member, before: State | None, *, now_ms: int) -> None:
        """A belief changed."""
        self.tree.on_member(member, now_ms=now_ms)
        self._touch(member)
        if member.state in {ALIVE, SUSPECT}:
            if before not in {ALIVE, SUSPECT}:
                self._detector.newcomer(self._peers[member.id], now_ms)
                self._spreading.news(now_ms)
            if not self._remember:
                self._remember = True
                self._timers.at(now_ms + self._profile.probe_interval_ms, self._keep_peers)

    def on_forgotten(self, member: Member, *, now_ms: int) -> None:
        """A member is known no longer."""
        self.tree.forget(member.id)
        self._touch(member)

    def on_news(self, *, now_ms: int) -> None:
        """There is something to tell."""
        self._spreading.news(now_ms)

    def _keep_peers(self, now_ms: int) -> None:
        self._remember = False
        live = [peer.member.address for peer in self._peers.values() if peer.alive][:REMEMBERED]
        if live:
            self._outbox.effects.append(Remember(tuple(live)))

    def _reconnect(self, now_ms: int) -> None:
        """Speak to a dead member: it may live behind a partition that is healed by now."""
        self._timers.at(self._later(now_ms, self._profile.reconnect_interval_ms), self._reconnect)
        dead = [peer for peer in self._peers.values() if peer.member.state is DEAD]
        if dead and not self.left:
            peer = dead[int(self._random.random() * len(dead))]
            head = packets.ping(self._id, 0, peer.member.id, self._exchange.state_hash)
            self._outbox.send(peer.member.address, head + packets.record(peer.member))
