"""Anti-entropy: two nodes with different knowledge make each other equal.

Rumours reach almost every node; exchanges reach the rest. Each ping and ACK carries a state hash. If two hashes differ
after the local one was still for about the spreading time of a rumour, the nodes exchange digests (`differences.py`):
in a few datagrams if these suffice, else, or if the nodes still differ afterwards, over TCP.

    asker                              asked
    SYNC  DIGEST of all ranges  ->           compares
                                <-     SYNC  REPLY  RECORD, DELTA: gaps of the asker; WANT: gaps of the asked
    SYNC  REPLY  RECORD, DELTA  ->

Over TCP each arrow to the right is a request and the arrow below it the reply, with as many whole branches as fit.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.anti_entropy.differences import DATAGRAMS, FIRST, LAST, Knowledge, Replies, wants
from gossipkv.gossip.anti_entropy.state_hash import StateHash
from gossipkv.gossip.member import Member
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import pack, unpack
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import (
    KIND,
    MAX_PART_BYTES,
    MORE,
    PACKED,
    REPLY,
    SENDER,
    SYNC_BYTES,
    BranchHead,
    Delta,
    MemberDigest,
    Want,
)
from gossipkv.gossip.packets.prefix import DroppedPacket
from gossipkv.gossip.tree.branch import DeltaOutcome, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.address import Address
    from gossipkv.gossip.anti_entropy.differences import Differences
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.contact import Contact
    from gossipkv.gossip.membership.self_identity import SelfIdentity
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.packets.messages import Part
    from gossipkv.gossip.tree.tree import GossipTree

    Answered = Callable[[bytes | None, int], None]  # Called with the reply's message, or None, and now_ms.

PAUSE_MS: Final = 1000  # Pause between two exchanges that this node begins.
LONGEST_PAUSE_MS: Final = 8000  # Pause while exchanges change nothing here, as during a suspicion.
LONGEST_WAIT_MS: Final = 5000  # Longest wait for stillness, on a node that always changes.
MAX_ASKED: Final = 3  # Requests in flight.
KNOWN_BYTES: Final = 18  # Typical size of one member in a digest.


@final
class SyncTransport:
    """Sends the messages of an exchange in envelopes, and only while this node's identity is undisputed."""

    __slots__ = ("_contact", "_identity", "_members", "_outbox", "_profile", "_timers")

    def __init__(self, state: SharedState, identity: SelfIdentity, contact: Contact) -> None:
        self._members = state.members
        self._profile = state.profile
        self._timers = state.timers
        self._outbox = state.outbox
        self._identity = identity
        self._contact = contact

    def send(self, to: Address, message: bytes) -> None:
        """Send one datagram."""
        if self._identity.speaks:
            self._outbox.send(to, message)

    def ask(self, to: Address, message: bytes, then: Answered) -> None:
        """Ask over TCP. `then` gets the reply or None, and may raise `Malformed`."""
        if self._identity.speaks:
            self._outbox.ask(to, message, self._profile.ask_timeout_ms, partial(self._answered, then))
        else:
            self._timers.at(self._members.heard_ms, partial(then, None))  # The timer runs as soon as possible.

    def _answered(self, then: Answered, reply: bytes | None, now_ms: int) -> None:
        try:
            if reply is None:
                then(None, now_ms)
                return
            message = self._outbox.envelope.unwrap(reply)
            self._contact.hear(message[SENDER], now_ms)
            if message[KIND] == bytes((messages.SYNC,)):
                then(message, now_ms)
                return
        except (DroppedPacket, Malformed):
            pass
        self._outbox.counters["bad_reply"] += 1
        then(None, now_ms)


