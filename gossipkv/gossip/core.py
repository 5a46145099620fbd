"""Membership and tree behind one object: it takes bytes and the time, and leaves effects behind.

`Gossip.receive` takes a datagram, and `reply` answers a request of another node. `answered` and `stored` take the
results of `AskOverTcp` and `StoreDurably`, and `wake` runs due timers. After each of these calls, `take` returns the
effects.

Four rules say how the parts are wired:

- A part gets all its collaborators by its constructor, so they are made before it.
- A part notifies later parts through its one `Listener` (a Protocol beside the part), which is `Gossip`.
- Later events (a timer, a reply, a disk) call the function that was passed to `Timers` or `Outbox` for them.
- No part sets an attribute of another; state that can be queried (news, silence, identity) is not notified.

So the constructor lists the parts in their order, and the methods `on_...` are all the calls that go backwards.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import TooLarge
from gossipkv.gossip.anti_entropy.exchange import SyncExchange, SyncTransport
from gossipkv.gossip.effects import MemberChanged
from gossipkv.gossip.inbox import Inbox, MembershipParts
from gossipkv.gossip.member import REACHABLE, Member, MemberState, member_id
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.contact import Contact
from gossipkv.gossip.membership.detector import Detector
from gossipkv.gossip.membership.joining import SeedJoin
from gossipkv.gossip.membership.lifeguard import Awareness
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.reconnecting import Reconnecting
from gossipkv.gossip.membership.rumours import Rumours, Spreading
from gossipkv.gossip.membership.self_identity import SelfIdentity
from gossipkv.gossip.membership.shared_state import SharedState
from gossipkv.gossip.membership.timers import Timers
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.gossip.tree.tree import GossipTree

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.packets.envelope import Envelope
    from gossipkv.gossip.profile import TimingProfile
    from gossipkv.gossip.protocols import GossipRandom


NAMES: Final = "names"  # Parent path of advertised names: `names/<host:port>`.
DUPLICATES: Final = "duplicates"  # Parent path of keys for namesakes of the owner: `duplicates/<host:port>`.


class Me(NamedTuple):
    """Identity of this node."""

    name: str
    uuid: bytes
    epoch: int  # Higher than at any earlier start, and durable already, unless the node begins silent.
    address: Address
    cluster: str
    cluster_id: bytes
    pinned: bool  # The node has a catalogue and never takes another cluster id; a node without one may be pinned later.
    is_first: bool = False  # The node has never belonged to a cluster.


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits:
    """Bounds for the memory that other nodes can make this node use."""

    max_members: int = 1024
    tree: TreeLimits = field(default_factory=TreeLimits)


@final
class Gossip:
    """A node's membership and tree."""

    def __init__(
        self,
        me: Me,
        profile: TimingProfile,
        random: GossipRandom,
        *,
        limits: GossipLimits,
        envelope: Envelope,
        silent: bool = False,
    ) -> None:
        """`silent`: the epoch of `me` is not durable yet, so this node sends nothing until `speak`."""
        id_, alive = member_id(me.name), MemberState.ALIVE
        own = Member(id_, me.name, me.uuid, me.address, me.epoch, 0, alive, envelope.versions)
        self.members = MemberTable(own, limits.max_members)
        self._profile = profile
        self._random = random
        self._timers = Timers()
        self._outbox = Outbox(envelope, me.epoch, silent=silent)
        self.counters: Counter[str] = self._outbox.counters
        state = SharedState(self.members, profile, random, self._timers, self._outbox)
        self._rumours = Rumours()
        awareness = Awareness(profile.awareness_most if profile.lifeguard else 1)
        self._identity = SelfIdentity(state, self._rumours, awareness, self, is_first=me.is_first)
        self._beliefs = Beliefs(state, self._rumours, self._identity, self)
        self._contact = Contact(state, self._beliefs)
        self.tree = GossipTree(self.members, limits.tree)
        self._exchange = SyncExchange(
            state, self.tree, self._beliefs, SyncTransport(state, self._identity, self._contact)
        )
        self._spreading = Spreading(state, self._identity, self._rumours, self.tree.rumours)
        self._detector = Detector(
            state,
            awareness=awareness,
            spreading=self._spreading,
            state_hash=self._exchange.hash,
            beliefs=self._beliefs,
            listener=self,
        )
        self._joining = SeedJoin(
            state, self._identity, self._contact, self._exchange, cluster=me.cluster, pinned=me.pinned
        )
        self._reconnecting = Reconnecting(state, self._detector, self._joining)
        self._inbox = Inbox(
            state,
            me.cluster,
            MembershipParts(
                self._identity, self._beliefs, self._contact, self._spreading, self._detector, self._joining
            ),
            self.tree,
            self._exchange,
        )

    # Methods that the shell calls

    def start(
        self, *, joins: Iterable[Address], remembered: Iterable[Address], now_ms: int, lone: bool | None = None
    ) -> None:
        """Start joining and exchanging.

        `joins` are addresses that this node was told to join, `remembered` are those of its last run. `lone`: the node
        was told no name to join. A name that does not resolve yet gives no address, but the node is not lone.
        """
        joins = tuple(joins)
        self._contact.start(now_ms)
        self.tree.on_member(self.members.own)
        self._exchange.start(now_ms=now_ms)
        self._reconnecting.start(now_ms)
        self._joining.start(joins, remembered, lone=not joins if lone is None else lone, now_ms=now_ms)

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        """Join these addresses from now on, instead of those of earlier calls."""
        self._joining.join(addresses, now_ms)

    def pin(self) -> None:
        """Take no other cluster id from now on; `pinned` becomes true once that is durable."""
        self._joining.pin()

    @property
    def pinned(self) -> bool:
        """True if this node never takes another cluster id, and that is durable."""
        return self._joining.pinned

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None:
        """Process a datagram."""
        self._inbox.receive(packet, source, now_ms)

    def reply(self, request: bytes, *, now_ms: int) -> bytes | None:
        """Return the reply to another node's request over TCP; None if it is refused."""
        return None if self._outbox.silent else self._inbox.reply(request, now_ms)

    def news(self) -> bytes | None:
        """Return a request that tells a member the keys published here since the last call; None if there are none."""
        news = None if self._outbox.silent else self._exchange.news()
        return None if news is None else self._outbox.envelope.wrap(news)

    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None:
        """Process the reply to an `AskOverTcp`; None if none came."""
        self._outbox.answered(token, reply, now_ms)

    def stored(self, token: int, *, now_ms: int) -> None:
        """Process that the state of a `StoreDurably` is durable."""
        self._outbox.stored(token, now_ms)

    @property
    def silent(self) -> bool:
        """True while this node must not be heard by others."""
        return self._outbox.silent

    def speak(self, *, now_ms: int) -> None:
        """Stop being silent: the epoch of this start is durable."""
        assert self._outbox.silent
        self._outbox.speak()
        for peer in self.members.ring(self._random):
            self._detector.newcomer(peer, now_ms)
        self._identity.speak(now_ms)

    @property
    def wakes_at_ms(self) -> int:
        """Time at which to call `wake` next."""
        return min(self._detector.due_ms, self._timers.next_ms, self._spreading.due_ms)

    def wake(self, *, now_ms: int) -> None:
        """Run due timers. An early, late or repeated call does no harm."""
        if now_ms - min(self._detector.due_ms, self._timers.next_ms) > self._profile.probe_interval_ms:
            self._contact.was_away(now_ms)
            self._detector.stalled(now_ms)
        if now_ms - self.members.heard_ms > self._profile.probe_interval_ms:
            self._contact.look(now_ms)
        if self._timers.next_ms <= now_ms:
            self._timers.run(now_ms)
        if self._spreading.due_ms <= now_ms:
            self._spreading.wake(now_ms)
        if self._detector.due_ms <= now_ms:
            self._detector.wake(now_ms)

    def leave(self, *, now_ms: int) -> None:
        """Tell members that this node leaves for good; the news needs a few rounds to reach all of them."""
        if self.members.own.state is not MemberState.LEFT:
            self._detector.stop()
            self._identity.leave(now_ms)
            self._spreading.tell(self._profile.gossip_members)

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        if self._outbox.envelope.version != self.members.agreed:  # Else all agree on it already.
            self._outbox.envelope.use(self.protocol)
        return self._outbox.take()

    @property
    def protocol(self) -> int:
        """The newest protocol version that all members announce; while some were not met again, this node's oldest.

        A writer of a new format asks for it.
        """
        oldest = self._outbox.envelope.versions.oldest
        return oldest if self._joining.seeking else max(oldest, self.members.agreed)

    def suspect_hint(self, id_: bytes, *, now_ms: int) -> None:
        """Probe a member soon, since a request to it failed elsewhere."""
        self._detector.hint(id_, now_ms)

    def isolated(self, *, now_ms: int) -> bool:
        """True if peers are known, and none was heard for half a suspicion time."""
        return self._contact.is_isolated(now_ms)

    @property
    def is_cut_off(self) -> bool:
        """True if this node has heard nobody for so long that the others may have found it dead."""
        return self._contact.is_cut_off

    def unheard(self, *, now_ms: int) -> list[str]:
        """Return names of reachable members that this node has not heard for two rounds of probes and a suspicion time.

        In each round either of two members probes the other once. An isolated node hears nobody, and returns no names.
        """
        members, profile = self.members.reachable, self._profile
        patience_ms = 2 * members * profile.probe_interval_ms + profile.suspicion_least_ms(members)
        peers = () if self.isolated(now_ms=now_ms) else self.members.peers.values()
        return [peer.member.name for peer in peers if peer.reachable and now_ms - peer.heard_ms > patience_ms]

    # Listener methods that the parts call

    def on_own(self, *, now_ms: int) -> None:
        """Process a change of this node's own record."""
        self.tree.on_member(self.members.own)
        self._exchange.touch(self.members.own.id, now_ms=now_ms)

    def on_claimed_twice(self, other: Member | None) -> None:
        """Publish that another node claims this node's name; None if no node does any more."""
        for path in [path for path in self.tree.published() if path.startswith(f"{DUPLICATES}/")]:
            self.tree.withdraw(path)
        if other is not None:
            with suppress(TooLarge):  # The warning to the operator was issued in any case.
                self.tree.mark(f"{DUPLICATES}/{other.address}")

    def on_changed(self, member: Member, before: MemberState | None, *, now_ms: int) -> None:
        """Process a new member, or a changed record or state of a member."""
        assert self.members.get(member.id) is member, member
        self.tree.on_member(member)
        self._exchange.touch(member.id, now_ms=now_ms)
        if member.state in REACHABLE:
            if before not in REACHABLE and not self._outbox.silent:
                self._detector.newcomer(self.members.peers[member.id], now_ms)
            self._reconnecting.remember_soon(now_ms)
        self._outbox.effects.append(MemberChanged(member, before))

    def on_forgotten(self, member: Member, *, now_ms: int) -> None:
        """Process that a member was forgotten."""
        self.tree.forget(member.id)
        self._reconnecting.on_forgotten(member, now_ms)
        self._exchange.touch(member.id, now_ms=now_ms)

    def on_older(self, id_: bytes, *, now_ms: int) -> None:
        """Process that a member was dead or gone for longer than known before."""
        self._exchange.touch(id_, now_ms=now_ms)

    def on_reply(self, reply: bytes, now_ms: int) -> None:
        """Process a reply over TCP to a probe.

        Raises:
            DroppedPacket: the packet is not for this node.
            Malformed: the packet is no ACK.
        """
        self._inbox.receive_ack(reply, now_ms)
