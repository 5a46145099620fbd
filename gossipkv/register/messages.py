"""The messages of proposers and acceptors, and the record of an acceptor, as MessagePack.

    request   [format, kind, register, [node, store], number, ballot, …]
      READ      nothing more; the ballot (or nil) is evidence of a force that the acceptor may not know
      PREPARE   value or nil      a newcomer must hold the map of this value
      ACCEPT    value, stays      `stays`: also promise the proposer's next ballot
      CREATE    value
    reply     [format, verdict, register, [node, store], number, ballot, record]
    record    [format, promise, accepted or nil, value or nil, conflict]

A request is for one acceptor; another store at the same address is another acceptor. `number` is a round's number. A
reply repeats it with the ballot, so that late replies are recognised.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgpack

from gossipkv.errors import ProtocolError, other_format
from gossipkv.register.ballot import MAX_GENERATION, Ballot, ballot_of
from gossipkv.register.configuration import MAX_PAYLOAD_BYTES, AcceptorId, Value, acceptor_of, value_of

FORMAT: Final = 2  # Records of format 1 had heads of maps on pages.
REGISTER_BYTES: Final = 16
MAX_NUMBER: Final = (1 << 62) - 1
MAX_BYTES: Final = MAX_PAYLOAD_BYTES + (8 << 10)  # Bounds a payload with all acceptors and all forces.


class RequestKind(IntEnum):
    """The kinds of requests."""

    READ = 0
    PREPARE = 1
    ACCEPT = 2
    CREATE = 3


class AcceptorVerdict(IntEnum):
    """The answers of an acceptor to a request."""

    OK = 0
    BEHIND = 1  # The acceptor has promised or accepted a higher ballot.
    NO_RECORD = 2  # The acceptor has no record of this register.
    MISSING = 3  # The acceptor lacks data of the payload.
    CONFLICTING = 4  # The acceptor knows two forces of this generation.
    IMPLAUSIBLE = 5  # The ballot is forged, or was used for another value.


class AcceptorRecord(NamedTuple):
    """The state that an acceptor keeps of a register."""

    promise: Ballot
    accepted: Ballot | None = None  # None for a newcomer, which has only promised.
    value: Value | None = None
    conflict: int = 0  # The latest generation with two known forces (conflicting recoveries); 0 if there is none.


class RegisterRequest(NamedTuple):
    """A request of a proposer."""

    kind: RequestKind
    register: bytes
    to: AcceptorId
    number: int
    ballot: Ballot | None = None  # None only for READ.
    value: Value | None = None  # Set for ACCEPT and CREATE.
    stays: bool = False  # Set for ACCEPT.
    holding: Value | None = None  # Set for PREPARE.


class Reply(NamedTuple):
    """A reply of an acceptor."""

    verdict: AcceptorVerdict
    register: bytes
    by: AcceptorId
    number: int
    ballot: Ballot | None
    record: AcceptorRecord | None  # The record after the request, without a value that the proposer knows.


def encode_request(request: RegisterRequest) -> bytes:
    """Return the bytes of a request."""
    kind, register, to, number, ballot, value, stays, holding = request
    more: dict[RequestKind, list[object]] = {
        RequestKind.READ: [],
        RequestKind.PREPARE: [holding],
        RequestKind.ACCEPT: [value, stays],
        RequestKind.CREATE: [value],
    }
    packed: bytes = msgpack.packb([FORMAT, kind, register, to, number, ballot, *more[kind]])
    return packed


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply."""
    verdict, register, by, number, ballot, record = reply
    packed: bytes = msgpack.packb([FORMAT, verdict, register, by, number, ballot, record])
    return packed


def encode_record(record: AcceptorRecord) -> bytes:
    """Return the bytes of a record."""
    packed: bytes = msgpack.packb([FORMAT, *record])
    return packed


@lru_cache(maxsize=16)  # The fetcher of missing data reads a request first, and then the acceptor.
def decode_request(data: bytes) -> RegisterRequest:
    """Read a request.

    Raises:
        ProtocolError: the data does not have that form.
        UnsupportedFormat: the data has another format.
    """
    match _unpack(data, "a request to an acceptor"):
        case [int(kind), bytes(register), to, int(number), ballot, *more] if _is_addressed(register, number):
            asked = RegisterRequest(
                RequestKind.READ, register, acceptor_of(to), number, None if ballot is None else ballot_of(ballot)
            )
            match kind, more:
                case RequestKind.READ, []:
                    return asked
                case RequestKind.PREPARE, [held] if ballot is not None:
                    holding = None if held is None else value_of(held)
                    return asked._replace(kind=RequestKind.PREPARE, holding=holding)
                case RequestKind.ACCEPT, [value, bool(stays)] if ballot is not None:
                    return asked._replace(kind=RequestKind.ACCEPT, value=value_of(value), stays=stays)
                case RequestKind.CREATE, [value] if ballot is not None:
                    return asked._replace(kind=RequestKind.CREATE, value=value_of(value))
    raise ProtocolError("this is not a request to an acceptor", {"got": repr(data[:40])})


def decode_reply(data: bytes) -> Reply:
    """Read a reply.

    Raises:
        ProtocolError: the data does not have that form.
        UnsupportedFormat: the data has another format.
    """
    match _unpack(data, "a reply of an acceptor"):
        case [int(verdict), bytes(register), by, int(number), ballot, record] if _is_addressed(
            register, number
        ) and verdict in set(AcceptorVerdict):
            return Reply(
                AcceptorVerdict(verdict),
                register,
                acceptor_of(by),
                number,
                None if ballot is None else ballot_of(ballot),
                None if record is None else _record_of(record),
            )
    raise ProtocolError("this is not a reply of an acceptor", {"got": repr(data[:40])})


@lru_cache(maxsize=64)  # The next request is judged by the record of the last one.
def decode_record(data: bytes) -> AcceptorRecord:
    """Read a record.

    Raises:
        ProtocolError: the data does not have that form.
        UnsupportedFormat: the data has another format.
    """
    record = _record_of(_unpack(data, "a record of an acceptor"))
    if record.accepted is not None and record.value is None:
        raise ProtocolError("a stored record must have its accepted value", {"accepted": str(record.accepted)})
    return record


def _record_of(record: object) -> AcceptorRecord:
    match record:
        case [promise, None, None, int(conflict)] if 0 <= conflict <= MAX_GENERATION:
            return AcceptorRecord(ballot_of(promise), conflict=conflict)
        case [promise, accepted, value, int(conflict)] if 0 <= conflict <= MAX_GENERATION:
            kept = AcceptorRecord(
                ballot_of(promise), ballot_of(accepted), None if value is None else value_of(value), conflict
            )
            if kept.accepted is not None and kept.accepted <= kept.promise:
                return kept
    form = "[promise, accepted or nil, value or nil, conflict]"
    raise ProtocolError(f"a record must be {form}", {"got": repr(record)[:80]})


def _is_addressed(register: bytes, number: int) -> bool:
    return len(register) == REGISTER_BYTES and 0 <= number <= MAX_NUMBER


def _unpack(data: bytes, form: str) -> list[object]:
    try:
        if len(data) > MAX_BYTES:
            raise ProtocolError(f"{form} must have at most {MAX_BYTES} bytes", {"got": len(data)})
        value = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{form} must be MessagePack", {"got": repr(data[:40])}) from error
    match value:
        case [int(format_number), *rest] if format_number == FORMAT:
            return rest
        case [int(format_number), *_]:
            raise other_format(form, format_number, FORMAT)
    raise ProtocolError(f"{form} must begin with its format", {"got": repr(data[:40])})
