"""Registers under Trio: this node's acceptor over its store, its proposers, and requests to other acceptors.

    registers = Registers(space, me, maps, ask, random)
    nursery.start_soon(registers.run)                   # beside the space's own `run`
    outcome = await registers.change(register, change, timeout_s=1)
    reply = await registers.answer(request)             # of another node's proposer

The cores decide; the shell lets callers wait, and asks the disk and other nodes.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.errors import GossipKVError, Overloaded, ProtocolError, Unavailable
from gossipkv.register.acceptor import Acceptor, AcceptorAnswer, Keep
from gossipkv.register.changes import read
from gossipkv.register.edits import decode_value
from gossipkv.register.force import PHASE_MS, READ_MS, Force
from gossipkv.register.messages import (
    RegisterRequest,
    RequestKind,
    decode_record,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from gossipkv.register.proposal import ChangeEnd, ProposalOutcome, Reconfigure
from gossipkv.register.proposer import NEVER_MS, Proposer
from gossipkv.register.seen import BEHIND, POSITION, SEEN, AcceptorReply, SeenPositions, positions_in
from gossipkv.register.space import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.changes import RegisterChange
    from gossipkv.register.configuration import AcceptorId, Acceptors
    from gossipkv.register.maps import Maps
    from gossipkv.register.messages import AcceptorRecord, Reply
    from gossipkv.register.seen import Reached
    from gossipkv.register.space import Space
    from gossipkv.wire.results import Completion

LATE_S: Final = 0.2  # A core reports an outcome by the deadline, but may be woken late.
MAX_ASKED: Final = 4096  # Requests to the local acceptor that wait for a sync.
FORCE_S: Final = (READ_MS + 2 * PHASE_MS) / 1000


class AskAcceptor(Protocol):
    """A function that asks the acceptors of other nodes."""

    def __call__(
        self,
        to: AcceptorId,
        request: bytes,
        seen: bytes,
        complete: Completion[AcceptorReply],
    ) -> None:
        """Ask an acceptor, and tell it the seen positions. Call `complete` once, at once if no node can answer."""


@final
class Registers:
    """One node's part in all registers."""

    def __init__(self, space: Space, me: AcceptorId, maps: Maps, *, ask: AskAcceptor, random: Random) -> None:
        self.me = me
        self._space = space
        self._ask = ask
        self._maps = maps
        self._random = random
        self._acceptor = Acceptor(me, lambda register: space.get(RECORD + register), maps.holds)
        for key, record in space.scan(RECORD):
            if maps.has(register := key[len(RECORD) :]):  # Otherwise it was forgotten.
                maps.accepted(register, decode_record(record))
        self._seen = SeenPositions(
            me, [record for kind in (POSITION, SEEN, BEHIND) for record in space.scan(kind)], random
        )
        self._proposers: dict[bytes, Proposer] = {}
        self._busy: dict[Proposer | Force, None] = {}  # Cores to wake, in insertion order.
        self._waiting: dict[int, Callable[[ProposalOutcome], None]] = {}
        # Callbacks of requests to the local acceptor, by token.
        self._asked: dict[int, Callable[[Reply | None], object]] = {}
        self._tokens = 0
        self._has_work = trio.Event()
        self._wakes_at_ms = NEVER_MS  # The time until which `run` sleeps.
        self.word_to: Callable[[bytes], bytes] = lambda _: b""  # Maps a node to the word that it expects in a message.
        space.on_closed(self._close)
        space.take_along(self._seen)
        self._close_behind()

    # -- requests ------------------------------------------------------------------------------------------------------

    def proposer(self, register: bytes, hint: Acceptors | None = None) -> Proposer:
        """Return the local proposer of a register; `hint`: its acceptors, as reported by others."""
        proposer = self._proposers.get(register)
        if proposer is None:
            proposer = self._proposers[register] = Proposer(register, self._random, None)
        if proposer.acceptors is None:
            record = self._acceptor.record(register)
            if record is not None:
                proposer.learn(record)
        if proposer.acceptors is None:
            proposer.acceptors = hint
        elif hint is not None:
            # The acceptors known before may all be gone.
            for stranger in sorted(hint.everyone - proposer.acceptors.everyone):
                self._send(proposer, RegisterRequest(RequestKind.READ, register, stranger, 0))
        return proposer

    def forget(self, register: bytes) -> None:
        """Stop proposing to a register; report that to waiting changes."""
        proposer = self._proposers.pop(register, None)
        if proposer is not None:
            proposer.end("this node no longer serves the register")
            self._act(proposer)

    async def change(
        self,
        register: bytes,
        want: RegisterChange | Reconfigure,
        *,
        timeout_s: float,
        hint: Acceptors | None = None,
    ) -> ProposalOutcome:
        """Change a value or its acceptors; return the outcome.

        Raises:
            Unavailable: the store is closed.
        """
        self._space.check_open()
        now_ms = self._now_ms()
        proposer = self.proposer(register, hint)

        def submit(ticket: int) -> Proposer:
            proposer.submit(ticket, want, now_ms=now_ms, deadline_ms=now_ms + max(1, int(timeout_s * 1000)))
            return proposer

        return await self._outcome(submit, timeout_s)

    async def read(self, register: bytes, *, timeout_s: float, hint: Acceptors | None = None) -> ProposalOutcome:
        """Read a register, as of some moment of this call. Raises as `change`."""
        return await self.change(register, read, timeout_s=timeout_s, hint=hint)

    async def force(
        self, register: bytes, survivors: Iterable[AcceptorId], hint: Acceptors | None = None
    ) -> ProposalOutcome:
        """Recover the register with these acceptors alone. Raises `Unavailable`: the store is closed."""
        self._space.check_open()
        survivors = [*survivors]
        for survivor in survivors:  # One may know of decided transactions that none of them has accepted.
            if survivor != self.me:
                with contextlib.suppress(GossipKVError):  # Without its promise the force is refused.
                    await self._maps.pull(register, survivor.node)
        proposer = self.proposer(register, hint)

        def begin(ticket: int) -> Force:
            known, now_ms = proposer.acceptors, self._now_ms()
            return Force(
                register,
                ticket,
                survivors,
                known,
                self._random,
                now_ms=now_ms,
                highest=highest,
                generation=max(0, self._maps.position(register).generation),
            )

        def highest(accepted: Ballot, payload: bytes) -> bytes:
            return self._maps.map(register).highest(accepted, decode_value(payload)).encode()

        return await self._outcome(begin, FORCE_S)

    async def _outcome(self, begin: Callable[[int], Proposer | Force], timeout_s: float) -> ProposalOutcome:
        self._tokens += 1
        ticket, done, outcomes = self._tokens, trio.Event(), []

        def tell(outcome: ProposalOutcome) -> None:
            outcomes.append(outcome)
            done.set()

        self._waiting[ticket] = tell
        try:
            self._act(begin(ticket))
            with trio.move_on_after(timeout_s + LATE_S):
                await done.wait()
        finally:
            del self._waiting[ticket]
        return outcomes[0] if outcomes else ProposalOutcome(ticket, ChangeEnd.UNKNOWN, message="no answer in time")

    def record(self, register: bytes) -> AcceptorRecord | None:
        """Return the record of the local acceptor, synced or not."""
        return self._acceptor.record(register)

    def learn(self, register: bytes) -> None:
        """Pass the record of the local acceptor to the proposer, which then need not ask for it."""
        record = self._acceptor.record(register)
        if record is not None:
            self.proposer(register).learn(record)

    # -- the local acceptor --------------------------------------------------------------------------------------------

    async def answer(self, request: bytes, seen: bytes | None = None) -> bytes:
        """Return the local acceptor's answer once its record is synced.

        `seen`: positions that the asking node tells.

        Raises:
            ProtocolError, UnsupportedFormat: the data is no request, or for another store.
            Unavailable: the store is closed, waits for room, or is behind.
        """
        done, replies = trio.Event(), []

        def complete(reply: bytes | GossipKVError) -> None:
            replies.append(reply)
            done.set()

        self.answer_soon(request, seen, complete)
        await done.wait()
        (reply,) = replies
        if isinstance(reply, GossipKVError):
            raise reply
        return reply

    def answer_soon(self, request: bytes, seen: bytes | None, complete: Completion[bytes]) -> None:
        """Call `complete` with the local acceptor's answer, or with `Unavailable`. Raises as `answer`."""
        if seen is not None:
            self.hear(seen)
        self._receive(
            decode_request(request),
            lambda reply: complete(self._space.closed_error() if reply is None else encode_reply(reply)),
        )

    @property
    def behind(self) -> str:
        """Why the store is behind its seen position; empty if no node has said so."""
        return self._seen.behind

    def tell(self, register: bytes) -> bytes:
        """Return the positions to tell to a node that is interested in this register."""
        record = self._acceptor.record(register)
        return self._seen.tell(() if record is None or record.value is None else record.value.acceptors.everyone)

    def tell_node(self, node: bytes) -> bytes:
        """Return the positions of a node's store."""
        return self._seen.tell_node(node)

    def hear(self, seen: bytes) -> None:
        """Process positions told by another node. Raises ProtocolError: the data does not have that form."""
        is_news = self._seen.hear(seen)
        self._close_behind()
        for proposer in [*self._proposers.values()] if is_news else ():
            proposer.begin_anew("the store of an acceptor may be an older copy", now_ms=self._now_ms())
            self._act(proposer)

    def check_been(self, seen: bytes) -> None:
        """Check positions of this store told by a node that is not trusted.

        Raises:
            ProtocolError: the data does not have that form.
            Unavailable: the store has not been there; an answer might be counted wrongly.
        """
        for acceptor, position in positions_in(seen):
            if acceptor == self.me and not self._seen.has_been(position):
                raise Unavailable(
                    "a sender without proof of membership has seen more of this store than the store has; nothing "
                    "was done, and the node asks a proven member once it reaches one"
                )

    def _close_behind(self) -> None:
        why = self._seen.behind
        if why:
            self._space.close(why, {BEHIND + self.me.store.to_bytes(8, "big"): why.encode()})

    def _receive(self, request: RegisterRequest, tell: Callable[[Reply | None], object]) -> None:
        """Pass a request to the local acceptor; `tell` gets the answer, or None if the store closes first."""
        self._space.check_room()
        if len(self._asked) >= MAX_ASKED:
            raise Overloaded(f"{MAX_ASKED} requests wait for the disk of this acceptor; try again later")
        self._tokens += 1
        token = self._tokens
        self._asked[token] = tell
        try:
            self._acceptor.receive(token, request)
        except BaseException:
            del self._asked[token]
            raise
        self._perform()

    def _perform(self) -> None:
        for effect in self._acceptor.take():
            match effect:
                case Keep(serial, register, record):
                    # The record says which transactions are decided, so one sync covers it and the base.
                    kept = self._acceptor.record(register)
                    assert kept is not None, register
                    records, known = self._maps.kept(register, kept)
                    self._space.append({RECORD + register: record, **records}, partial(self._synced, serial, known))
                case AcceptorAnswer(token, reply):
                    tell = self._asked.pop(token, None)
                    if tell is not None:  # Otherwise the request was told that the space is closed.
                        tell(reply)

    def _synced(self, serial: int, known: Callable[[], None]) -> None:
        self._acceptor.synced(serial)
        known()
        self._perform()

    def _close(self) -> None:
        asked, self._asked = self._asked, {}
        for tell in asked.values():
            tell(None)
        for ticket, done in [*self._waiting.items()]:
            done(ProposalOutcome(ticket, ChangeEnd.UNKNOWN, message="this node's store failed during the change"))

    # -- the proposers -------------------------------------------------------------------------------------------------

    def _act(self, proposer: Proposer | Force) -> None:
        for effect in proposer.take():
            match effect:
                case ProposalOutcome():
                    tell = self._waiting.get(effect.ticket)
                    if tell is not None:
                        tell(effect)
                    if isinstance(proposer, Force) and effect.end is ChangeEnd.DONE:
                        self._adopt(proposer, effect)
                case RegisterRequest():
                    self._send(proposer, effect)
        wakes_at_ms = proposer.wakes_at_ms
        if wakes_at_ms < NEVER_MS:
            self._busy[proposer] = None
            if wakes_at_ms < self._wakes_at_ms:
                self._has_work.set()
        else:
            self._busy.pop(proposer, None)

    def _send(self, proposer: Proposer | Force, request: RegisterRequest) -> None:
        def complete(reply: Reply | GossipKVError) -> None:
            if isinstance(reply, GossipKVError):
                proposer.unreachable(request.to, request.number, reply.message, now_ms=self._now_ms())
            else:
                proposer.receive(reply, now_ms=self._now_ms())
            self._act(proposer)

        if request.to == self.me:
            closed = Unavailable("its store is closed")
            try:
                self._receive(request, lambda reply: complete(closed if reply is None else reply))
            except GossipKVError as error:
                complete(error)
            return

        members, sent = proposer.acceptors, self._seen.seen_of(request.to)

        def answered(reply: AcceptorReply | GossipKVError) -> None:
            try:
                found: Reply | GossipKVError = self._checked(reply, request.to, sent)
            except GossipKVError as error:
                found = error
            complete(found)

        acceptors = {request.to} if members is None else {request.to, *members.everyone}
        seen = self._seen.tell(sorted(acceptors), self.word_to(request.to.node))
        self._ask(request.to, encode_request(request), seen, answered)

    def _checked(self, reply: AcceptorReply | GossipKVError, by: AcceptorId, sent: Reached) -> Reply:
        """Return the reply of another node's acceptor if it counts. Raises GossipKVError: it does not."""
        if isinstance(reply, GossipKVError):
            raise reply
        if reply.seen is not None:
            self.hear(reply.seen)
        answer = decode_reply(reply.data)
        if answer.by != by:
            raise ProtocolError(f"{answer.by} answered instead of {by}")
        if reply.seen is not None and not self._seen.is_counted(by, sent, reply.seen):
            raise ProtocolError("the acceptor has seen more of this node's store than this node sent")
        return answer

    def _adopt(self, force: Force, outcome: ProposalOutcome) -> None:
        """Pass the result of a force to the local proposer, which then need not ask for it."""
        self.learn(force.register)
        if self._acceptor.record(force.register) is None and outcome.value is not None:
            self.proposer(force.register).acceptors = outcome.value.acceptors

    async def run(self) -> None:
        """Wake proposers when due, until cancelled."""
        while True:
            self._has_work = trio.Event()
            now_ms = self._now_ms()
            for proposer in [*self._busy]:
                if proposer.wakes_at_ms <= now_ms:
                    proposer.wake(now_ms)
                    self._act(proposer)
            self._wakes_at_ms = min([proposer.wakes_at_ms for proposer in self._busy], default=NEVER_MS)
            with trio.move_on_after(max(0.001, (self._wakes_at_ms - self._now_ms()) / 1000)):
                await self._has_work.wait()

    def _now_ms(self) -> int:
        return int(trio.current_time() * 1000)