@final
class SyncExchange:
    """Finds differences, and ends them.

    A SYNC without a part tells only the hash; a receiver with another hash begins an exchange. A datagram of a reply
    holds all changes of a branch or none; branches that do not fit are named by HEADs under the flag MORE, and the
    receiver asks for them over TCP. New knowledge spreads on, as news of members and as HEADs of branches.
    """

    def __init__(self, state: SharedState, tree: GossipTree, beliefs: Beliefs, transport: SyncTransport) -> None:
        self._members = members = state.members
        self._profile = state.profile
        self._random = state.random
        self._timers = state.timers
        self._tree = tree
        self._beliefs = beliefs
        self._transport = transport
        self._body_bytes = state.message_bytes - SYNC_BYTES
        self._own = members.own.id
        self._knowledge = Knowledge(members, tree, state.profile)
        self._replies = Replies(self._knowledge, tree, self._body_bytes)
        self.hash = StateHash(members, tree)
        self._seen = b""  # The hash at the last check, and since when it has this value.
        self._still_since_ms = 0
        self._last_ms: int | None = None
        self._next_ms = 0
        self._pause_ms = PAUSE_MS
        self._was_answered = True  # True if the last exchange that this node began was answered.
        # True if the next exchange with an address uses TCP; absent if the digest's size decides.
        self._over_tcp: dict[Address, bool] = {}
        self._asked: set[Address] = set()
        self._more: set[Address] = set()  # Addresses to ask again after the present request.
        self._wanted_ms: dict[bytes, int] = {}
        self._news_head = tree.head(self._own)  # Position of this node's branch at the last `news`.
        self.hash.touch(self._own)

    def start(self, *, now_ms: int) -> None:
        """Start regular exchanges."""
        self._timers.at(now_ms + int(self._interval_ms() * self._random.random()), self._regularly)

    # State that rides on pings

    @property
    def state_hash(self) -> bytes:
        """The state hash of this node, in eight bytes."""
        return self.hash.value

    def touch(self, id_: bytes, *, now_ms: int) -> None:
        """Note a change of a member, or that it was forgotten."""
        self.hash.pass_time(now_ms)
        self.hash.touch(id_)

    def differs(self, source: Address, *, now_ms: int) -> None:
        """Process that a ping or its answer had another hash."""
        if self._last_ms is None:
            self._last_ms = now_ms
        self.hash.pass_time(now_ms)
        if self.hash.value != self._seen:
            self._seen = self.hash.value
            self._still_since_ms = now_ms
            self._pause_ms = PAUSE_MS
            # An exchange that changed nothing before may change something now.
            self._next_ms = min(self._next_ms, self._last_ms + PAUSE_MS)
        if now_ms < self._next_ms:
            return
        still_ms = now_ms - self._still_since_ms
        if still_ms >= self._spread_ms() or now_ms - self._last_ms >= LONGEST_WAIT_MS:
            self._begin(source, now_ms)

    # Parts of any message

    def on_delta(self, delta: Delta, teller: Address | None, *, now_ms: int) -> None:
        """Process changes of a branch, as a rumour; ask `teller` for missing ones, unless it is no member (None)."""
        if self._tree.apply(delta) is DeltaOutcome.GAP and teller is not None:
            self._want(delta.owner, teller, now_ms)

    def on_head(self, head: BranchHead, teller: Address | None, *, now_ms: int) -> None:
        """Process the position of a branch; newer changes are asked of `teller`, unless it is no member (None)."""
        if head.owner == self._own:
            self._look_at_own(head.epoch, head.version)
        elif teller is not None and head > self._tree.head(head.owner):
            self._want(head.owner, teller, now_ms)

    # SYNC as a datagram

    def receive(self, message: bytes, source: Address, *, stranger: bool = False, now_ms: int) -> None:
        """Process a message of an exchange.

        A stranger may have forged its address, so it gets long answers over TCP alone.

        Raises:
            Malformed: the message is no SYNC.
        """
        state_hash, flags = messages.read_sync(message)
        if flags & PACKED:
            raise Malformed("a datagram must not have packed parts")
        parts = list(messages.read_parts(message, SYNC_BYTES))
        self._hear(parts, now_ms)
        if stranger:
            if not flags & MORE:
                self._sync(source, REPLY | MORE, ([],))
            return
        if flags & MORE:
            self._fetch(parts, source, now_ms)
            return
        digests = [part for part in parts if isinstance(part, MemberDigest)]
        if flags & REPLY:
            self._was_answered = True
            found = self._newer(parts, now_ms)
        elif digests:
            found = self._knowledge.compare(digests, now_ms)
            # The sender's digest began an exchange, too.
            self._last_ms, self._next_ms = now_ms, max(self._next_ms, now_ms + self._pause_ms)
        else:
            if state_hash != self.state_hash and now_ms >= self._next_ms:
                self._begin(source, now_ms)
            return
        for reply_flags, body in self._replies.datagrams(found, now_ms):
            self._sync(source, reply_flags, (body,))

    # SYNC over TCP

    def request_anonymously(self, flags: int) -> bytes:
        """Return a request that tells nothing: this node knows nothing, and its name may be taken."""
        return messages.sync(self._own, self.state_hash, flags) + messages.digest(FIRST, LAST, ())

    def request(self, flags: int = 0, *, now_ms: int) -> bytes:
        """Return a request that tells all local knowledge, and asks for the knowledge of the other node."""
        parts = [messages.record(self._members.own), *self._knowledge.digest(MAX_PART_BYTES, now_ms)]
        return pack(self._own, self.state_hash, flags, b"".join(parts))

    def news(self) -> bytes | None:
        """Return a request that tells the keys published here since the last call; None if there are none.

        The request asks nothing. A receiver that missed an earlier request ignores this one, and learns the changes by
        an exchange.
        """
        before, self._news_head = self._news_head, self._tree.head(self._own)
        parts = b"".join(self._tree.deltas(self._own, before.epoch, before.version, part_bytes=MAX_PART_BYTES))
        return pack(self._own, self.state_hash, REPLY, parts) if parts else None

    def reply(self, message: bytes, *, now_ms: int) -> bytes:
        """Return the reply to a SYNC.

        Raises:
            Malformed: the message is no SYNC.
        """
        _, asked = messages.read_sync(message)
        parts = list(messages.read_parts(unpack(message), 0))
        self._hear(parts, now_ms)
        if asked & REPLY:
            found = self._newer(parts, now_ms)
        else:
            found = self._knowledge.compare((part for part in parts if isinstance(part, MemberDigest)), now_ms)
            found.records.extend(self._knowledge.contradicting(part for part in parts if isinstance(part, Member)))
        reply_parts, more = self._replies.over_tcp(found, now_ms)
        reply_parts += wants(found.wanted, MAX_PART_BYTES)
        return pack(self._own, self.state_hash, REPLY | (MORE if more else 0), b"".join(reply_parts))

    def answered(self, source: Address, message: bytes | None, now_ms: int) -> None:
        """Process the reply to a request; None if there is none.

        Raises:
            Malformed: the message is no reply.
        """
        self._asked.discard(source)
        goes_on = source in self._more
        self._more.discard(source)
        if message is None:
            self._over_tcp[source] = False
            return
        self._over_tcp.pop(source, None)
        self._was_answered = True
        _, flags = messages.read_sync(message)
        parts = list(messages.read_parts(unpack(message), 0))
        before = self.state_hash
        self._hear(parts, now_ms)
        moved = self.state_hash != before
        reply_parts, _ = self._replies.over_tcp(self._newer(parts, now_ms), now_ms)
        # A peer that claims to have more but brings nothing new is not asked again, since that would never end.
        more = bool(flags & MORE) and (moved or not goes_on)
        if more or (reply_parts and goes_on):
            self._more.add(source)
        if reply_parts:
            self._request(source, pack(self._own, self.state_hash, REPLY, b"".join(reply_parts)))
        elif more or (goes_on and not flags & MORE):
            self._request(source, self.request(now_ms=now_ms))

    # Inside

    def _begin(self, address: Address, now_ms: int) -> None:
        """Compare all knowledge with the node at an address."""
        self._last_ms, self._next_ms = now_ms, now_ms + self._pause_ms
        was_answered, self._was_answered = self._was_answered, False
        if was_answered:  # The last exchange changed nothing. An unanswered one is repeated as soon, and over TCP.
            self._pause_ms = min(LONGEST_PAUSE_MS, 2 * self._pause_ms)
        is_large = len(self._members) * KNOWN_BYTES > DATAGRAMS * self._body_bytes
        if self._over_tcp.get(address, is_large or not was_answered):
            self._request(address, self.request(now_ms=now_ms))
            return
        if len(self._over_tcp) >= len(self._members):
            self._over_tcp.clear()
        self._over_tcp[address] = True  # Use TCP if the nodes still differ after this exchange.
        self._sync(address, 0, ([part] for part in self._knowledge.digest(self._body_bytes, now_ms)))

    def _regularly(self, now_ms: int) -> None:
        self._timers.at(now_ms + int(self._interval_ms() * (0.75 + self._random.random() / 2)), self._regularly)
        for peer in self._members.draw(self._random, 1):
            self._sync(peer.member.address, 0, ([],))

    def _hear(self, parts: Iterable[Part], now_ms: int) -> None:
        """Process the new statements of an exchange: records come before state that depends on them."""
        parts = tuple(parts)
        first: set[bytes] = set()
        for part in parts:
            if isinstance(part, Member):
                before = self._members.get(part.id)
                if before is None or before.epoch < part.epoch:
                    first.add(part.id)
                self._beliefs.hear_record(part, now_ms=now_ms)
        for part in parts:
            if isinstance(part, MemberDigest):
                self._hear_ages(part, first, now_ms)
        for delta in joined(part for part in parts if isinstance(part, Delta)):
            self._tree.apply(delta, fresh=False)

    def _hear_ages(self, digest: MemberDigest, first: set[bytes], now_ms: int) -> None:
        for entry in digest.entries:
            if entry.id == self._own:
                self._look_at_own(entry.epoch, entry.version)
            elif self._members.get(entry.id) is not None:
                self._beliefs.hear_age(entry, first=entry.id in first, now_ms=now_ms)

    def _look_at_own(self, epoch: int, version: int) -> None:
        """Report a version of this node's own branch that this epoch has not reached: it was invented."""
        head = self._tree.head(self._own)
        if epoch == head.epoch and version > head.version:
            self._beliefs.hear_invention(epoch)

    def _newer(self, parts: Iterable[Part], now_ms: int) -> Differences:
        wanted = [entry for part in parts if isinstance(part, Want) for entry in part.entries]
        for entry in wanted:
            if entry.id == self._own:
                self._look_at_own(entry.epoch, entry.version)
        return self._knowledge.newer(wanted, now_ms)

    def _want(self, owner: bytes, source: Address, now_ms: int) -> None:
        """Ask `source` for missing changes of a branch, unless a node was just asked."""
        pause_ms = 2 * self._profile.gossip_interval_ms
        if now_ms - self._wanted_ms.get(owner, -pause_ms) < pause_ms:
            return
        if len(self._wanted_ms) > len(self._members):
            self._wanted_ms = {id_: at for id_, at in self._wanted_ms.items() if now_ms - at < pause_ms}
        self._wanted_ms[owner] = now_ms
        wanted = self._knowledge.known_member(owner, now_ms)
        self._sync(source, REPLY, ([messages.want((messages.known_member(wanted),))],))

    def _fetch(self, parts: Iterable[Part], source: Address, now_ms: int) -> None:
        """Ask over TCP for the named branches, or for all knowledge."""
        heads = [part for part in parts if isinstance(part, BranchHead)]
        if not heads:
            self._request(source, self.request(now_ms=now_ms))
            return
        owners = dict.fromkeys(head.owner for head in heads if head > self._tree.head(head.owner))
        wanted = [self._knowledge.known_member(owner, now_ms) for owner in owners]
        if wanted:
            self._request(source, pack(self._own, self.state_hash, REPLY, b"".join(wants(wanted, MAX_PART_BYTES))))

    def _request(self, address: Address, message: bytes) -> None:
        if len(self._asked) < MAX_ASKED and address not in self._asked:
            self._asked.add(address)
            assert len(self._asked) <= MAX_ASKED, self._asked
            self._transport.ask(address, message, partial(self.answered, address))

    def _sync(self, address: Address, flags: int, bodies: Iterable[Sequence[bytes]]) -> None:
        head = messages.sync(self._own, self.state_hash, flags)
        for body in bodies:
            assert sum(map(len, body)) <= self._body_bytes, (flags, *map(len, body))
            self._transport.send(address, head + b"".join(body))

    def _spread_ms(self) -> float:
        return (math.log2(self._members.reachable) / 2 + 2) * self._profile.gossip_interval_ms

    def _interval_ms(self) -> int:
        """Return the interval, longer in large clusters so that the whole cluster exchanges no more."""
        grown = max(0, math.ceil(math.log2(self._members.reachable)) - 5)
        return self._profile.exchange_interval_ms * (grown + 1)
