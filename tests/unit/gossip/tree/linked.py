"""Trees with their exchanges over a link that loses, doubles, delays and cuts on demand.

Membership is minimal: larger ranks are believed, and a local DEAD is too.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gossipkv.address import Address
from gossipkv.gossip.anti_entropy.exchange import SyncExchange
from gossipkv.gossip.anti_entropy.state_hash import StateHash
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.shared_state import SharedState
from gossipkv.gossip.membership.timers import Timers
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import BranchHead, Delta, KnownMember
from gossipkv.gossip.profile import LAN
from gossipkv.gossip.tree.tree import GossipTree
from tests.unit.gossip.tree.transfers import recounted_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.gossip.tree.limits import TreeLimits

ROOM = LAN.packet_bytes - 19
START_MS = 1_000_000


def address_of(name: str) -> Address:
    number = int.from_bytes(member_id(name)[:3], "big")
    return Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7070)


def member(name: str, epoch: int = 1, incarnation: int = 0, state: MemberState = MemberState.ALIVE) -> Member:
    return Member(
        member_id(name), name, name.encode().ljust(16, b".")[:16], address_of(name), epoch, incarnation, state
    )


class Node:
    """One node: members, tree, exchange."""

    def __init__(self, name: str, link: Link, *, epoch: int = 1, limits: TreeLimits | None = None) -> None:
        self.link = link
        self.me = member(name, epoch)
        self.members = MemberTable(self.me, 10_000)
        self.tree = GossipTree(self.members, limits)
        self.timers = Timers()
        state = SharedState(self.members, LAN, Random(name), self.timers, Outbox(Envelope("c"), epoch))
        self.exchange = SyncExchange(state, self.tree, self, self)
        self.then: dict[Address, Callable[[bytes | None, int], None]] = {}  # Waiting callbacks.
        self.heard: list[Member] = []  # All records.
        self.tree.on_member(self.me)

    @property
    def id(self) -> bytes:
        return self.me.id

    # Transport

    def send(self, to: Address, message: bytes) -> None:
        self.link.send(self, to, message)

    def ask(self, to: Address, message: bytes, then: Callable[[bytes | None, int], None]) -> None:
        self.then[to] = then
        self.link.ask(self, to, message)

    # Hearer

    def hear_record(self, record: Member, *, now_ms: int) -> None:
        known = self.members.get(record.id)
        self.heard.append(record)
        if record.id != self.id and (known is None or record.rank > known.rank):
            self.members.put(record, now_ms)
            self.tree.on_member(record)
            self.exchange.touch(record.id, now_ms=now_ms)

    def hear_age(self, known: KnownMember, *, first: bool = False, now_ms: int) -> None:
        peer = self.members.peers[known.id]
        if peer.member.epoch == known.epoch:
            if peer.member.state in (MemberState.DEAD, MemberState.LEFT):
                peer.since_ms = min(peer.since_ms, now_ms - known.age_s * 1000)
            else:
                peer.heard_ms = max(0 if first else peer.heard_ms, now_ms - known.age_s * 1000)

    # Driving

    def knows(self, *others: Node) -> None:
        for other in others:
            self.hear_record(other.me, now_ms=self.link.now_ms)

    def tell(self, other: Node, room: int = ROOM - 9, times: int = 8) -> None:
        parts = self.tree.rumours.take(room, times)
        if parts:
            self.link.send(self, other.me.address, messages.gossip(self.id) + b"".join(parts))

    def ping(self, other: Node) -> None:
        """Do as the core does with the hash on a ping and on its answer."""
        now_ms = self.link.now_ms
        if self.exchange.state_hash != other.exchange.state_hash:
            other.exchange.differs(self.me.address, now_ms=now_ms)
            self.exchange.differs(other.me.address, now_ms=now_ms)
        else:
            for one, two in ((self, other), (other, self)):
                if one.tree.has_tombstones:
                    one.tree.acknowledged(two.id)

    def receive(self, message: bytes, source: Address) -> None:
        now_ms = self.link.now_ms
        if message[0] == messages.SYNC:
            self.exchange.receive(message, source, now_ms=now_ms)
            return
        for part in messages.read_parts(message, messages.GOSSIP_BYTES):
            if isinstance(part, Delta):
                self.exchange.on_delta(part, source, now_ms=now_ms)
            elif isinstance(part, BranchHead):
                self.exchange.on_head(part, source, now_ms=now_ms)

    def view(self, path: str = "") -> list[tuple[str, str, bytes]]:
        """Return all entries at and below a path, as (path, owner, value)."""
        prefix = f"{path}/" if path else ""
        entries = self.tree.entries(path, now_ms=self.link.now_ms)
        found = [(prefix + entry.name, entry.owner, entry.value) for entry in entries]
        for name in self.tree.children(path):
            found += self.view(prefix + name)
        return sorted(found)


class Link:
    """All nodes and the packets between them; nothing arrives before `run`."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.nodes: dict[Address, Node] = {}
        self.now_ms = START_MS
        self.waiting: list[tuple[Node, Address, bytes]] = []
        self.loss = self.doubled = 0.0
        self.shuffled = False
        self.tcp = True
        self.sent: list[int] = []  # Sizes of datagrams.
        self.asked: list[tuple[int, int]] = []  # Sizes of requests and replies.
        self.passes: Callable[[Node, Node], bool] = lambda one, two: True

    def node(self, name: str, *, epoch: int = 1, limits: TreeLimits | None = None) -> Node:
        node = self.nodes[address_of(name)] = Node(name, self, epoch=epoch, limits=limits)
        return node

    def send(self, sender: Node, to: Address, message: bytes) -> None:
        assert len(message) <= ROOM, len(message)
        self.sent.append(len(message))
        for _ in range(1 + (self.random.random() < self.doubled)):
            if self.random.random() >= self.loss:
                self.waiting.append((sender, to, message))

    def ask(self, sender: Node, to: Address, message: bytes) -> None:
        self.waiting.append((sender, to, b"\xff" + message))

    def run(self) -> None:
        for _ in range(100_000):
            if not self.waiting:
                return
            self.deliver_one()
        raise AssertionError("they talk for ever")

    def deliver_one(self) -> None:
        """Deliver the oldest waiting message, or a random one if shuffled."""
        at = self.random.randrange(len(self.waiting)) if self.shuffled else 0
        self._deliver(*self.waiting.pop(at))

    def _deliver(self, sender: Node, to: Address, message: bytes) -> None:
        node = self.nodes.get(to)
        passes = node is not None and self.passes(sender, node)
        if message[0] != 0xFF:
            if node is not None and passes:
                node.receive(message, sender.me.address)
            return
        reply = None
        if node is not None and passes and self.tcp:
            reply = node.exchange.reply(message[1:], now_ms=self.now_ms)
            self.asked.append((len(message) - 1, len(reply)))
        sender.then.pop(to)(reply, self.now_ms)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    def settle(self, some: Iterable[Node] | None = None, rounds: int = 30) -> None:
        """Ping at random, as time passes, until all are equal."""
        everyone = list(self.nodes.values() if some is None else some)
        for _ in range(rounds):
            self.pass_time(2000)
            for node in everyone:
                node.ping(self.random.choice([other for other in everyone if other is not node]))
                self.run()
            if equal(everyone):
                for node in everyone:
                    recount(node)
                return
        raise AssertionError("they do not become equal")


def equal(nodes: Iterable[Node]) -> bool:
    return len({node.exchange.state_hash for node in nodes}) == 1


def recount(node: Node) -> None:
    """Recount the totals that a node keeps by increments."""
    tree = node.tree
    assert all(branch.size_bytes == recounted_bytes(branch) for branch in tree._branches.values())
    assert all(branch.size_bytes <= tree.limits.protocol_branch_bytes for branch in tree._branches.values())
    told = [owner for owner in tree._hot._since if owner in tree.rumours]
    assert len(told) == len(tree.rumours)
    assert all(owner in tree._branches and not tree._is_gone(owner) for owner in told)
    known_hash = node.exchange.state_hash  # Read first: reading the hash takes over the moves of the tree.
    folded = StateHash(node.members, tree)
    for known in node.members:
        folded.touch(known.id)
    folded.pass_time(node.exchange.hash._now_ms)
    assert folded.value == known_hash


def pair(*, limits: TreeLimits | None = None) -> tuple[Link, Node, Node]:
    link = Link()
    one, two = link.node("one", limits=limits), link.node("two", limits=limits)
    one.knows(two)
    two.knows(one)
    return link, one, two
