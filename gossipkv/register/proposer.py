"""The proposer of CASPaxos for one register: rounds of prepare and accept, one at a time, each for all waiting changes.

A round takes a fresh ballot. *Prepare* needs promises of a quorum of the highest accepted value that they report; the
waiting changes are applied to this value in turn. *Accept* needs a quorum of the old and of the new value. A failure
drops the cache, and the next round takes another ballot. After a success, the accepts of a proposer that stays have
promised its next ballot. The next round needs no prepare if these acceptors are a quorum of the value just written.

A change has three outcomes: done, refused (it will never be done), and unknown (some acceptors may have accepted it).
The class `Proposer` lists the rules of safety.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from gossipkv.register.ballot import BELOW, MAX_COUNTER, MAX_LEAP, ZERO, Ballot, are_conflicting, draw_id
from gossipkv.register.changes import Applied, CannotJudge, ChangeRefused, read
from gossipkv.register.configuration import MAX_PAYLOAD_BYTES, AcceptorId, Acceptors, Value
from gossipkv.register.messages import (
    AcceptorRecord,
    AcceptorVerdict,
    RegisterRequest,
    Reply,
    RequestKind,
)
from gossipkv.register.proposal import ChangeEnd, Effect, ProposalOutcome, Reconfigure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.register.ballot import BallotRandom
    from gossipkv.register.changes import RegisterChange

# Time of one phase. Acceptors answer within milliseconds; one with a busy disk may take a second.
PHASE_MS: Final = 1000

# Bounds of the random pause after a failed round, doubled each time.
MIN_PAUSE_MS: Final = 4
MAX_PAUSE_MS: Final = 128

# Distance of a round's ballot from the highest known one: one, doubled after each failed round, up to this bound. A
# proposer that stays takes a ballot a millisecond, so a ballot just one above is too low when it arrives.
MAX_OUTBID: Final = 1 << 10

MAX_LOOKS: Final = 5  # Quorum reads before a round: while a node writes, a quorum may show two ballots.
MAX_BATCH: Final = 256  # Changes in one round.
MAX_QUEUE: Final = 4096  # Waiting changes.
NEVER_MS: Final = 1 << 60


@final
@dataclass(slots=True)
class PendingChange:
    """A change that waits, or is in a round."""

    ticket: int
    want: RegisterChange | Reconfigure
    deadline_ms: int
    sent: int = 0  # Rounds in which acceptors were asked to accept it.
    looks: int = 0  # Quorum reads that have shown no single accepted ballot.
    over: bool = False  # The outcome was reported.

    @property
    def needs_round(self) -> bool:
        """True if a read goes on by a whole round, which interrupts another proposer that is about to write."""
        return self.looks >= MAX_LOOKS


@final
@dataclass(slots=True)
class Round:
    """One phase of a round, with the findings of earlier phases."""

    kind: RequestKind
    number: int
    deadline_ms: int
    batch: list[PendingChange]
    ballot: Ballot | None = None
    stays: bool = False  # The accepts also promise the next ballot.
    asked: set[AcceptorId] = field(default_factory=set)
    answered: dict[AcceptorId, AcceptorRecord] = field(default_factory=dict)  # Acceptors that did as asked.
    failed: dict[AcceptorId, str] = field(default_factory=dict)
    newcomers: frozenset[AcceptorId] = frozenset()  # New acceptors that must promise and hold the value's data.
    best: tuple[Ballot, Value] | None = None  # The highest value that the answering acceptors have accepted.
    base: Value | None = None  # The value that is changed.
    value: Value | None = None  # The value that is written.
    # Results of the batch; None for a `Reconfigure`.
    results: list[Applied | ChangeRefused | None] = field(default_factory=list)

    @property
    def unheard(self) -> set[AcceptorId]:
        return self.asked - self.answered.keys() - self.failed.keys()


@final
@dataclass(slots=True)
class Cache:
    """The last committed value, and the promises of the next ballot: the next round needs no prepare."""

    value: Value
    ballot: Ballot
    number: int  # Number of the accepts that promised it.
    promised: set[AcceptorId]


@final
class Proposer:
    """The proposals of one node to one register.

    A violation of any of these rules lost a commit in a model or elsewhere (`docs/development/metadata.md`):

    * A set of acceptors changes by a joint configuration. A round enters one from a single set, when all newcomers have
      promised this very ballot and hold the value's data. Only a proposer that has itself committed a value with the
      joint id in an earlier ballot, and finds it on top, leaves the joint configuration.
    * A read, or a change that refuses, is a whole round that writes the same value. A quorum read needs no
      round if a quorum shows one accepted ballot.
    * A proposer that hears of a higher generation uses no lower one, and uses the higher one only after it has seen a
      value accepted in it. If two forces of one generation exist, it uses neither.
    """

    def __init__(self, register: bytes, random: BallotRandom, acceptors: Acceptors | None) -> None:
        """`acceptors`: the last known ones; the register itself names the present ones."""
        self.register = register
        self.acceptors = acceptors
        self._random = random
        self._id = draw_id(random)
        self._number = random.getrandbits(40)
        self._top = BELOW  # The highest ballot of an accepted value.
        self._heard = ZERO  # The highest promised ballot.
        self._conflict = 0  # The latest generation with two forces.
        self._sides: frozenset[AcceptorId] = frozenset()  # The acceptors of both forces.
        self._evidence: tuple[Ballot, ...] = ()  # A ballot of each force.
        self._committed = 0  # The joint id that this proposer has committed last; a force ends all joint ids.
        self._queue: deque[PendingChange] = deque()
        self._round: Round | None = None
        self._cache: Cache | None = None
        self._failures = 0  # Consecutive failed rounds.
        self._not_before_ms = 0
        self._why = ""  # Why the last round failed.
        self._effects: list[Effect] = []

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, ticket: int, want: RegisterChange | Reconfigure, *, now_ms: int, deadline_ms: int) -> None:
        """Submit a change; its `ProposalOutcome` comes by the deadline."""
        if isinstance(want, Reconfigure):
            want = want._replace(members=Acceptors.of(want.members).new)
        pending = PendingChange(ticket, want, deadline_ms)
        if len(self._queue) >= MAX_QUEUE:
            self._refuse(pending, "OVERLOADED", f"{MAX_QUEUE} changes of this register already wait on this node")
            return
        self._queue.append(pending)
        self._begin(now_ms)

    def learn(self, record: AcceptorRecord) -> None:
        """Process the record of an acceptor, from any reply."""
        if record.conflict > self._conflict:
            self._conflict, self._evidence = record.conflict, ()
        for ballot in (record.promise, record.accepted):
            for mine in (self._top, self._heard):
                if ballot is None or ballot.force == mine.force:
                    continue  # Most pairs are of one force, and so cannot conflict.
                if are_conflicting(ballot, mine) and ballot.generation > self._conflict:
                    self._show_conflict(ballot, mine, record)
        if record.promise.counter < MAX_COUNTER:
            self._heard = max(self._heard, record.promise)
        if record.accepted is not None and record.value is not None and record.accepted > self._top:
            self._top, self.acceptors = record.accepted, record.value.acceptors

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def begin_anew(self, why: str, *, now_ms: int) -> None:
        """Drop the round and the cache: the acceptors must be asked again."""
        self._cache = None
        if self._round is not None:
            self._fail(self._round, now_ms)
            self._why = why

    def end(self, why: str) -> None:
        """Refuse all waiting changes, and propose nothing more."""
        for pending in self._pendings():
            self._refuse(pending, "UNAVAILABLE", why)
        self._queue.clear()
        self._round, self._cache, self._committed = None, None, 0

    # -- events --------------------------------------------------------------------------------------------------------

    @property
    def wakes_at_ms(self) -> int:
        """Time at which to call `wake` next."""
        if self._round is None and not self._queue:
            return self._not_before_ms if self._has_work else NEVER_MS
        times = [pending.deadline_ms for pending in self._pendings()]
        if self._round is not None:
            times.append(self._round.deadline_ms)
        elif self._has_work:
            times.append(self._not_before_ms)
        return min(times, default=NEVER_MS)

    def wake(self, now_ms: int) -> None:
        """Process the passing of time."""
        for pending in self._pendings():
            if pending.deadline_ms <= now_ms:
                self._give_up(pending)
        self._queue = deque(pending for pending in self._queue if not pending.over)
        if self._round is not None and self._round.deadline_ms <= now_ms:
            self._phase_over(self._round, now_ms)
        self._begin(now_ms)

    def unreachable(self, acceptor: AcceptorId, number: int, why: str, *, now_ms: int) -> None:
        """Process that no reply to a request will come."""
        self._take(acceptor, number, None, why, now_ms)

    def receive(self, reply: Reply, *, now_ms: int) -> None:
        """Process a reply; late and repeated replies are harmless."""
        if reply.record is not None:
            self.learn(reply.record)
            if reply.record.conflict < self._conflict == reply.record.promise.generation:
                self._show([reply.by])  # The evidence was lost, or overtaken by this reply.
            phase, value = self._round, reply.record.value
            if (
                phase is not None
                and phase.kind is RequestKind.READ
                and value is not None
                and self._is_deposed(self._top)
            ):
                self._ask(phase, value.acceptors.everyone)  # Any former acceptor may know of a later force.
        if self._round is not None and reply.number == self._round.number and reply.ballot != self._round.ballot:
            return  # The reply is about another ballot.
        if reply.verdict is AcceptorVerdict.OK:
            self._take(reply.by, reply.number, reply.record, "", now_ms)
            return
        promise = reply.record.promise if reply.record is not None else ZERO
        if reply.verdict is AcceptorVerdict.IMPLAUSIBLE and promise.generation == self._heard.generation:
            # An acceptor has promised a forged counter. Climb to it by leaps, so that this acceptor takes part again.
            leap = min(promise.counter + MAX_LEAP, MAX_COUNTER) - MAX_OUTBID
            self._heard = max(self._top, promise._replace(counter=max(promise.counter, leap)))
            self._id = draw_id(self._random)  # Counters of the old id may be used again.
        self._take(reply.by, reply.number, None, reply.verdict.name.lower().replace("_", " "), now_ms)

    def _take(self, acceptor: AcceptorId, number: int, record: AcceptorRecord | None, why: str, now_ms: int) -> None:
        cache = self._cache
        if cache is not None and number == cache.number and record is not None:
            cache.promised.add(acceptor)
        phase = self._round
        if phase is None or number != phase.number or acceptor not in phase.unheard:
            return
        if phase.ballot is not None and self._is_deposed(phase.ballot):
            self._fail(phase, now_ms)
            return
        if record is None:
            phase.failed[acceptor] = why
        else:
            phase.answered[acceptor] = record
            self._see(phase, record)
        go_on = {
            RequestKind.READ: self._quorum_read,
            RequestKind.PREPARE: self._prepared,
            RequestKind.ACCEPT: self._accepted,
        }
        go_on[phase.kind](phase, now_ms)

    def _see(self, phase: Round, record: AcceptorRecord) -> None:
        """Note an accepted value; if it is the highest, ask its acceptors, too."""
        ballot, value = record.accepted, record.value
        is_known = phase.base is not None or (phase.best is not None and ballot is not None and ballot <= phase.best[0])
        if ballot is not None and value is not None and not is_known:
            phase.best = ballot, value
            self._ask(phase, value.acceptors.everyone)

    # -- rounds --------------------------------------------------------------------------------------------------------

    @property
    def _has_work(self) -> bool:
        is_between = (
            self.acceptors is not None and self.acceptors.joint != 0 and self._committed == self.acceptors.joint
        )
        return bool(self._queue) or (is_between and not self._is_deposed(self._top))

    def _is_deposed(self, ballot: Ballot) -> bool:
        """Return True if a higher generation than the ballot's is known, or two forces of the ballot's generation."""
        return self._heard.generation > ballot.generation or 0 < ballot.generation <= self._conflict

    def _pendings(self) -> list[PendingChange]:
        under_way = self._round.batch if self._round is not None else ()
        return [*self._queue, *(pending for pending in under_way if not pending.over)]

    def _begin(self, now_ms: int) -> None:
        """Begin a round, if there is work and no round is running."""
        if self._round is not None or now_ms < self._not_before_ms or not self._has_work:
            return
        if self.acceptors is None:
            self._refuse_all("this node knows no acceptor of this register")
            return
        if self._is_deposed(self._top):
            self._start(RequestKind.READ, [], now_ms)
            return
        batch: list[PendingChange] = []
        while self._queue and len(batch) < MAX_BATCH and not (batch and isinstance(self._queue[0].want, Reconfigure)):
            batch.append(self._queue.popleft())
            if isinstance(batch[0].want, Reconfigure):
                break
        if batch and all(pending.want is read and not pending.needs_round for pending in batch):
            self._start(RequestKind.READ, batch, now_ms)
        else:
            self._propose(batch, now_ms)

    def _refuse_all(self, message: str) -> None:
        while self._queue:
            self._refuse(self._queue.popleft(), "UNAVAILABLE", message)

    def _start(self, kind: RequestKind, batch: list[PendingChange], now_ms: int, ballot: Ballot | None = None) -> None:
        assert self.acceptors is not None
        self._number += 1
        self._round = Round(kind, self._number, now_ms + PHASE_MS, batch, ballot)
        sides = self._sides if self._is_deposed(self._top) else frozenset()  # Another force may go on with either.
        self._ask(self._round, self.acceptors.everyone | sides)

    def _ask(self, phase: Round, acceptors: Iterable[AcceptorId], *, holding: Value | None = None) -> None:
        for acceptor in sorted(set(acceptors) - phase.asked):
            phase.asked.add(acceptor)
            self._effects.append(
                RegisterRequest(
                    phase.kind, self.register, acceptor, phase.number, phase.ballot, phase.value, phase.stays, holding
                )
            )

    def _propose(self, batch: list[PendingChange], now_ms: int) -> None:
        cache, self._cache = self._cache, None
        # After news of a force, the cache still has promises of the generation before. Accepts with these would be
        # taken by the lost majority if it is back, as if no force had happened.
        if cache is None or not cache.value.acceptors.is_quorum(cache.promised) or cache.ballot < self._heard:
            outbid = min(1 << min(self._failures, 16), MAX_OUTBID)
            counter = min(max(self._top.counter, self._heard.counter) + outbid, MAX_COUNTER - 1)
            self._heard = Ballot(self._top.generation, self._top.force, counter, self._id)
            self._start(RequestKind.PREPARE, batch, now_ms, self._heard)
            return
        self._number += 1
        self._round = Round(RequestKind.PREPARE, self._number, now_ms + PHASE_MS, batch, cache.ballot)
        self._round.base = cache.value
        self._invite(self._round, now_ms)

    def _prepared(self, phase: Round, now_ms: int) -> None:
        if phase.base is not None:
            self._invited(phase, now_ms)
            return
        assert phase.ballot is not None
        acceptors = phase.best[1].acceptors if phase.best is not None else self.acceptors
        assert acceptors is not None
        has_quorum = acceptors.is_quorum(phase.answered.keys())
        # Survivors of a force that have promised and not accepted could form, with the lost majority, a quorum of the
        # value before. So a round builds only on a value of its own ballot's generation and force.
        if phase.best is not None and has_quorum and phase.best[0][:2] == phase.ballot[:2]:
            phase.base = phase.best[1]
            self._invite(phase, now_ms)
        elif not acceptors.is_quorum(phase.asked - phase.failed.keys()) or not phase.unheard:
            self._fail(phase, now_ms)

    def _invite(self, phase: Round, now_ms: int) -> None:
        """Ask the newcomers of a new set for this ballot's promise, now that the value they must hold is known."""
        base = phase.base
        assert base is not None
        members = _members_wanted(phase.batch, base.acceptors)
        if members is not None:
            phase.newcomers = frozenset(members) - base.acceptors.everyone
            for newcomer in phase.newcomers:  # A newcomer asked earlier was not asked about the value's data.
                phase.answered.pop(newcomer, None)
                phase.failed.pop(newcomer, None)
            phase.asked -= phase.newcomers
            self._number += 1
            phase.number = self._number
            self._ask(phase, phase.newcomers, holding=base)
        self._invited(phase, now_ms)

    def _invited(self, phase: Round, now_ms: int) -> None:
        if phase.newcomers & phase.failed.keys():
            self._fail(phase, now_ms)
        elif phase.newcomers <= phase.answered.keys():
            self._accept(phase, now_ms)

    def _accept(self, prepared: Round, now_ms: int) -> None:
        base, ballot = prepared.base, prepared.ballot
        assert base is not None
        assert ballot is not None
        acceptors, payload = base.acceptors, base.payload
        # Requesters of the others have been refused.
        batch = [pending for pending in prepared.batch if not pending.over]
        results: list[Applied | ChangeRefused | None] = []
        for pending in batch:
            result = self._apply(pending.want, base._replace(payload=payload), ballot.generation)
            if isinstance(result, CannotJudge):
                self._fail(prepared, now_ms)
                self._why = result.why
                return
            payload = result.payload if isinstance(result, Applied) else payload
            results.append(result)
        for pending in batch:
            pending.sent += 1
        members = _members_wanted(batch, acceptors)
        if acceptors.joint:
            if self._committed == acceptors.joint:
                acceptors = acceptors.new_alone()
        elif members is not None:
            acceptors = acceptors.joint_with(members, draw_id(self._random))
        assert acceptors.follows(base.acceptors), (base.acceptors, acceptors)
        self._number += 1
        phase = Round(RequestKind.ACCEPT, self._number, now_ms + PHASE_MS, batch, ballot, base=base, results=results)
        phase.value = Value(acceptors, payload, base.forces)
        # This node wrote the last value, so it probably writes the next.
        phase.stays = self._top.proposer == ballot.proposer
        self._round = phase
        self._ask(phase, base.acceptors.everyone | acceptors.everyone)

    def _apply(
        self, want: RegisterChange | Reconfigure, base: Value, generation: int
    ) -> Applied | ChangeRefused | CannotJudge | None:
        if isinstance(want, Reconfigure):
            is_another = not base.acceptors.joint and want.instead not in {None, base.acceptors.new}
            if is_another and want.members != base.acceptors.new:
                return ChangeRefused("CONFLICT", "another node has changed the acceptors")
            return None
        result = want(base, generation)
        if isinstance(result, Applied) and len(result.payload) > MAX_PAYLOAD_BYTES:
            return ChangeRefused("TOO_LARGE", f"a register's payload must have at most {MAX_PAYLOAD_BYTES} bytes")
        return result

    def _accepted(self, phase: Round, now_ms: int) -> None:
        base, value, ballot = phase.base, phase.value, phase.ballot
        assert base is not None
        assert value is not None
        assert ballot is not None
        accepted, may_accept = phase.answered.keys(), phase.asked - phase.failed.keys()
        before = None if base.acceptors == value.acceptors else base.acceptors
        if not value.acceptors.is_quorum(may_accept) or (before is not None and not before.is_quorum(may_accept)):
            self._fail(phase, now_ms)
        elif value.acceptors.is_quorum(accepted) and (before is None or before.is_quorum(accepted)):
            self._top, self.acceptors = max(self._top, ballot), value.acceptors
            if phase.stays:
                self._cache = Cache(value, ballot.next(), phase.number, set(accepted))
            if value.acceptors.joint:
                self._committed = value.acceptors.joint
            self._round, self._failures, self._not_before_ms = None, 0, 0
            self._end(phase, value, ballot)
            self._begin(now_ms)

    def _end(self, phase: Round, value: Value, ballot: Ballot) -> None:
        """Report the outcomes of the changes of a committed round."""
        for pending, result in zip(phase.batch, phase.results, strict=True):
            ticket = pending.ticket
            match result:
                case Applied(_, returned):
                    self._tell(pending, ProposalOutcome(ticket, ChangeEnd.DONE, returned, "", "", value, ballot))
                case ChangeRefused(code, words) if pending.sent == 1:
                    self._tell(pending, ProposalOutcome(ticket, ChangeEnd.REFUSED, b"", code, words, value, ballot))
                case ChangeRefused(_, words):  # An earlier round may have done the change, and later ones may hide it.
                    self._tell(pending, ProposalOutcome(ticket, ChangeEnd.UNKNOWN, b"", "", words, value, ballot))
                case None:
                    assert isinstance(pending.want, Reconfigure)
                    if not value.acceptors.joint and value.acceptors.new == pending.want.members:
                        self._tell(pending, ProposalOutcome(ticket, ChangeEnd.DONE, b"", "", "", value, ballot))
                    elif not pending.over:
                        self._queue.appendleft(pending)

    # -- quorum reads --------------------------------------------------------------------------------------------------

    def _quorum_read(self, phase: Round, now_ms: int) -> None:
        """Check if a quorum shows one accepted ballot: then no other was committed before this read began."""
        unheard = phase.unheard
        if phase.best is not None:
            ballot, value = phase.best
            agreed = {acceptor for acceptor, record in phase.answered.items() if record.accepted == ballot}
            # A joint configuration is read by a whole round. The round commits the joint id here, so that this proposer
            # may leave it: if the proposer that entered it has died, no other node does so without a write.
            is_plain = not value.acceptors.joint and not self._is_deposed(ballot)
            if is_plain and value.acceptors.is_quorum(agreed):
                self._round, self._failures = None, 0
                for pending in phase.batch:
                    self._tell(pending, ProposalOutcome(pending.ticket, ChangeEnd.DONE, b"", "", "", value, ballot))
                self._begin(now_ms)
                return
            if is_plain and value.acceptors.is_quorum(agreed | unheard):
                return
        # An acceptor that has not answered may know of a later force.
        if not unheard or (phase.best is not None and not self._is_deposed(self._top)):
            self._end_read(phase, now_ms)

    def _end_read(self, phase: Round, now_ms: int) -> None:
        """Continue after a quorum read without a result: read again, start a whole round, or give up."""
        for pending in reversed(phase.batch):
            pending.looks += 1
            if not pending.over:
                self._queue.appendleft(pending)
        if not self._is_deposed(self._top):
            self._round = None
            looks = min((pending.looks for pending in phase.batch), default=MAX_LOOKS)
            if looks < MAX_LOOKS:
                self._not_before_ms = now_ms + 1 + int(self._random.random() * (MIN_PAUSE_MS << looks))
            self._begin(now_ms)
            return
        phase.batch = []
        if self._heard.generation <= self._conflict:
            self._refuse_all(
                f"two forced changes have generation {self._conflict}: nothing is decided until another force; "
                "run `gossipkv metadata force`"
            )
        self._fail(phase, now_ms)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _phase_over(self, phase: Round, now_ms: int) -> None:
        for acceptor in phase.unheard:
            phase.failed[acceptor] = f"silent for {PHASE_MS} ms"
        if phase.kind is RequestKind.READ:
            for pending in phase.batch:  # A silent acceptor is awaited only once.
                pending.looks = MAX_LOOKS
            self._end_read(phase, now_ms)
        else:
            self._fail(phase, now_ms)

    def _fail(self, phase: Round, now_ms: int) -> None:
        """Drop a round; its changes wait for the next one, with another ballot."""
        failures = ", ".join(f"{acceptor} {why}" for acceptor, why in sorted(phase.failed.items()))
        self._why = f"no quorum of the acceptors: {failures or 'no answering acceptor has a value'}"
        self._round = self._cache = None
        pause_ms = min(MIN_PAUSE_MS << min(self._failures, 16), MAX_PAUSE_MS)
        self._failures += 1
        self._not_before_ms = now_ms + 1 + int(self._random.random() * pause_ms)
        waiting = [pending for pending in phase.batch if not pending.over]
        if phase.newcomers & phase.failed.keys():
            self._queue.extend(waiting)  # Silent newcomers must not delay other changes.
        else:
            self._queue.extendleft(reversed(waiting))

    def _give_up(self, pending: PendingChange) -> None:
        """Report that a change was not done by its deadline."""
        code = "" if pending.sent else "UNAVAILABLE"
        self._refuse(pending, code, self._why or "no quorum of the acceptors answered in time")

    def _refuse(self, pending: PendingChange, code: str, message: str) -> None:
        end = ChangeEnd.UNKNOWN if pending.sent else ChangeEnd.REFUSED
        self._tell(pending, ProposalOutcome(pending.ticket, end, b"", code, message))

    def _tell(self, pending: PendingChange, outcome: ProposalOutcome) -> None:
        if not pending.over:
            pending.over = True
            self._effects.append(outcome)

    def _show_conflict(self, ballot: Ballot, mine: Ballot, shown: AcceptorRecord) -> None:
        """Show two forces of one generation to the acceptors of both: each refuses both from then on, for good."""
        self._conflict, self._evidence = ballot.generation, (ballot, mine)
        for side in (self.acceptors, shown.value.acceptors if shown.value is not None else None):
            self._sides |= side.everyone if side is not None else frozenset()
        self._show(self._sides)

    def _show(self, acceptors: Iterable[AcceptorId]) -> None:
        """Send acceptors the evidence of two forces, if this node has it."""
        for acceptor in sorted(acceptors):
            for evidence in self._evidence:
                self._effects.append(RegisterRequest(RequestKind.READ, self.register, acceptor, 0, evidence))


def _members_wanted(batch: list[PendingChange], acceptors: Acceptors) -> tuple[AcceptorId, ...] | None:
    """Return the set that a round must change to, from one set; None if it needs no change."""
    want = batch[0].want if batch else None
    if not isinstance(want, Reconfigure) or acceptors.joint or want.members == acceptors.new:
        return None
    return want.members if want.instead in {None, acceptors.new} else None
