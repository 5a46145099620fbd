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

from gossipkv.gossip.anti_entropy.differences import FIRST, LAST
from gossipkv.gossip.anti_entropy.exchange import Exchange
from gossipkv.gossip.effects import Changed, Remember
from gossipkv.gossip.member import REACHABLE, Member, State, member_id
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.detector import Detector
from gossipkv.gossip.membership.joining import Joining, flags_of
from gossipkv.gossip.membership.members import Members
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.membership.self_identity import Naming
from gossipkv.gossip.membership.shared_state import Ground
from gossipkv.gossip.membership.spreading import Spreading
from gossipkv.gossip.membership.timers import NEVER, Timers
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import ACK_HASH, KIND, PING_HASH, SENDER, SEQUENCE, TARGET, Delta, Head, Verdict
from gossipkv.gossip.packets.prefix import NO_CLUSTER, Dropped, cluster_id_of
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.gossip.tree.tree import Tree

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from gossipkv.address import Address
    from gossipkv.gossip.chance import Random
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.membership.members import Peer
    from gossipkv.gossip.packets.messages import Known
    from gossipkv.gossip.profile import Profile


_PING, _ACK, _NACK, _PING_REQUEST, _GOSSIP, _SYNC, _WHO = (
    bytes((kind,))
    for kind in (
        messages.PING,
        messages.ACK,
        messages.NACK,
        messages.PING_REQUEST,
        messages.GOSSIP,
        messages.SYNC,
        messages.WHO,
    )
)
REMEMBERED = 64  # Addresses kept for the next start: one of them will do.
SILENT_INTERVALS = 2  # Of the detector, without a packet from anybody: in each I am to hear a PING and an ACK.
GREETED = 64  # Dead members spoken to at a time, at most.


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
        own = Member(member_id(me.name), me.name, me.uuid, me.address, me.epoch, 0, State.ALIVE)
        self._id = own.id
        self._ping_head, self._ack_head = _PING + own.id, _ACK + own.id
        self._cluster = me.cluster
        self._profile = profile
        self._random = random
        self._envelope = envelope
        self._unwrap = envelope.unwrap
        self._timers = Timers()
        self._outbox = Outbox(envelope, me.epoch)
        self._send = self._outbox.send
        self.counters: Counter[str] = self._outbox.counters
        self.members = Members(own, limits.max_members)
        self._peers = self.members.peers
        self.tree = Tree(own.id, me.epoch, limits.tree)
        self.tree.heard_ms = self._heard_of
        self._ground = ground = Ground(self.members, profile, random, self._timers, self._outbox)
        self._rumours = Rumours()
        self._tree_rumours = self.tree.rumours
        self._spreading = Spreading(ground, self._rumours, self._tree_rumours)
        self._detector = Detector(ground, self)
        self._beliefs = Beliefs(ground, self._rumours, self)
        self._naming = Naming(ground, self._became, self._doubted, self._spoke)
        self._joining = Joining(
            ground,
            cluster=me.cluster,
            pinned=me.pinned,
            request=self._join_request,
            merge=self._joined,
            introduce=self._naming.introduce,
            is_introduced=lambda: self._naming.announced,
        )
        self._exchange = Exchange(
            self.members,
            self.tree,
            profile,
            random,
            timers=self._timers,
            hearer=self,
            message_bytes=profile.packet_bytes - envelope.overhead,
            send=self._send_exchange,
            ask=self._ask_exchange,
        )
        self._state = self._exchange.hash
        self.tree.on_step = self._on_step
        self._heard_ms = 0
        self._silence_ms = SILENT_INTERVALS * profile.probe_interval_ms if profile.lifeguard else NEVER
        self._keeping_peers = False
        self._leaving = False

    # What the shell calls

    def start(
        self, *, joins: Iterable[Address], remembered: Iterable[Address], now_ms: int, lone: bool | None = None
    ) -> None:
        """Begin.

        `joins` are addresses that this node was told to join, `remembered` those of its last run; `lone`: nobody told
        it to join anything (a name that stands for no address yet is no address, and still was told).
        """
        joins = tuple(joins)
        self._heard_ms = self._naming.started_ms = now_ms
        self.tree.on_member(self.members.own)
        self._exchange.start(now_ms=now_ms)
        self._timers.at(self._ground.later(now_ms, self._profile.reconnect_interval_ms), self._greet_the_dead)
        self._joining.start(joins, remembered, lone=not joins if lone is None else lone, now_ms=now_ms)

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """The addresses to join from now on, all of them."""
        self._joining.join(addresses, now_ms)

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None:
        """A datagram."""
        try:
            message = self._unwrap(packet)
            peer = self._hear(message, now_ms)
            kind = message[KIND]
            if kind == _PING:
                self._on_ping(message, source, peer, now_ms)
            elif kind == _ACK:
                self._on_ack(message, peer, now_ms)
            else:
                self._on_other(kind, message, source, peer, now_ms)
        except Dropped as dropped:
            self.counters[f"dropped_{dropped.reason}"] += 1
        except Malformed:
            self.counters["dropped_malformed"] += 1

    def reply(self, request: bytes, *, now_ms: int) -> bytes | None:
        """The reply to another node's Ask; None: refused."""
        try:
            message = self._unwrap(request, any_cluster=True)
            answer = self._reply(message, cluster_id_of(request), now_ms)
        except Dropped as dropped:
            self.counters[f"dropped_{dropped.reason}"] += 1
            if dropped.reason == "cluster_name":
                return Envelope(self._cluster).wrap(messages.refusal(self._id, self._cluster))
            return None
        except Malformed:
            self.counters["dropped_malformed"] += 1
            return None
        if answer is None:
            self.counters["dropped_request"] += 1
            return None
        return self._envelope.wrap(answer)

    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None:
        """What came of an Ask."""
        self._outbox.answered(token, reply, now_ms)

    def stored(self, token: int, *, now_ms: int) -> None:
        """What a Store asked for is durable."""
        self._outbox.stored(token, now_ms)

    @property
    def wakes_at_ms(self) -> int:
        """When to call `wake` next."""
        return min(self._detector.due_ms, self._timers.next_ms, self._spreading.due_ms)

    def wake(self, *, now_ms: int) -> None:
        """Timers are due; early, late or doubled it does no harm."""
        if now_ms - min(self._detector.due_ms, self._timers.next_ms) > self._profile.probe_interval_ms:
            self._was_away(now_ms)
        if self._timers.next_ms <= now_ms:
            self._timers.run(now_ms)
        if self._spreading.due_ms <= now_ms:
            self._spreading.wake(now_ms)
        if self._detector.due_ms <= now_ms:
            self._detector.wake(now_ms)

    def leave(self, *, now_ms: int) -> None:
        """Say that this node goes for good; it takes a few rounds until everybody was told."""
        if self._leaving:
            return
        self._leaving = True
        self._detector.due_ms = NEVER
        self.members.own = self.members.own._replace(state=State.LEFT)
        self._became(now_ms)
        self._spreading.tell(self._profile.gossip_members)

    def take(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects = self._outbox.effects
        self._outbox.effects = []
        return effects

    def suspect_hint(self, id_: bytes, *, now_ms: int) -> None:
        """A request to a member failed elsewhere: probe it soon."""
        self._detector.hint(id_, now_ms)

    def isolated(self, *, now_ms: int) -> bool:
        """Whether peers are known, and none was heard for half a suspicion time."""
        if all(peer.member.state is State.LEFT for peer in self._peers.values()):
            return False
        return now_ms - self._heard_ms > self._profile.suspicion_least_ms(self.members.reachable) // 2

    # Datagrams

    def _on_ping(self, message: bytes, source: Address, peer: Peer | None, now_ms: int) -> None:
        if message[TARGET] != self._id:
            self.counters["dropped_not_for_me"] += 1
            return
        self._send(source, self._answer_ping(message, source, peer, now_ms))
        if message[PING_HASH] != self._state.value:
            if peer is not None:
                self._exchange.differs(peer.member.address, now_ms=now_ms)
        elif self.tree.has_tombstones:
            self.tree.acknowledged(message[SENDER])

    def _answer_ping(self, message: bytes, source: Address | None, peer: Peer | None, now_ms: int) -> bytes:
        if len(message) != messages.PING_BYTES:
            messages.read_ping(message)  # It is whole.
            self._read(message, messages.PING_BYTES, peer, now_ms)
        answer = self._ack_head + message[SEQUENCE] + self._state.value
        if peer is None:
            return answer  # Anybody at all: no more than was sent, and no news that members should have.
        is_there = source is None or source == peer.member.address
        if not (peer.alive and is_there):
            # It must hear what is said of it; or that there is another of its name, at the address in the record.
            answer += messages.record(peer.member)
        if is_there and (self._rumours.size or self._tree_rumours.size):
            answer = self._spreading.laden(answer)
        return answer

    def read_reply(self, reply: bytes, now_ms: int) -> None:
        """Take in an ACK that came over TCP.

        Raises:
            Dropped: it is of nobody here.
            Malformed: it is none.
        """
        message = self._unwrap(reply)
        if message[KIND] != _ACK:
            raise Malformed("no ACK")
        self._on_ack(message, self._hear(message, now_ms), now_ms)

    def _on_ack(self, message: bytes, peer: Peer | None, now_ms: int) -> None:
        if len(message) != messages.ACK_BYTES:
            messages.read_ack(message)  # It is whole.
            self._read(message, messages.ACK_BYTES, peer, now_ms)
        self._detector.acknowledged(message[SEQUENCE], now_ms)
        if message[ACK_HASH] != self._state.value:
            if peer is not None:
                self._exchange.differs(peer.member.address, now_ms=now_ms)
        elif self.tree.has_tombstones:
            self.tree.acknowledged(message[SENDER])

    def _on_other(self, kind: bytes, message: bytes, source: Address, peer: Peer | None, now_ms: int) -> None:
        if kind == _GOSSIP and len(message) >= messages.GOSSIP_BYTES:
            self._read(message, messages.GOSSIP_BYTES, peer, now_ms)
        elif kind == _SYNC:
            at = source if peer is None else peer.member.address
            self._exchange.receive(message, at, stranger=peer is None, now_ms=now_ms)
        elif kind == _NACK:
            messages.read_nack(message)  # It is whole.
            self._detector.missed(message[SEQUENCE])
        elif kind == _PING_REQUEST:
            _, target, address, begin = messages.read_ping_request(message)
            self._read(message, begin, peer, now_ms)
            stranger = peer is None or peer.member.address != source
            self._detector.relay(source, message[SEQUENCE], target, address, stranger=stranger, now_ms=now_ms)
        elif kind == _WHO:
            answer = self._naming.who(message, now_ms)
            if answer is not None:
                self._send(source, answer)
        else:
            self.counters["dropped_kind"] += 1

    def _read(self, message: bytes, begin: int, peer: Peer | None, now_ms: int) -> None:
        """Parts that rode on a message of that peer, or of a stranger: nobody is asked at an address it may invent."""
        teller = None if peer is None else peer.member.address
        for part in messages.read_parts(message, begin):
            if isinstance(part, Verdict):
                if part.id == self._id:
                    self._naming.judged(part, now_ms)
                else:
                    self._beliefs.judged(part, now_ms=now_ms)
            elif isinstance(part, Member):
                self.on_record(part, now_ms=now_ms)
            elif isinstance(part, Delta):
                self._exchange.on_delta(part, teller, now_ms=now_ms)
            elif isinstance(part, Head):
                self._exchange.on_head(part, teller, now_ms=now_ms)

    def on_record(self, record: Member, *, now_ms: int) -> None:
        """A RECORD, from wherever."""
        if record.id == self._id:
            self._naming.told(record, now_ms)
        else:
            self._beliefs.told(record, now_ms=now_ms)

    def on_invented(self, epoch: int) -> None:
        """What others have of this node's branch is not its own doing: it goes on in a new epoch."""
        self.counters["branch_invented"] += 1
        self._naming.outlive(epoch)

    def on_older(self, id_: bytes, *, now_ms: int) -> None:
        """A member has been dead or gone for longer than it was known."""
        self._exchange.touch(id_, now_ms=now_ms)

    def on_age(self, known: Known, *, first: bool, now_ms: int) -> None:
        """For how long a member was not heard, or has been dead or gone."""
        self._beliefs.aged(known, first=first, now_ms=now_ms)

    # Requests

    def _reply(self, message: bytes, cluster_id: bytes, now_ms: int) -> bytes | None:
        kind = message[:1]
        if kind == _SYNC:
            return self._reply_sync(message, cluster_id, now_ms)
        if cluster_id != self._envelope.cluster_id:
            raise Dropped("cluster_id")
        if kind == _WHO:
            return self._naming.who(message, now_ms)
        if kind == _PING and messages.read_ping(message)[1] == self._id:
            return self._answer_ping(message, None, self._hear(message, now_ms), now_ms)
        return None

    def _reply_sync(self, message: bytes, cluster_id: bytes, now_ms: int) -> bytes:
        flags = messages.read_sync(message)[1]
        if cluster_id == self._envelope.cluster_id and cluster_id != NO_CLUSTER:
            self._hear(message, now_ms)
            if self._naming.speaks:
                return self._exchange.reply(message, now_ms=now_ms)
            self._naming.show()
            records = b"".join(map(messages.record, self.members))
            return messages.sync(self._id, self._state.value, messages.REPLY) + records
        mine = flags_of(self._joining.as_asked())
        self._joining.asked(cluster_id, flags, message[SENDER], now_ms)
        return messages.sync(self._id, self._state.value, mine | messages.REPLY)

    def _join_request(self, flags: int, now_ms: int) -> bytes:
        if self._naming.announced:
            return self._exchange.request(flags, now_ms=now_ms)
        # I know nothing, and you need not know of me yet: there may be another of my name.
        nothing = messages.digest(FIRST, LAST, ())
        return messages.sync(self._id, self._state.value, flags) + nothing

    def _joined(self, message: bytes, address: Address, now_ms: int) -> None:
        self._hear(message, now_ms)
        self._exchange.answered(address, message, now_ms=now_ms)

    def _send_exchange(self, address: Address, message: bytes) -> None:
        if self._naming.speaks:
            self._send(address, message)

    def _ask_exchange(self, address: Address, message: bytes) -> None:
        if not self._naming.speaks:
            self._timers.at(self._heard_ms, partial(self._exchanged, address, None))
            return
        self._outbox.ask(address, message, self._profile.ask_timeout_ms, partial(self._exchanged, address))

    def _exchanged(self, address: Address, reply: bytes | None, now_ms: int) -> None:
        try:
            message = None if reply is None else self._unwrap(reply)
            if message is not None:
                self._hear(message, now_ms)
            if message is None or message[:1] == _SYNC:
                self._exchange.answered(address, message, now_ms=now_ms)
                return
        except (Dropped, Malformed):
            pass
        self.counters["bad_reply"] += 1
        self._exchange.answered(address, None, now_ms=now_ms)

    # Between the parts

    def ping(self, sequence: bytes, target: bytes, *, bare: bool = False) -> bytes:
        """A PING, and what should ride on it; nothing on a bare one."""
        head = self._ping_head + sequence + target + self._state.value
        if bare:
            return head
        peer = self._peers.get(target)
        if peer is not None and peer.alive and not (self._rumours.size or self._tree_rumours.size):
            return head
        return self._spreading.laden(head) if peer is None else self.laden(peer, head)

    def ack(self, sequence: bytes, *, bare: bool = False) -> bytes:
        """An ACK for another, likewise."""
        head = self._ack_head + sequence + self._state.value
        return head if bare else self._spreading.laden(head)

    def laden(self, peer: Peer, head: bytes) -> bytes:
        """A message to a peer; when it is not alive here it must hear that first."""
        if not peer.alive and self._profile.lifeguard:
            head += messages.record(peer.member)
        return self._spreading.laden(head)

    def unanswered(self, id_: bytes, now_ms: int) -> None:
        """A probe failed."""
        self._beliefs.unanswered(id_, now_ms=now_ms)

    def _heard_of(self, id_: bytes) -> int | None:
        peer = self._peers.get(id_)
        return None if peer is None else peer.heard_ms

    def _hear(self, message: bytes, now_ms: int) -> Peer | None:
        """Something came: from that peer, or a stranger.  After a silence all is read before anybody is judged.

        Else a node that was cut off, its timers running, hears at one time what others who were suspect, finds its
        own suspicion confirmed and long run out, and has called them dead before they can speak.
        """
        peer = self._peers.get(message[SENDER])
        if peer is None and message[SENDER] == self._id:
            return None  # I asked at an address that is mine as well: nobody else is heard by that.
        if now_ms - self._heard_ms > self._silence_ms:
            self._beliefs.grace_until_ms = now_ms + self._profile.probe_interval_ms
            self._beliefs.accuse_again()
        self._heard_ms = now_ms
        if peer is not None:
            peer.heard_ms = now_ms
        return peer

    def is_silent(self, *, now_ms: int) -> bool:
        """Whether nobody was heard for so long that the fault may be this node's."""
        return now_ms - self._heard_ms > self._silence_ms

    def _was_away(self, now_ms: int) -> None:
        """This process stood still: its own silence is no evidence against others."""
        self.counters["stalls"] += 1
        self._beliefs.grace_until_ms = now_ms + self._profile.probe_interval_ms
        self._detector.stalled(now_ms)

    def _doubted(self) -> None:
        if self._profile.lifeguard:
            self._detector.awareness.worse(1)

    def _spoke(self) -> None:
        self._spreading.quiet = not self._naming.speaks
        if self._rumours or self._tree_rumours:
            self._spreading.news()

    def _became(self, now_ms: int) -> None:
        """I am something else than before."""
        own = self.members.own
        if own.epoch > self.tree.head(own.id).epoch:
            self.tree.renew(own.epoch)
        self.tree.on_member(own)
        self._exchange.touch(own.id, now_ms=now_ms)
        if self._naming.announced:
            self._rumours.add(own.id, messages.record(own))
            self._spreading.news()

    def on_changed(self, member: Member, before: State | None, *, now_ms: int) -> None:
        """A belief changed."""
        self.tree.on_member(member)
        self._exchange.touch(member.id, now_ms=now_ms)
        if member.state in REACHABLE and before not in REACHABLE:
            self._detector.newcomer(self._peers[member.id], now_ms)
            if self._rumours or self._tree_rumours:
                self._spreading.news()
        if member.state in REACHABLE and not self._keeping_peers:
            self._keeping_peers = True
            self._timers.at(now_ms + self._profile.probe_interval_ms, self._keep_peers)
        self._outbox.effects.append(Changed(member, before))

    def on_forgotten(self, member: Member, *, now_ms: int) -> None:
        """A member is known no longer."""
        self.tree.forget(member.id)
        self._exchange.touch(member.id, now_ms=now_ms)

    def on_news(self) -> None:
        """There is something to tell."""
        self._spreading.news()

    def _on_step(self, owner: bytes) -> None:
        """A branch has moved."""
        self._state.touch(owner)
        self._spreading.news()

    def _keep_peers(self, _now_ms: int) -> None:
        """Keep addresses for the next start: of those who are there, then of whoever may be found again."""
        self._keeping_peers = False
        peers = [peer.member.address for peer in self.members.draw(self._random, REMEMBERED)]
        if peers:
            peers += [peer.member.address for peer in self.members.unreachable() if peer.member.state is State.DEAD]
            peers += self._joining.unseen
            self._outbox.effects.append(Remember(tuple(dict.fromkeys(peers))[:REMEMBERED]))

    def _greet_the_dead(self, now_ms: int) -> None:
        """Speak to some who are dead: they may live behind a partition that is healed by now.

        All nodes together send each about three pings in an interval, and ask it once over TCP, however many are dead.
        """
        self._timers.at(self._ground.later(now_ms, self._profile.reconnect_interval_ms), self._greet_the_dead)
        if self._leaving:
            return
        dead = [peer for peer in self.members.unreachable() if peer.member.state is State.DEAD]
        some = min(GREETED, len(dead), -(-3 * len(dead) // self.members.reachable))
        for _ in range(some):
            place = int(self._random.random() * len(dead))
            self._detector.greet(dead[place])
            if self._random.random() * self.members.reachable * some < len(dead):
                self._joining.look(dead[place].member.address, now_ms)
            dead[place] = dead[-1]
            dead.pop()
