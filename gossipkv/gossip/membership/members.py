"""The table of members, with the local observations of this node about each."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, final

from gossipkv.gossip.member import REACHABLE, MemberState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.protocols import GossipRandom

    Drawn = list["MemberPeer"]  # Within the class, `list` is the method.

ALIVE = MemberState.ALIVE


@final
class MemberPeer:
    """Another member."""

    __slots__ = ("alive", "awaits_probe", "heard_ms", "member", "reachable", "since_ms")

    def __init__(self, member: Member, now_ms: int) -> None:
        self.member = member
        self.alive = member.state is ALIVE
        self.reachable = False  # True if alive or suspect, and in the table; `MemberTable` maintains it.
        self.awaits_probe = False  # True until the detector has probed this peer in the present round.
        self.heard_ms = now_ms  # When its last packet, or the first statement about it, arrived.
        self.since_ms = now_ms  # When its present state began, by the earliest report.


@final
class MemberTable:
    """This node and its peers; `peers` excludes this node."""

    __slots__ = ("_gone", "_listed", "_places", "_reachable", "agreed", "heard_ms", "most", "own", "peers")

    def __init__(self, own: Member, most: int) -> None:
        self.own = own
        self.most = most
        self.peers: dict[bytes, MemberPeer] = {}
        self.heard_ms = 0  # When a packet of any sender arrived last.
        self._reachable: list[MemberPeer] = []  # Alive or suspect, in no order, so that drawing one takes one step.
        self._places: dict[bytes, int] = {}
        self._gone: dict[bytes, MemberPeer] = {}
        self._listed: tuple[Member, ...] = ()  # The last `list`; empty after a change.
        self.agreed = own.versions.newest  # The newest protocol version that all known members speak.

    def __len__(self) -> int:
        return len(self.peers) + 1

    def __iter__(self) -> Iterator[Member]:
        yield self.own
        for peer in self.peers.values():
            yield peer.member

    @property
    def reachable(self) -> int:
        """Number of alive or suspect members including this node: the n of every formula."""
        return len(self._reachable) + 1

    def get(self, id_: bytes) -> Member | None:
        """Return the member of an id, or None if it is unknown."""
        if id_ == self.own.id:
            return self.own
        peer = self.peers.get(id_)
        return None if peer is None else peer.member

    def list(self) -> tuple[Member, ...]:
        """Return all members, including this node, by name: the same object until one of them changes."""
        if not self._listed:
            self._listed = tuple(sorted(self, key=attrgetter("name")))
        return self._listed

    def live(self) -> tuple[Member, ...]:
        """Return the alive members, including this node, by name."""
        return tuple(member for member in self.list() if member.state is ALIVE)

    def put_own(self, own: Member) -> None:
        """Replace this node's own record; its rank only rises, and only this node raises it."""
        assert own.rank > self.own.rank, (own.rank, self.own.rank)
        self.own, self._listed = own, ()

    def hear(self, peer: MemberPeer | None, now_ms: int) -> None:
        """Note the arrival of a packet; `peer` is None for a stranger."""
        self.heard_ms = now_ms
        if peer is not None:
            peer.heard_ms = now_ms

    def put(self, member: Member, now_ms: int) -> MemberState | None:
        """Replace the record of a peer, and return the state before."""
        assert member.id != self.own.id, member
        self._listed = ()
        peer = self.peers.get(member.id)
        before = None
        if peer is None:
            peer = self.peers[member.id] = MemberPeer(member, now_ms)
            self.agreed = min(self.agreed, member.versions.newest)
        else:
            versions = peer.member.versions
            before = peer.member.state
            assert member.rank >= peer.member.rank, (member, peer.member)
            if member.rank != peer.member.rank:
                peer.since_ms = now_ms
            if member.epoch != peer.member.epoch:
                peer.heard_ms = now_ms  # This is the first statement about this epoch.
            peer.member = member
            if member.versions != versions:
                self._agree()
            peer.alive = member.state is ALIVE
        reachable = member.state in REACHABLE
        if reachable and not peer.reachable:
            self._places[member.id] = len(self._reachable)
            self._reachable.append(peer)
            peer.reachable = True
            self._gone.pop(member.id, None)
        elif not reachable:
            self._lose(peer)
            self._gone[member.id] = peer
        self._assert_counted()
        return before

    def forget(self, id_: bytes) -> None:
        """Remove a peer from the table."""
        self._listed = ()
        self._lose(self.peers.pop(id_))
        self._agree()
        self._gone.pop(id_, None)
        self._assert_counted()

    def _agree(self) -> None:
        """Find the agreed version again. Members that are down count until they are forgotten: they may come back."""
        self.agreed = min(member.versions.newest for member in self)

    def _assert_counted(self) -> None:
        """Check that every peer is either reachable with a place, or gone."""
        counts = len(self.peers), len(self._reachable), len(self._gone)
        assert counts[0] == counts[1] + counts[2], counts
        assert len(self._places) == counts[1], (len(self._places), counts)

    def _lose(self, peer: MemberPeer) -> None:
        if peer.reachable:
            peer.reachable = False
            place = self._places.pop(peer.member.id)
            assert self._reachable[place] is peer, (peer.member, self._reachable[place].member)
            last = self._reachable.pop()
            if last is not peer:
                self._reachable[place] = last
                self._places[last.member.id] = place

    def unreachable(self) -> Iterable[MemberPeer]:
        """Return the peers that are dead or have left."""
        return self._gone.values()

    def draw(self, random: GossipRandom, most: int, but: bytes = b"") -> Drawn:
        """Return up to `most` distinct reachable peers at random, without the peer of the id `but`."""
        reachable = self._reachable
        here = len(reachable) - (but in self._places)
        if here <= most:
            return [peer for peer in reachable if peer.member.id != but]
        chosen: list[MemberPeer] = []
        while len(chosen) < most:
            peer = reachable[int(random.random() * len(reachable))]
            if peer.member.id != but and peer not in chosen:
                chosen.append(peer)
        return chosen

    def ring(self, random: GossipRandom) -> Drawn:
        """Return all reachable peers in a new random order."""
        order = self._reachable.copy()
        for last in range(len(order) - 1, 0, -1):
            other = int(random.random() * (last + 1))
            order[last], order[other] = order[other], order[last]
        return order
