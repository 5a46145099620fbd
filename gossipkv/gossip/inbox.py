"""Incoming packets: datagrams, and requests of other nodes over TCP.

No method for datagrams or requests raises on bytes of a peer: a packet that cannot be read is dropped and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.gossip.member import Member
from gossipkv.gossip.membership.joining import flags_of
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import (
    ACK_HASH,
    KIND,
    PING_HASH,
    SENDER,
    SEQUENCE,
    TARGET,
    BranchHead,
    Delta,
    MemberVerdict,
)
from gossipkv.gossip.packets.prefix import NO_CLUSTER, DroppedPacket, cluster_id_of, version_of

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.anti_entropy.exchange import SyncExchange
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.contact import Contact
    from gossipkv.gossip.membership.detector import Detector
    from gossipkv.gossip.membership.joining import SeedJoin
    from gossipkv.gossip.membership.members import MemberPeer
    from gossipkv.gossip.membership.rumours import Spreading
    from gossipkv.gossip.membership.self_identity import SelfIdentity
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.tree.tree import GossipTree

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


class MembershipParts(NamedTuple):
    """The parts of membership that messages are for."""

    identity: SelfIdentity
    beliefs: Beliefs
    contact: Contact
    spreading: Spreading
    detector: Detector
    joining: SeedJoin


@final
class Inbox:
    """Reads each message, and passes it and its parts to the component in charge."""

    def __init__(
        self,
        state: SharedState,
        cluster: str,
        membership: MembershipParts,
        tree: GossipTree,
        exchange: SyncExchange,
    ) -> None:
        self._members = state.members
        self._id = state.members.own.id
        self._outbox = state.outbox
        self._envelope = state.outbox.envelope
        self._counters = state.outbox.counters
        self._cluster = cluster
        self._identity = membership.identity
        self._beliefs = membership.beliefs
        self._contact = membership.contact
        self._spreading = membership.spreading
        self._detector = membership.detector
        self._joining = membership.joining
        self._tree = tree
        self._exchange = exchange

    def receive(self, packet: bytes, source: Address, now_ms: int) -> None:
        """Process a datagram."""
        try:
            message = self._envelope.unwrap(packet)
            peer = self._contact.hear(message[SENDER], now_ms)
            kind = message[KIND]
            if kind == _PING:
                self._on_ping(message, source, peer, now_ms)
            elif kind == _ACK:
                self._on_ack(message, peer, now_ms)
            else:
                self._on_other(kind, message, source, peer, now_ms)
        except DroppedPacket as dropped:
            self._counters[f"dropped_{dropped.reason}"] += 1
        except Malformed:
            self._counters["dropped_malformed"] += 1

    def reply(self, request: bytes, now_ms: int) -> bytes | None:
        """Return the reply to another node's request over TCP; None if it is refused."""
        try:
            message = self._envelope.unwrap(request, any_cluster=True)
            answer = self._reply(message, cluster_id_of(request), now_ms)
        except DroppedPacket as dropped:
            self._counters[f"dropped_{dropped.reason}"] += 1
            absent = self._members.peers.get(dropped.sender)
            if absent is not None and not absent.reachable:  # It may be back as another release: see if it fits.
                self._joining.look(absent.member.address, now_ms)
            if dropped.reason == "cluster_name":
                return Envelope(self._cluster).wrap(messages.refusal(self._id, self._cluster))
            return None
        except Malformed:
            self._counters["dropped_malformed"] += 1
            return None
        if answer is None:
            self._counters["dropped_request"] += 1
            return None
        return self._envelope.wrap(answer, version_of(request))  # The asker may be older than the members.

    def receive_ack(self, packet: bytes, now_ms: int) -> None:
        """Process an ACK that came over TCP.

        Raises:
            DroppedPacket: the packet is not for this node.
            Malformed: the packet is no ACK.
        """
        message = self._envelope.unwrap(packet)
        if message[KIND] != _ACK:
            raise Malformed("the message is not an ACK")
        self._on_ack(message, self._contact.hear(message[SENDER], now_ms), now_ms)

    # Messages

    def _on_ping(self, message: bytes, source: Address, peer: MemberPeer | None, now_ms: int) -> None:
        if message[TARGET] != self._id:
            self._counters["dropped_not_for_me"] += 1
            return
        self._outbox.send(source, self._answer_ping(message, source, peer, now_ms))
        self._compare(message[PING_HASH], message[SENDER], peer, now_ms)

    def _answer_ping(self, message: bytes, source: Address | None, peer: MemberPeer | None, now_ms: int) -> bytes:
        if len(message) != messages.PING_BYTES:
            messages.read_ping(message)  # Checks that the message is complete.
            self._read_parts(message, messages.PING_BYTES, peer, now_ms)
        answer = self._detector.ack(message[SEQUENCE], bare=True)
        if peer is None:
            # The sender may be anybody: send no more than was received, and no news that only members should have.
            return answer
        is_there = source is None or source == peer.member.address
        if not (peer.alive and is_there):
            # The sender must hear the statements about itself, or that a namesake runs at the address in the record.
            answer += messages.record(peer.member)
        return self._spreading.laden(answer) if is_there else answer

    def _on_ack(self, message: bytes, peer: MemberPeer | None, now_ms: int) -> None:
        if len(message) != messages.ACK_BYTES:
            messages.read_ack(message)  # Checks that the message is complete.
            self._read_parts(message, messages.ACK_BYTES, peer, now_ms)
        self._detector.acknowledged(message[SEQUENCE], now_ms)
        self._compare(message[ACK_HASH], message[SENDER], peer, now_ms)

    def _compare(self, state_hash: bytes, sender: bytes, peer: MemberPeer | None, now_ms: int) -> None:
        """Compare the state hash of a PING or an ACK with the hash of this node."""
        if state_hash != self._exchange.state_hash:
            if peer is not None:
                self._exchange.differs(peer.member.address, now_ms=now_ms)
        elif self._tree.has_tombstones:
            self._tree.acknowledged(sender)

    def _on_other(self, kind: bytes, message: bytes, source: Address, peer: MemberPeer | None, now_ms: int) -> None:
        if kind == _GOSSIP and len(message) >= messages.GOSSIP_BYTES:
            self._read_parts(message, messages.GOSSIP_BYTES, peer, now_ms)
        elif kind == _SYNC:
            at = source if peer is None else peer.member.address
            self._exchange.receive(message, at, stranger=peer is None, now_ms=now_ms)
        elif kind == _NACK:
            messages.read_nack(message)  # Checks that the message is complete.
            self._detector.missed(message[SEQUENCE])
        elif kind == _PING_REQUEST:
            _, target, address, begin = messages.read_ping_request(message)
            self._read_parts(message, begin, peer, now_ms)
            stranger = peer is None or peer.member.address != source
            self._detector.relay(source, message[SEQUENCE], target, address, stranger=stranger, now_ms=now_ms)
        elif kind == _WHO:
            answer = self._identity.answer_who(message, now_ms)
            if answer is not None:
                self._outbox.send(source, answer)
        else:
            self._counters["dropped_kind"] += 1

    def _read_parts(self, message: bytes, begin: int, peer: MemberPeer | None, now_ms: int) -> None:
        """Read the parts of a message. `peer` is None for a stranger, since its address may be forged."""
        teller = None if peer is None else peer.member.address
        for part in messages.read_parts(message, begin):
            if isinstance(part, MemberVerdict):
                self._beliefs.hear_verdict(part, now_ms=now_ms)
            elif isinstance(part, Member):
                self._beliefs.hear_record(part, now_ms=now_ms)
            elif isinstance(part, Delta):
                self._exchange.on_delta(part, teller, now_ms=now_ms)
            elif isinstance(part, BranchHead):
                self._exchange.on_head(part, teller, now_ms=now_ms)

    # Requests

    def _reply(self, message: bytes, cluster_id: bytes, now_ms: int) -> bytes | None:
        kind = message[KIND]
        if kind == _SYNC:
            return self._reply_to_sync(message, cluster_id, now_ms)
        if cluster_id != self._envelope.cluster_id:
            raise DroppedPacket("cluster_id")
        if kind == _WHO:
            return self._identity.answer_who(message, now_ms)
        if kind == _PING and messages.read_ping(message)[1] == self._id:
            return self._answer_ping(message, None, self._contact.hear(message[SENDER], now_ms), now_ms)
        return None

    def _reply_to_sync(self, message: bytes, cluster_id: bytes, now_ms: int) -> bytes:
        flags = messages.read_sync(message)[1]
        if cluster_id == self._envelope.cluster_id and cluster_id != NO_CLUSTER:
            self._contact.hear(message[SENDER], now_ms)
            if self._identity.speaks:
                return self._exchange.reply(message, now_ms=now_ms)
            self._identity.show()
            records = b"".join(map(messages.record, self._members))
            return messages.sync(self._id, self._exchange.state_hash, messages.REPLY) + records
        mine = flags_of(self._joining.as_asked())
        self._joining.asked(cluster_id, flags, message[SENDER], now_ms)
        return messages.sync(self._id, self._exchange.state_hash, mine | messages.REPLY)
