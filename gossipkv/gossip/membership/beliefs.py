"""Beliefs of this node about others, and the actions when a belief changes.

Every statement about a member, from any sender and in any packet, comes through `hear_record` or `hear_verdict`;
statements about this node go on to its identity. Failed probes come through `unanswered`. All three use the table
`NEXT`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, final

from gossipkv.gossip.member import GONE, NEXT, REACHABLE, MemberEvidence, MemberState, Rank
from gossipkv.gossip.membership.lifeguard import NOBODY, Suspicion, silence_ms
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import MemberVerdict

if TYPE_CHECKING:
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.self_identity import SelfIdentity
    from gossipkv.gossip.membership.shared_state import SharedState
    from gossipkv.gossip.packets.messages import KnownMember

ALIVE, SUSPECT, DEAD, LEFT = MemberState
MAX_AGE_S = 1 << 40  # Ages are forwarded and always grow a little; this bound fits a packet for ever.
_BY_RECORD = {
    ALIVE: MemberEvidence.ALIVE,
    SUSPECT: MemberEvidence.SUSPECT,
    DEAD: MemberEvidence.DEAD_RECORD,
    LEFT: MemberEvidence.LEFT,
}
_BY_VERDICT = {
    ALIVE: MemberEvidence.ALIVE,
    SUSPECT: MemberEvidence.SUSPECT,
    DEAD: MemberEvidence.DEAD,
    LEFT: MemberEvidence.LEFT,
}


class BeliefListener(Protocol):
    """Receiver of changed beliefs."""

    def on_changed(self, member: Member, before: MemberState | None, *, now_ms: int) -> None:
        """Process a new member, or a changed record or state of a member."""

    def on_forgotten(self, member: Member, *, now_ms: int) -> None:
        """Process that a member was forgotten."""

    def on_older(self, id_: bytes, *, now_ms: int) -> None:
        """Process that a member was dead or gone for longer than known before."""


@final
class Beliefs:
    """The table of members and the rules by which it changes."""

    def __init__(self, state: SharedState, rumours: Rumours, identity: SelfIdentity, listener: BeliefListener) -> None:
        self._members = state.members
        self._profile = state.profile
        self._timers = state.timers
        self._outbox = state.outbox
        self._rumours = rumours
        self._identity = identity
        self._listener = listener
        self._silence_ms = silence_ms(state.profile)
        self._suspicions: dict[bytes, Suspicion] = {}
        self._forgets_ms = 0  # When the oldest dead member is forgotten; 0 while no member is dead.
        # No own verdicts before this time: after a stall, the missed packets are still being read.
        self._grace_until_ms = 0

    def hear_record(self, record: Member, *, now_ms: int) -> None:
        """Process a RECORD. It names no accuser, so it confirms no suspicion."""
        own = self._members.own
        if record.uuid == own.uuid and self._identity.is_past(record):
            return
        if record.id == own.id:
            self._identity.hear_record(record, now_ms)
            return
        peer = self._members.peers.get(record.id)
        if peer is None:
            self._learn(record, now_ms)
        elif _beats(record, peer.member):
            self._turn(peer.member, record, _BY_RECORD[record.state], NOBODY, now_ms)

    def hear_verdict(self, verdict: MemberVerdict, *, now_ms: int) -> None:
        """Process a VERDICT."""
        if verdict.id == self._members.own.id:
            self._identity.hear_verdict(verdict, now_ms)
            return
        peer = self._members.peers.get(verdict.id)
        if peer is None or peer.member.epoch != verdict.epoch:
            self._outbox.counters["verdict_about_unknown"] += 1
            return
        member = peer.member
        rank = _rank(verdict)
        if rank > member.rank:
            statement = member._replace(incarnation=verdict.incarnation, state=verdict.state)
            self._turn(member, statement, _BY_VERDICT[verdict.state], verdict.accuser, now_ms)
        elif verdict.state is SUSPECT and rank == member.rank:
            self._confirm(member, verdict.accuser, now_ms)

    def hear_invention(self, epoch: int) -> None:
        """Start a new epoch: other nodes have changes of this node's branch that it never made."""
        self._outbox.counters["branch_invented"] += 1
        self._identity.outlive(epoch)

    def unanswered(self, id_: bytes, *, now_ms: int) -> None:
        """Process a failed probe of a peer."""
        peer = self._members.peers.get(id_)
        if peer is None:
            return
        member, own = peer.member, self._members.own.id
        if member.state is SUSPECT:
            self._confirm(member, own, now_ms)
        else:
            self._turn(member, member, MemberEvidence.UNANSWERED, own, now_ms)

    def _learn(self, record: Member, now_ms: int) -> None:
        state = NEXT.get((None, _BY_RECORD[record.state]))
        if state is None:
            return
        if len(self._members) >= self._members.most and not self._make_room(now_ms):
            self._outbox.counters["members_full"] += 1
            return
        self._become(record._replace(state=state), NOBODY, now_ms)
        assert len(self._members) <= self._members.most, len(self._members)

    def _make_room(self, now_ms: int) -> bool:
        oldest = min(self._members.unreachable(), key=lambda peer: (peer.since_ms, peer.member.id), default=None)
        if oldest is None:
            return False
        self._outbox.counters["dead_forgotten_for_room"] += 1
        self._forget(oldest.member, now_ms)
        return True

    def _turn(self, before: Member, statement: Member, evidence: MemberEvidence, accuser: bytes, now_ms: int) -> None:
        state = NEXT.get((before.state, evidence))
        if state is None:
            return
        member = statement._replace(state=state)
        if evidence is not MemberEvidence.DEAD_RECORD or member.rank != before.rank:
            self._become(member, accuser, now_ms)
        if evidence is MemberEvidence.DEAD_RECORD and state is SUSPECT:
            self._hasten(member.id, now_ms)

    def _become(self, member: Member, accuser: bytes, now_ms: int) -> None:
        self._suspicions.pop(member.id, None)
        before = self._members.put(member, now_ms)
        if member.state is SUSPECT:
            self._suspect(member, accuser, now_ms)
        elif member.state in GONE:
            self._remember(now_ms)
        assert (member.id in self._suspicions) is (member.state is SUSPECT), member
        if member.state in REACHABLE or before in REACHABLE:
            self._tell(member, accuser, whole=before is None or member.state is ALIVE)
        self._listener.on_changed(member, before, now_ms=now_ms)

    def _tell(self, member: Member, accuser: bytes, *, whole: bool) -> None:
        """Spread the change: as a RECORD (`whole`) if members may not know the member, else as a VERDICT."""
        if whole:
            part = messages.record(member)
        else:
            part = messages.verdict(MemberVerdict(member.id, member.state, member.incarnation, member.epoch, accuser))
        self._rumours.add(member.id, part)

    def _suspect(self, member: Member, accuser: bytes, now_ms: int) -> None:
        suspicion = Suspicion(accuser, self._profile, self._members.reachable, now_ms)
        self._suspicions[member.id] = suspicion
        self._timers.at(suspicion.deadline_ms, partial(self._expire, member.id, suspicion))

    def _confirm(self, member: Member, accuser: bytes, now_ms: int) -> None:
        suspicion = self._suspicions.get(member.id)
        assert suspicion is not None, member  # Every suspect member has a suspicion until its deadline.
        if suspicion.confirm(accuser):
            self._timers.at(max(now_ms, suspicion.deadline_ms), partial(self._expire, member.id, suspicion))
            self._tell(member, accuser, whole=False)

    def _hasten(self, id_: bytes, now_ms: int) -> None:
        suspicion = self._suspicions[id_]
        if suspicion.found_dead(now_ms):
            self._timers.at(suspicion.deadline_ms, partial(self._expire, id_, suspicion))

    def suspend_verdicts(self, until_ms: int) -> None:
        """Declare no member dead before that time."""
        self._grace_until_ms = until_ms

    def accuse_again(self) -> None:
        """Spread this node's own suspicions again after a silence, in which the rumours may have reached nobody."""
        own = self._members.own.id
        for id_, suspicion in self._suspicions.items():
            if own in suspicion.accusers:
                self._tell(self._members.peers[id_].member, own, whole=False)

    def _expire(self, id_: bytes, suspicion: Suspicion, now_ms: int) -> None:
        if self._suspicions.get(id_) is not suspicion or now_ms < suspicion.deadline_ms:
            return  # The member refuted, or the timer belongs to an earlier suspicion.
        if now_ms < self._grace_until_ms:
            self._timers.at(self._grace_until_ms, partial(self._expire, id_, suspicion))
            return
        member = self._members.peers[id_].member
        assert member.state is SUSPECT, member
        self._turn(member, member, MemberEvidence.EXPIRED, self._members.own.id, now_ms)
        self._outbox.counters["verdicts"] += 1
        if now_ms - self._members.heard_ms > self._silence_ms:
            # The member may not have heard this node's suspicion. Others learn of the death by exchange, and suspect
            # again.
            self._rumours.remove(id_)

    def _remember(self, now_ms: int) -> None:
        if not self._forgets_ms:
            self._forgets_ms = now_ms + self._profile.dead_retention_ms
            self._timers.at(self._forgets_ms, self._forget_old)

    def _forget_old(self, now_ms: int) -> None:
        """Forget members dead for long; ages are exchanged, so all nodes forget them at about the same time."""
        if now_ms < self._forgets_ms:
            return
        retention = self._profile.dead_retention_ms
        self._forgets_ms = 0
        for peer in list(self._members.unreachable()):
            forgets_ms = peer.since_ms + retention
            if now_ms >= forgets_ms:
                self._forget(peer.member, now_ms)
            elif not self._forgets_ms or forgets_ms < self._forgets_ms:
                self._forgets_ms = forgets_ms
        if self._forgets_ms:
            self._timers.at(self._forgets_ms, self._forget_old)

    def _forget(self, member: Member, now_ms: int) -> None:
        if (member.state, MemberEvidence.FORGOTTEN) not in NEXT:
            return
        assert member.id not in self._suspicions, member
        self._members.forget(member.id)
        self._rumours.remove(member.id)
        self._listener.on_forgotten(member, now_ms=now_ms)

    def hear_age(self, entry: KnownMember, *, first: bool, now_ms: int) -> None:
        """Process how long ago a peer was heard, or for how long it has been dead or gone.

        For a live peer the latest time that any node heard it counts. For a dead peer the earliest time of death
        counts, so that all nodes forget it together. If the peer is new here (`first`), only the teller's time is
        known: the teller has not heard a dead peer since it found it dead.
        """
        peer = self._members.peers.get(entry.id)
        if peer is None or peer.member.epoch != entry.epoch:
            return
        then_ms = now_ms - min(entry.age_s, MAX_AGE_S) * 1000
        if first:
            peer.heard_ms = then_ms
        elif entry.state not in GONE:
            peer.heard_ms = max(peer.heard_ms, then_ms)
        if entry.state in GONE and peer.member.rank == _rank(entry) and then_ms < peer.since_ms:
            peer.since_ms = then_ms
            self._listener.on_older(entry.id, now_ms=now_ms)
            forgets_ms = peer.since_ms + self._profile.dead_retention_ms
            if forgets_ms < self._forgets_ms:
                self._forgets_ms = forgets_ms
                self._timers.at(max(now_ms, forgets_ms), self._forget_old)


def _rank(statement: MemberVerdict | KnownMember) -> Rank:
    return Rank(statement.epoch, statement.state is LEFT, statement.incarnation, statement.state)


def _beats(record: Member, current: Member) -> bool:
    """Return True if a record replaces the known one; uuid and address decide between two claims of one rank."""
    if record == current:
        return False
    if record.rank != current.rank:
        return record.rank > current.rank
    return record.state is ALIVE and (record.uuid, record.address) > (current.uuid, current.address)
