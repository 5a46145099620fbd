"""A force: an operator's recovery of a register whose majority of acceptors is lost for good.

The force takes a generation above all known ones, with a random id, on named survivors. *Every* survivor must promise,
durably; then a majority of them accepts their highest value, with the survivors as its acceptors. The quorum of the old
value is not needed, since it is lost. Values that only lost acceptors had accepted are lost, too. If a lost acceptor
comes back, its record counts for nothing: a node that hears of the higher generation uses no lower one.

A force is refused while quorums of both sets of the top value answer. An acceptor does not count if it has promised a
generation without a value (an unfinished force), or knows two forces of its generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.register.ballot import MAX_GENERATION, MAX_GENERATION_LEAP, Ballot, draw_id
from gossipkv.register.configuration import MAX_FORCES, AcceptorId, Acceptors, Forced, Value
from gossipkv.register.messages import (
    AcceptorRecord,
    AcceptorVerdict,
    RegisterRequest,
    Reply,
    RequestKind,
)
from gossipkv.register.proposal import ChangeEnd, ProposalOutcome
from gossipkv.register.proposer import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.register.ballot import BallotRandom
    from gossipkv.register.proposal import Effect

    Highest = Callable[[Ballot, bytes], bytes]  # Called with the highest accepted ballot and its payload.

READ_MS: Final = 2000  # An acceptor without an answer by then counts as lost.
PHASE_MS: Final = 10_000  # No other round runs meanwhile, and a survivor's disk may be slow.


@final
class Force:
    """One force, from its beginning to its end."""

    def __init__(
        self,
        register: bytes,
        ticket: int,
        survivors: Iterable[AcceptorId],
        acceptors: Acceptors | None,
        random: BallotRandom,
        *,
        now_ms: int,
        highest: Highest = lambda _, payload: payload,
        generation: int = 0,
    ) -> None:
        """`acceptors`: the last known ones.

        A node may know decided transactions without a record of their acceptance. `highest` returns the payload with
        these, from the highest accepted one; `generation` is theirs.
        """
        self.register = register
        self._ticket = ticket
        self._survivors = Acceptors.of(survivors).new
        self.acceptors = acceptors
        self._random = random
        self._highest_payload = highest
        self._known_generation = generation
        self._kind = RequestKind.READ
        self._number = random.getrandbits(40)
        self._ballot: Ballot | None = None
        self._asked: set[AcceptorId] = set()
        self._answered: dict[AcceptorId, AcceptorRecord] = {}
        self._failed: dict[AcceptorId, str] = {}
        self._top: tuple[Ballot, Value] | None = None  # The highest value that any acceptor has shown.
        self._read_ballot: Ballot | None = None  # The ballot of the survivors' highest value before they promised.
        self._value: Value | None = None  # The value that is written.
        self._effects: list[Effect] = []
        self.is_over = False
        self.wakes_at_ms = now_ms + READ_MS
        self._ask({*self._survivors, *(acceptors.everyone if acceptors is not None else ())})

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def wake(self, now_ms: int) -> None:
        """Process the passing of time."""
        if now_ms >= self.wakes_at_ms and not self.is_over:
            for acceptor in self._asked - self._answered.keys():
                self._failed.setdefault(acceptor, "silent")
            self._move(now_ms)

    def unreachable(self, acceptor: AcceptorId, number: int, why: str, *, now_ms: int) -> None:
        """Process that no reply to a request will come."""
        self._take(acceptor, number, None, why, now_ms)

    def receive(self, reply: Reply, *, now_ms: int) -> None:
        """Process a reply."""
        # A read returns the record also after conflicting forces.
        is_told = reply.verdict is AcceptorVerdict.OK or (
            self._kind is RequestKind.READ and reply.verdict is AcceptorVerdict.CONFLICTING
        )
        self._take(reply.by, reply.number, reply.record if is_told else None, reply.verdict.name.lower(), now_ms)

    def _take(self, acceptor: AcceptorId, number: int, record: AcceptorRecord | None, why: str, now_ms: int) -> None:
        is_new = acceptor in self._asked - self._answered.keys() - self._failed.keys()
        if self.is_over or number != self._number or not is_new:
            return
        if record is None:
            self._failed[acceptor] = why
        else:
            self._answered[acceptor] = record
            if self._kind is RequestKind.READ:
                self._top = _highest([*self._answered.values()])
                self._ask(self._top[1].acceptors.everyone if self._top is not None else ())
        self._move(now_ms)

    def _ask(self, acceptors: Iterable[AcceptorId]) -> None:
        for acceptor in sorted(set(acceptors) - self._asked):
            self._asked.add(acceptor)
            self._effects.append(
                RegisterRequest(self._kind, self.register, acceptor, self._number, self._ballot, self._value)
            )

    def _start(self, kind: RequestKind, now_ms: int) -> None:
        self._kind, self._number = kind, self._number + 1
        self._asked, self._answered, self._failed = set(), {}, {}
        self.wakes_at_ms = now_ms + PHASE_MS
        self._ask(self._survivors)

    def _move(self, now_ms: int) -> None:
        """Go to the next phase if this one allows it."""
        is_answered = len(self._answered) + len(self._failed) == len(self._asked)
        match self._kind:
            case RequestKind.READ if is_answered:
                self._prepare(now_ms)
            case RequestKind.PREPARE if self._failed:
                self._refuse(f"not all survivors promised: {self._failure_text()}; repeat the force")
            case RequestKind.PREPARE if is_answered:
                self._accept(now_ms)
            case RequestKind.ACCEPT:
                self._accepted(is_answered=is_answered)

    def _prepare(self, now_ms: int) -> None:
        strangers = [survivor for survivor in self._survivors if survivor not in self._answered]
        if strangers:
            names = ", ".join(f"{survivor} ({self._failed.get(survivor, 'silent')})" for survivor in strangers)
            self._refuse(f"these survivors did not answer, or have no record of this register: {names}")
            return
        theirs = _highest([self._answered[survivor] for survivor in self._survivors])
        if theirs is None or self._top is None:
            self._refuse("no survivor has a value of this register")
            return
        # Compare nodes, since a restored store has the record under another id.
        nodes = {acceptor.node for acceptor in theirs[1].acceptors.everyone}
        strangers = [survivor for survivor in self._survivors if survivor.node not in nodes]
        if strangers:
            names = ", ".join(map(str, strangers))
            self._refuse(f"these survivors are not acceptors of this register: {names}")
            return
        self._read_ballot = theirs[0]
        top, value = self._top
        deciding = {
            acceptor
            for acceptor, record in self._answered.items()
            if record.promise[:2] == top[:2] and (not record.conflict or record.conflict < top.generation)
        }
        # An unfinished force blocks its generation, until a higher one has a value.
        is_begun = any(record.promise.generation > top.generation for record in self._answered.values())
        if value.acceptors.is_quorum(deciding) and not is_begun:
            self._refuse("a majority of the register's acceptors answers, so a force is not allowed")
            return
        heard = max(max(record.promise.generation, record.conflict) for record in self._answered.values())
        heard = max(heard, self._known_generation)
        # A forged generation is beyond the leap that survivors accept, so it takes several forces.
        least = min(self._answered[survivor].promise.generation for survivor in self._survivors)
        generation = min(heard + 1, least + MAX_GENERATION_LEAP)
        if generation > MAX_GENERATION:
            self._refuse(f"generation {heard} is the last possible one, so no force can follow")
            return
        self._ballot = Ballot(generation, draw_id(self._random), 1, draw_id(self._random))
        self._start(RequestKind.PREPARE, now_ms)

    def _accept(self, now_ms: int) -> None:
        theirs = _highest([*self._answered.values()])
        assert theirs is not None
        assert self._ballot is not None
        if theirs[0] != self._read_ballot:
            self._refuse("the register changed during the force, so it may be alive; repeat the force if it is not")
            return
        value = theirs[1]
        left_out = value.acceptors.everyone - set(self._survivors)
        forced = Forced(self._ballot.generation, self._ballot.force, tuple(sorted(left_out)))
        forces = (*value.forces, forced)[-MAX_FORCES:]
        payload = self._highest_payload(theirs[0], value.payload)
        self._value = Value(Acceptors(self._survivors, self._survivors), payload, forces)
        self._start(RequestKind.ACCEPT, now_ms)

    def _accepted(self, *, is_answered: bool) -> None:
        value = self._value
        assert value is not None
        if value.acceptors.is_quorum(self._answered.keys()):
            self._end(ProposalOutcome(self._ticket, ChangeEnd.DONE, b"", "", "", value, self._ballot))
        elif is_answered:
            self._end(
                ProposalOutcome(
                    self._ticket, ChangeEnd.UNKNOWN, b"", "", f"not all survivors accepted: {self._failure_text()}"
                )
            )

    def _failure_text(self) -> str:
        return ", ".join(f"{acceptor} {why}" for acceptor, why in sorted(self._failed.items()))

    def _refuse(self, message: str) -> None:
        self._end(ProposalOutcome(self._ticket, ChangeEnd.REFUSED, b"", "CONFLICT", message))

    def _end(self, outcome: ProposalOutcome) -> None:
        self.is_over, self.wakes_at_ms = True, NEVER_MS
        self._effects.append(outcome)


def _highest(records: list[AcceptorRecord]) -> tuple[Ballot, Value] | None:
    accepted = [(record.accepted, record.value) for record in records if record.accepted and record.value]
    return max(accepted, key=lambda found: found[0], default=None)
