"""A table of members with its rules, and nothing around it."""

from __future__ import annotations

import random

from gossipkv.address import Address
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.membership.beliefs import Beliefs
from gossipkv.gossip.membership.lifeguard import Awareness
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.membership.outbox import Outbox
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.membership.self_identity import SelfIdentity
from gossipkv.gossip.membership.shared_state import SharedState
from gossipkv.gossip.membership.timers import Timers
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.messages import MemberVerdict
from gossipkv.gossip.profile import LAN


def member(
    name: str, state: MemberState = MemberState.ALIVE, *, epoch: int = 1, incarnation: int = 0, port: int = 0
) -> Member:
    address = Address("10.0.0.2", port or 1000 + sum(name.encode()))
    return Member(member_id(name), name, name.encode().ljust(16, b"-"), address, epoch, incarnation, state)


def verdict(said: Member, accuser: str = "accuser") -> MemberVerdict:
    return MemberVerdict(said.id, said.state, said.incarnation, said.epoch, member_id(accuser))


class Believer:
    """The beliefs of one node, driven by hand."""

    def __init__(self, *others: Member, profile=LAN, most: int = 100) -> None:
        self.now_ms = 1_000_000
        self.timers = Timers()
        self.outbox = Outbox(Envelope("c"), 1)
        self.members = MemberTable(member("me"), most)
        self.rumours = Rumours()
        state = SharedState(self.members, profile, random.Random(1), self.timers, self.outbox)
        identity = SelfIdentity(state, self.rumours, Awareness(profile.awareness_most), self)
        self.beliefs = Beliefs(state, self.rumours, identity, self)
        self.members.hear(None, self.now_ms)
        self.changes: list[tuple[str, MemberState | None, MemberState]] = []
        self.forgotten: list[str] = []
        for other in others:
            self.record(other)

    def on_changed(self, changed: Member, before: MemberState | None, *, now_ms: int) -> None:
        self.changes.append((changed.name, before, changed.state))

    def on_forgotten(self, forgotten: Member, *, now_ms: int) -> None:
        self.forgotten.append(forgotten.name)

    def on_older(self, id_: bytes, *, now_ms: int) -> None:
        """Ignore that the member has been dead for longer."""

    def on_own(self, *, now_ms: int) -> None:
        """Ignore a change of this node's own record."""

    def on_claimed_twice(self, other: Member | None) -> None:
        """Ignore that another node claims the name."""

    def record(self, said: Member) -> None:
        self.beliefs.hear_record(said, now_ms=self.now_ms)

    def verdict(self, said: Member, accuser: str = "accuser") -> None:
        self.beliefs.hear_verdict(verdict(said, accuser), now_ms=self.now_ms)

    def unanswered(self, name: str) -> None:
        self.beliefs.unanswered(member_id(name), now_ms=self.now_ms)

    def known(self, name: str) -> Member | None:
        return self.members.get(member_id(name))

    def state(self, name: str) -> MemberState | None:
        known = self.known(name)
        return None if known is None else known.state

    def wait(self, for_ms: int) -> None:
        end = self.now_ms + for_ms
        while self.timers.next_ms <= end:
            self.now_ms = max(self.now_ms, self.timers.next_ms)
            self.members.hear(None, self.now_ms)  # Other members are heard.
            self.timers.run(self.now_ms)
        self.now_ms = end
