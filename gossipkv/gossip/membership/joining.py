"""Joining: finding members at the start, and again whenever they are lost.

A node asks its *seeds*, the addresses that it was told to join, whenever no live member is at one: so separated halves
of a cluster always reunite. The node asks addresses remembered from its last run until a member was seen at each, or
for as long as the dead are remembered: so after a restart of all nodes no groups stay apart. Then these addresses are
*lost*, like those of forgotten dead members; some lost addresses are asked for ever, since a partition may last longer.

Asking is an exchange over TCP (`exchange.py`), and between different cluster ids only a *meeting* (`meet`). The cluster
id keeps clusters of one name apart: it is random, and every packet carries it. The node that draws it records durably
that it did, since only this node may found the catalogue.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.address import Address
from gossipkv.errors import LocalError
from gossipkv.gossip.effects import Complain
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import HEADER_BYTES
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import SENDER
from gossipkv.gossip.packets.prefix import CLUSTER_ID_BYTES, NO_CLUSTER, DroppedPacket, cluster_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.errors import Detail
    from gossipkv.gossip.membership.contact import Contact
    from gossipkv.gossip.membership.self_identity import SelfIdentity
    from gossipkv.gossip.membership.shared_state import SharedState

NOWHERE: Final = Address("", 0)
MAX_SEEDS: Final = 256
PATIENCE_INTERVALS: Final = 2  # Probe intervals for which a node with seeds waits for their id before it draws one.
PATIENCE: Final = 2  # Failed attempts before a warning: the other node may ask by itself, or start later.
MAX_REMEMBERED: Final = 16  # Addresses asked at a start: enough that a member is still at one of them.
MAX_LOST: Final = 16  # Older lost addresses are dropped.
MAX_REFUSED: Final = 16  # Foreign cluster ids with warnings; refusals of further ids are only counted.


class Side(NamedTuple):
    """One of the two nodes in a meeting."""

    cluster_id: bytes
    lone: bool
    pinned: bool
    # True for an asker that was told to join the other node, and does not merely remember its address.
    was_told: bool = False

    def yields_to(self, other: Side) -> bool:
        """True if this side takes the cluster id of the other."""
        return (not self.pinned, self.lone, self.cluster_id) > (not other.pinned, other.lone, other.cluster_id)


class Meeting(enum.Enum):
    """Outcome of a meeting."""

    SAME = "both are in the same cluster"
    DRAW = "neither has a cluster id: the asked node draws an id"
    ASKER_TAKES = "the asking node takes the id of the asked node"
    ASKED_TAKES = "the asked node takes the id of the asking node"
    REFUSED = "both keep their ids, for now or for good"


def meet(asker: Side, asked: Side) -> Meeting:
    """Return the outcome of a meeting, the same on both ends.

    - If one side has no id, it takes the other's. If neither has one, the asked node draws one.
    - If the asker was told to join, one side takes the other's id, unless both are pinned. If one side is pinned, the
      other gives way; otherwise a lone side does; otherwise the side with the larger id.
    - In all other cases both refuse. A remembered address may belong to another cluster by now, and two pinned nodes
      have a catalogue each.

    It does not matter which side was told to join. A node that gave way meets its former members under the new id, and
    the same rule moves them, so two clusters that were told of each other become one. Between otherwise equal sides the
    smaller id stays, so no node moves to and fro.
    """
    if asker.cluster_id == asked.cluster_id:
        return Meeting.DRAW if asker.cluster_id == NO_CLUSTER else Meeting.SAME
    if NO_CLUSTER in {asker.cluster_id, asked.cluster_id}:
        return Meeting.ASKER_TAKES if asker.cluster_id == NO_CLUSTER else Meeting.ASKED_TAKES
    if not asker.was_told or (asker.pinned and asked.pinned):
        return Meeting.REFUSED
    return Meeting.ASKER_TAKES if asker.yields_to(asked) else Meeting.ASKED_TAKES


@final
class Seed:
    """An address where a member may be."""

    __slots__ = ("asking", "due_ms", "failures", "member", "met", "remembered")

    def __init__(self, *, remembered: bool) -> None:
        self.remembered = remembered
        self.asking = False
        self.due_ms = 0  # When to ask again; a timer that runs earlier is ignored.
        self.failures = 0
        self.met = NO_CLUSTER  # The cluster id under which it answered last.
        self.member = b""  # Id of the member that had this address at the last check.


class JoinExchange(Protocol):
    """Makes the requests, and processes the answers of nodes of this cluster."""

    def request(self, flags: int, *, now_ms: int) -> bytes:
        """Return a request that tells all local knowledge, and asks for the knowledge of the other node."""

    def request_anonymously(self, flags: int) -> bytes:
        """Return a request that tells nothing."""

    def answered(self, source: Address, message: bytes | None, now_ms: int) -> None:
        """Process a reply.

        Raises:
            Malformed: the message is no reply.
        """


@final
class SeedJoin:
    """Asks the seeds."""

    def __init__(
        self,
        state: SharedState,
        identity: SelfIdentity,
        contact: Contact,
        exchange: JoinExchange,
        *,
        cluster: str,
        pinned: bool,
    ) -> None:
        self._state = state
        self._members = state.members
        self._profile = state.profile
        self._random = state.random
        self._timers = state.timers
        self._outbox = state.outbox
        self._identity = identity
        self._contact = contact
        self._exchange = exchange
        self._cluster = cluster
        self._pinned = self._pinning = pinned  # Pinned durably; asked to be pinned, and perhaps not durable yet.
        self._seeds: dict[Address, Seed] = {}
        self._lost: dict[Address, None] = {}  # Ordered by the time of the loss.
        self._taking = NO_CLUSTER  # The cluster id that is being made durable.
        self._complained: set[Address] = set()
        self._refusals: dict[bytes, int] = {}  # Counts by the id of the cluster that asked.
        self._started_ms = 0

    def start(self, joins: Iterable[Address], remembered: Iterable[Address], *, lone: bool, now_ms: int) -> None:
        """Ask all addresses. `lone`: this node was never told to join any node, so it may form a cluster."""
        self._started_ms = now_ms
        self.join(joins, now_ms)
        candidates = [address for address in dict.fromkeys(remembered) if address not in self._seeds]
        for _ in range(min(MAX_REMEMBERED, len(candidates))):
            self._add(candidates.pop(int(self._random.random() * len(candidates))), now_ms, remembered=True)
        if self._seeds:
            return
        if lone and self._outbox.envelope.cluster_id == NO_CLUSTER:
            self._draw()
        else:
            self._identity.introduce(now_ms)

    def join(self, addresses: Iterable[Address], now_ms: int) -> None:
        """Ask these seeds from now on, and no earlier ones: a name may stand for other addresses now."""
        addresses = tuple(addresses)
        for address in [address for address, seed in self._seeds.items() if not seed.remembered]:
            if address not in addresses:
                del self._seeds[address]
        for address in addresses:
            self._add(address, now_ms, remembered=False)

    @property
    def pinned(self) -> bool:
        """True if this node never takes another cluster id, and that is durable."""
        return self._pinned

    def pin(self) -> None:
        """Take no cluster id from now on, except one that is being made durable. Repeated calls do nothing.

        The node is pinned, and says so, only once that is durable. If it said so earlier, another node might stay
        behind for the sake of a node that forgets its pin.
        """
        if self._pinning:
            return
        self._pinning = True

        def kept(_now_ms: int) -> None:
            # Earlier changes of the id are durable by now.
            assert NO_CLUSTER in {self._taking, self._outbox.envelope.cluster_id}, self._taking
            self._pinned = True

        self._outbox.store(kept, pinned=True)

    def _add(self, address: Address, now_ms: int, *, remembered: bool) -> None:
        existing = self._seeds.get(address)
        if existing is not None:
            existing.remembered = existing.remembered and remembered
        if existing is not None or address == self._members.own.address or len(self._seeds) >= MAX_SEEDS:
            return
        seed = self._seeds[address] = Seed(remembered=remembered)
        self._ask(address, seed, now_ms)

    def _ask(self, address: Address, seed: Seed, now_ms: int) -> None:
        assert not seed.asking, address  # An address gets one question at a time.
        seed.asking = True
        flags = flags_of(self.as_asker(seed))
        if self._identity.announced:
            request = self._exchange.request(flags, now_ms=now_ms)
        else:
            request = self._exchange.request_anonymously(flags)
        then = partial(self._answered, address, seed)
        # The members there may speak fewer versions than this node, and agree on another one than the members here.
        oldest, newest = self._outbox.envelope.versions
        version = oldest + seed.failures % (newest - oldest + 1)
        self._outbox.ask(address, request, self._profile.ask_timeout_ms, then, version)

    def look(self, address: Address, now_ms: int) -> None:
        """Ask once whether a lost member is back at its address; with a new disk it may not even have a cluster id."""
        if address not in self._seeds:
            self._ask(address, Seed(remembered=True), now_ms)

    def lose(self, address: Address) -> None:
        """Keep the address of a member that was forgotten."""
        if address == self._members.own.address:
            return  # An older name of this node had this address.
        self._lost.pop(address, None)
        self._lost[address] = None
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]

    def look_for_lost(self, now_ms: int) -> None:
        """Ask one lost address if it is this node's turn: all nodes together ask one at a time."""
        if not self._lost or self._random.random() * self._members.reachable >= 1:
            return
        address = list(self._lost)[int(self._random.random() * len(self._lost))]
        if self._is_reached(address, Seed(remembered=True)):
            del self._lost[address]
        else:
            self.look(address, now_ms)

    def lone(self, *, asked: bool) -> bool:
        """True if this node may take another cluster's id without leaving any member behind."""
        if self._members.reachable > 1:
            return False
        return not asked or (len(self._members) == 1 and not self.seeking)

    @property
    def seeking(self) -> bool:
        """True while a member of the last run has not answered."""
        return any(seed.remembered for seed in self._seeds.values())

    @property
    def unseen(self) -> list[Address]:
        """Remembered addresses without a member seen so far, and lost addresses."""
        return [*(address for address, seed in self._seeds.items() if seed.remembered), *self._lost]

    def as_asker(self, seed: Seed) -> Side:
        """Return this node's side of a meeting in which it asks."""
        cluster_id = self._outbox.envelope.cluster_id
        return Side(cluster_id, self.lone(asked=False), self._pinned, not seed.remembered)

    def as_asked(self) -> Side:
        """Return this node's side of a meeting in which it is asked."""
        return Side(self._outbox.envelope.cluster_id, self.lone(asked=True), self._pinned)

    def _answered(self, address: Address, seed: Seed, reply: bytes | None, now_ms: int) -> None:
        assert seed.asking, address
        seed.asking = False
        again_ms = self._profile.reconnect_interval_ms
        try:
            outcome = Meeting.REFUSED if reply is None else self._met(address, seed, reply, now_ms)
        except (DroppedPacket, Malformed) as error:
            self._outbox.counters["bad_reply"] += 1
            self._refused(address, reply or b"", error)
            outcome = Meeting.REFUSED
        if outcome is Meeting.SAME:
            seed.failures = 0
            seed.met = self._outbox.envelope.cluster_id
            if seed.remembered and self._seeds.get(address) is seed and not self._outbox.silent:
                del self._seeds[address]  # A silent node goes on asking, since it hears nothing otherwise.
        elif outcome is Meeting.REFUSED:
            again_ms = min(again_ms, self._profile.probe_interval_ms << min(seed.failures, 16))
            if reply is None and seed.failures == PATIENCE and not seed.remembered:
                self._tell(address, f"no member answers at {address}, an address of `join`; the node retries")
            seed.failures += 1
        else:
            again_ms = self._profile.gossip_interval_ms
        if self._seeds.get(address) is seed:
            self._ask_later(address, seed, self._state.later(now_ms, again_ms))
        nobody_asked = not any(seed.asking for seed in self._seeds.values())
        if outcome is Meeting.SAME or (outcome is Meeting.REFUSED and nobody_asked):
            # Only the answer after a mere meeting tells the members' knowledge of this node's name.
            self._identity.introduce(now_ms)

    def _ask_later(self, address: Address, seed: Seed, due_ms: int) -> None:
        seed.due_ms = due_ms
        self._timers.at(due_ms, partial(self._again, address, seed))

    def _again(self, address: Address, seed: Seed, now_ms: int) -> None:
        if self._seeds.get(address) is not seed or seed.asking or now_ms < seed.due_ms:
            return
        if seed.remembered and now_ms - self._started_ms > self._profile.dead_retention_ms:
            del self._seeds[address]
            self.lose(address)
            return
        if not (self._identity.announced and self._is_reached(address, seed)):
            # A member there may know this node's name, and must be heard before the name is announced.
            self._ask(address, seed, now_ms)
        elif seed.remembered:
            del self._seeds[address]  # A member that was seen once is looked for when it is lost.
        else:
            self._ask_later(address, seed, self._state.later(now_ms, self._profile.reconnect_interval_ms))

    def _is_reached(self, address: Address, seed: Seed) -> bool:
        """Return True if an alive or suspect member of the present cluster has this address."""
        if seed.met != self._outbox.envelope.cluster_id and not seed.remembered:
            return False
        peer = self._members.peers.get(seed.member)
        if peer is not None and peer.reachable and peer.member.address == address:
            return True
        for peer in self._members.peers.values():
            if peer.reachable and peer.member.address == address:
                seed.member = peer.member.id
                return True
        return False

    def _met(self, address: Address, seed: Seed, reply: bytes, now_ms: int) -> Meeting:
        message = self._outbox.envelope.unwrap(reply, any_cluster=True)
        if message[:1] != bytes((messages.SYNC,)):
            raise Malformed("the message is not an answer to a SYNC")
        flags = messages.read_sync(message)[1]
        theirs = cluster_id_of(reply)
        mine = self.as_asker(seed)
        outcome = meet(mine, _side(theirs, flags))
        if outcome is Meeting.SAME:
            self._contact.hear(message[SENDER], now_ms)
            self._exchange.answered(address, message, now_ms)
        elif outcome is Meeting.ASKER_TAKES:
            self._take(theirs, seed, address)
        if outcome is Meeting.REFUSED:
            self._count_refusal(mine, _side(theirs, flags), f"{address}", before=seed.failures, address=address)
        return outcome

    def asked(self, theirs: bytes, flags: int, asker: bytes, now_ms: int) -> Meeting:
        """Process a question of a node with another cluster id, and return the outcome."""
        outcome = meet(_side(theirs, flags), self.as_asked())
        if outcome is Meeting.DRAW:
            self._draw_for(asker, now_ms)
        elif outcome is Meeting.ASKED_TAKES:
            self._take(theirs)
        elif outcome is Meeting.REFUSED:
            before = self._refusals.get(theirs, 0)
            if before or len(self._refusals) < MAX_REFUSED:
                self._refusals[theirs] = before + 1
            self._count_refusal(
                self.as_asked(),
                _side(theirs, flags),
                "a node that asks this node",
                before=before,
                address=self._members.own.address,
            )
        return outcome

    def _count_refusal(self, mine: Side, other: Side, subject: str, *, before: int, address: Address) -> None:
        """Count that two cluster ids stay apart, and warn the operator after some repetitions."""
        self._outbox.counters["cluster_id_refused"] += 1
        if before == PATIENCE:
            if mine.pinned and other.pinned:
                why = "both have tables. Give one cluster another name"
            else:
                why = "neither node was told to join the other. Use `--join`, or give one cluster another name"
            self._tell(
                address,
                f"{subject} belongs to another cluster named {self._cluster!r}, of the id {other.cluster_id.hex()} "
                f"instead of {mine.cluster_id.hex()}: the two do not merge, since {why} (`--cluster`)",
            )

    def _draw_for(self, asker: bytes, now_ms: int) -> None:
        """Draw an id if no other node provides one; of many waiting nodes not all draw at once."""
        waited_ms = now_ms - self._started_ms
        patience_ms = PATIENCE_INTERVALS * self._profile.probe_interval_ms * bool(self._seeds)
        if waited_ms >= (1 if self._members.own.id < asker else 2) * patience_ms:
            self._draw()

    def _draw(self) -> None:
        self._take(bytes(int(self._random.random() * 256) for _ in range(CLUSTER_ID_BYTES)), drew=True)

    def _take(
        self, cluster_id: bytes, seed: Seed | None = None, address: Address = NOWHERE, *, drew: bool = False
    ) -> None:
        if self._taking != NO_CLUSTER or cluster_id == NO_CLUSTER:
            return
        mine = self._outbox.envelope.cluster_id
        assert mine == NO_CLUSTER or not self._pinned, (mine, cluster_id)
        if self._pinning and mine != NO_CLUSTER:
            return  # The other node asks again, and hears by then that this node is pinned.
        self._taking = cluster_id

        def kept(now_ms: int) -> None:
            self._taking = NO_CLUSTER
            self._outbox.envelope.adopt(cluster_id)
            if not self._seeds:
                self._identity.introduce(now_ms)
            if seed is not None and not seed.asking:
                self._ask(address, seed, now_ms)

        self._outbox.store(kept, cluster_id=cluster_id, drew=drew)

    def _refused(self, address: Address, reply: bytes, error: DroppedPacket | Malformed) -> None:
        if not (isinstance(error, DroppedPacket) and error.reason == "cluster_name"):
            return
        message = reply[HEADER_BYTES:]
        try:
            theirs = messages.read_refusal(message) if message[:1] == bytes((messages.REFUSAL,)) else "?"
        except Malformed:
            theirs = "?"
        if address not in self._complained:
            self._complained.add(address)
            words = f"{address} belongs to the cluster {theirs!r}, and this node to {self._cluster!r}: not joined"
            self._tell(address, words)

    def _tell(self, address: Address, why: str) -> None:
        details: dict[str, Detail] = {"address": str(address), "cluster": self._cluster}
        self._outbox.effects.append(Complain(LocalError(why, details)))


def flags_of(side: Side) -> int:
    """Return the flags of a side in a SYNC."""
    return messages.LONE * side.lone | messages.PINNED * side.pinned | messages.TOLD * side.was_told


def _side(cluster_id: bytes, flags: int) -> Side:
    return Side(cluster_id, *(bool(flags & bit) for bit in (messages.LONE, messages.PINNED, messages.TOLD)))
