"""The acceptor of CASPaxos (Rystsov 2018): promises and accepted values, durable before they are reported.

`judge` has all rules, as a pure function of a record and a request:

* Prepare and accept are compared with the promise and the accepted ballot *as appended, synced or not*. (A model that
  used the synced state lost a commit in 281 of 3,000 runs.)
* An acceptor without a record accepts only creation, and the prepare of a newcomer, which writes a promise alone.
* A new or repeated accept lowers no promise. (Lowering it forked registers in 3 to 8 of 20,000 runs of a model.)
* Two forces of one generation are both refused, durably, until a force of a higher generation.

`Acceptor` fixes an answer with the append, and sends it after the sync of its record. A record is never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import ZERO, Ballot, are_conflicting
from gossipkv.register.configuration import Value
from gossipkv.register.messages import (
    AcceptorRecord,
    AcceptorVerdict,
    RegisterRequest,
    Reply,
    RequestKind,
    decode_record,
    encode_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.register.configuration import AcceptorId

    Holds = Callable[[bytes, bytes], bool]  # Returns True if the data of a register's payload was appended here.


class Keep(NamedTuple):
    """Append a record; call `synced(serial)` when it is on the disk."""

    serial: int
    register: bytes
    record: bytes


class AcceptorAnswer(NamedTuple):
    """Answer the request with this token."""

    token: int
    reply: Reply


def judge(
    record: AcceptorRecord | None, request: RegisterRequest, holds: Callable[[bytes], bool]
) -> tuple[AcceptorVerdict, AcceptorRecord | None]:
    """Return the verdict of an acceptor with this record on a request, and its record afterwards."""
    ballot = request.ballot
    if record is None:
        return _judge_without(request, holds)
    if ballot is None:
        return AcceptorVerdict.OK, record
    if are_conflicting(ballot, record.promise):
        record = record._replace(conflict=ballot.generation)
    if record.conflict and ballot.generation <= record.conflict:
        return AcceptorVerdict.CONFLICTING, record
    if request.kind is RequestKind.PREPARE:
        return _judge_prepare(record, ballot, request, holds)
    if request.kind is RequestKind.ACCEPT:
        return _judge_accept(record, ballot, request, holds)
    is_mine = record.accepted == ballot and record.value == request.value
    return (AcceptorVerdict.OK if request.kind is RequestKind.READ or is_mine else AcceptorVerdict.BEHIND), record


def _judge_without(
    request: RegisterRequest, holds: Callable[[bytes], bool]
) -> tuple[AcceptorVerdict, AcceptorRecord | None]:
    match request:
        case RegisterRequest(RequestKind.PREPARE, ballot=Ballot() as ballot, holding=Value(payload=payload)):
            record, is_right = AcceptorRecord(ballot), ballot.is_plausible_after(ZERO)
        case RegisterRequest(RequestKind.CREATE, ballot=Ballot() as ballot, value=Value(acceptors, payload) as value):
            is_named = request.to in acceptors.old and not acceptors.joint
            record = AcceptorRecord(ballot, ballot, value)
            is_right = is_named and not (ballot.counter or ballot.proposer)
        case _:
            return AcceptorVerdict.NO_RECORD, None
    if not is_right:
        return AcceptorVerdict.IMPLAUSIBLE, None
    return (AcceptorVerdict.OK, record) if holds(payload) else (AcceptorVerdict.MISSING, None)


def _judge_prepare(
    record: AcceptorRecord, ballot: Ballot, request: RegisterRequest, holds: Callable[[bytes], bool]
) -> tuple[AcceptorVerdict, AcceptorRecord]:
    if ballot < record.promise or (record.accepted is not None and ballot <= record.accepted):
        return AcceptorVerdict.BEHIND, record
    if not ballot.is_plausible_after(record.promise):
        return AcceptorVerdict.IMPLAUSIBLE, record
    if request.holding is not None and not holds(request.holding.payload):
        return AcceptorVerdict.MISSING, record
    return AcceptorVerdict.OK, record._replace(promise=ballot)


def _judge_accept(
    record: AcceptorRecord, ballot: Ballot, request: RegisterRequest, holds: Callable[[bytes], bool]
) -> tuple[AcceptorVerdict, AcceptorRecord]:
    value = request.value
    assert value is not None, request
    if ballot == record.accepted:  # The request was repeated.
        return (AcceptorVerdict.OK if value == record.value else AcceptorVerdict.IMPLAUSIBLE), record
    if ballot < record.promise or (record.accepted is not None and ballot <= record.accepted):
        return AcceptorVerdict.BEHIND, record
    if not ballot.is_plausible_after(record.promise) or ballot <= ZERO:
        return AcceptorVerdict.IMPLAUSIBLE, record
    if not holds(value.payload):
        return AcceptorVerdict.MISSING, record
    return AcceptorVerdict.OK, AcceptorRecord(
        ballot.next() if request.stays else ballot, ballot, value, record.conflict
    )


@final
class Acceptor:
    """The acceptor of one store, for all registers."""

    def __init__(self, me: AcceptorId, records: Callable[[bytes], bytes | None], holds: Holds) -> None:
        """`records` returns the synced record of a register; `holds` is True if a payload's data was appended.

        Appended data is synced before later appends, so before every record that names it.
        """
        self.me = me
        self._records = records
        self._holds = holds
        self._appended: dict[bytes, tuple[int, AcceptorRecord]] = {}  # Unsynced records, by register.
        self._serial = 0  # The latest serial.
        self._synced = 0
        # Answers that wait for a sync, in the order of serials of each register.
        self._waiting: list[tuple[int, AcceptorAnswer]] = []
        self._effects: list[Keep | AcceptorAnswer] = []

    def receive(self, token: int, request: RegisterRequest) -> None:
        """Process a request. Raises ProtocolError: it is for another acceptor."""
        if request.to != self.me:
            raise ProtocolError(
                f"this node is the acceptor {self.me}, not {request.to}: its store was lost, restored or replaced",
                {"asked": str(request.to), "is": str(self.me)},
            )
        register = request.register
        before = self.record(register)
        verdict, after = judge(before, request, lambda payload: self._holds(register, payload))
        # A newcomer reports held data only after a sync of that data, so it appends even an unchanged record.
        is_new = after != before or request.holding is not None
        if after is not None and is_new:
            assert before is None or _goes_on(before, after), (before, after)
            self._serial += 1
            self._appended[register] = self._serial, after
            self._effects.append(Keep(self._serial, register, encode_record(after)))
        shown = after
        if (
            verdict is AcceptorVerdict.OK
            and request.kind in (RequestKind.ACCEPT, RequestKind.CREATE)
            and after is not None
        ):
            shown = after._replace(value=None)  # The requester has the value.
        reply = Reply(verdict, register, self.me, request.number, request.ballot, shown)
        self._answer(register, AcceptorAnswer(token, reply))

    def record(self, register: bytes) -> AcceptorRecord | None:
        """Return the record of a register, as appended."""
        appended = self._appended.get(register)
        if appended is not None:
            return appended[1]
        data = self._records(register)
        return None if data is None else decode_record(data)

    def synced(self, serial: int) -> None:
        """Process that all records up to `serial` are on the disk."""
        assert self._synced <= serial <= self._serial, (self._synced, serial, self._serial)
        self._synced = serial
        for register in [register for register, (last, _) in self._appended.items() if last <= serial]:
            del self._appended[register]
        waiting = self._waiting
        self._waiting = [(last, answer) for last, answer in waiting if last > serial]
        self._effects.extend(answer for last, answer in waiting if last <= serial)

    def take(self) -> list[Keep | AcceptorAnswer]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def _answer(self, register: bytes, answer: AcceptorAnswer) -> None:
        """Answer once the record in the answer is synced."""
        appended = self._appended.get(register)
        if appended is None:
            self._effects.append(answer)
        else:
            self._waiting.append((appended[0], answer))


def _goes_on(before: AcceptorRecord, after: AcceptorRecord) -> bool:
    """Return True if a record may follow another: nothing is taken back."""
    accepted = before.accepted or ZERO
    return (
        after.promise >= before.promise
        and (after.accepted or ZERO) >= accepted
        and after.conflict >= before.conflict
        and (after.accepted is None or after.promise >= after.accepted)
    )
