"""Operations: requested changes of a map, judged and applied in turn.

An operation has a random id, chosen by its requester, and the config id of the map that it is based on. A transaction
judges a list of operations by the rules of `judge`, and its edits contain their outcomes. So outcomes are true as soon
as the transaction is decided, and not before.

An operation never changes on its way. A node that judges it on a later map than its base thereby re-bases it. Since its
base stays, an operation that is still sent around becomes invalid in time. `ask` serves requesters that lost the
answer: its "no" is final, since the operation cannot happen afterwards.

The outcomes of a transaction are one record: for each operation 20 bytes of its id, 4 of its digest, 1 of its outcome.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import ProtocolError, Unknown
from gossipkv.register.edits import MAX_MAP_BYTES
from gossipkv.register.metadata.known import (
    ENTRY,
    META,
    NUMBER_BYTES,
    OUTCOMES,
    MapEntry,
    generation_of,
    sequence_of,
    stamped,
    unstamped,
)
from gossipkv.register.metadata.packing import is_whole, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.known import MapView
    from gossipkv.wire.rpc import Value

MAX_KEY_BYTES: Final = 255
MAX_RECORD_BYTES: Final = 8 << 10
MAX_META_BYTES: Final = 4 << 10
OPERATION_ID_BYTES: Final = 20
DIGEST_BYTES: Final = 4  # An accidental second use of an id is detected, except once in four billion.
MAX_OPERATIONS: Final = 512  # Bounds one request, and one transaction.
GROUP_BYTES: Final = 256 << 10  # No more operations join a transaction of this size.
MAX_EDIT_BYTES: Final = 128 << 10  # Bounds the edits of one operation.

LIFE: Final = 64  # Sequences after its base in which an operation can be judged.
KEPT: Final = 4096  # Sequences for which its outcome is kept.

_ROW_BYTES: Final = OPERATION_ID_BYTES + DIGEST_BYTES + 1

MAX_OPERATION_BYTES: Final = 64 << 10
MAX_NAME_CHARACTERS: Final = 32

# Codes of refusals, beside those of functions.
EXPIRED: Final = "EXPIRED"
UNSUPPORTED: Final = "UNSUPPORTED"  # This program does not know the operation; a newer one may.
TOO_LARGE: Final = "TOO_LARGE"
ID_USED: Final = "ID_USED"


class OperationOutcome(IntEnum):
    """The outcome of an operation, with its number in the map."""

    UNKNOWN = 0  # Never written: the operation may have been done, or may still be.
    DONE = 1
    CONFLICT = 2
    REFUSED = 3


class Operation(NamedTuple):
    """A requested change of a map, by the name of its function."""

    id: bytes  # 20 random bytes.
    base: int  # The config id of the map that the requester has read.
    name: str
    version: int
    argument: object  # Any value of MessagePack, with arrays as tuples.

    def encode(self) -> bytes:
        """Return the encoded operation."""
        return pack(self)

    @property
    def digest(self) -> bytes:
        """Digest that tells this operation from another under its id; the base does not count."""
        return sha256(pack((self.id, self.name, self.version, self.argument))).digest()[:DIGEST_BYTES]


def decode_operation(data: bytes) -> Operation:
    """Read an operation.

    Raises:
        ProtocolError: the data is no operation.
    """
    match unpack(data, MAX_OPERATION_BYTES):
        case (bytes(id_), base, str(name), version, argument) if (
            len(id_) == OPERATION_ID_BYTES and is_whole(base) and is_whole(version) and len(name) <= MAX_NAME_CHARACTERS
        ):
            return Operation(id_, base, name, version, argument)
    raise ProtocolError("an operation must be [id of 20 bytes, base, name, version, argument]")


class Edits(NamedTuple):
    """The edits of an operation; empty if the operation finds itself done."""

    puts: Mapping[bytes, bytes | None] = {}  # None deletes an entry.
    meta: bytes | None = None  # None leaves the meta unchanged; else the whole map is touched.
    touches_all: bool = False


class OperationRefusal(Exception):
    """A function refuses an operation."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class OperationView(Protocol):
    """A map as functions see it."""

    @property
    def meta(self) -> bytes: ...

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key, and mark the key as touched."""

    def next_key(self, key: bytes) -> bytes | None:
        """Return the key of the next entry after `key`."""


if TYPE_CHECKING:
    # Pure, and never changed once it has a name and a version; raises OperationRefusal.
    Function = Callable[[OperationView, object], Edits]
    Functions = Mapping[tuple[str, int], Function]


class OperationAnswer(NamedTuple):
    """The outcome of one operation."""

    operation: bytes  # The id of the operation.
    outcome: OperationOutcome
    code: str = ""  # Set only by the transaction that refused it; the map keeps neither code nor message.
    message: str = ""


def answers_of(value: Value, operations: Sequence[Operation]) -> list[OperationAnswer]:
    """Decode a server's answers to these operations.  Raises Unknown: they are others."""
    answers = [_answer_of(row) for row in value] if isinstance(value, list) else []
    ids = [None if answer is None else answer.operation for answer in answers]
    if ids == [operation.id for operation in operations]:
        return [answer for answer in answers if answer is not None]
    raise Unknown("the answer of a server does not match the operations")


def _answer_of(row: Value) -> OperationAnswer | None:
    match row:
        case [bytes(operation), int(outcome), str(code), str(message)] if outcome in set(OperationOutcome):
            return OperationAnswer(operation, OperationOutcome(outcome), code, message)
    return None


class KeptOutcome(NamedTuple):
    """The stored outcome of a judged operation."""

    outcome: OperationOutcome
    digest: bytes  # The digest of the operation.


class OperationJudgement(NamedTuple):
    """The outcomes of the first operations of a list, true once the edits are decided."""

    answers: list[OperationAnswer]
    edits: list[Edit]  # Empty: the map is unchanged.


def judge(
    view: MapView, size_bytes: int, operations: Sequence[Operation], config: int, functions: Functions
) -> OperationJudgement:
    """Judge operations in turn, for the transaction of that config id; the rest waits if the edits become too large.

    `size_bytes`: the size of the register's map. Each operation is judged on the map as the earlier ones leave it:

    1. If its id was judged within 64 sequences of its base, that outcome stands if the digests agree. Else the id
       belongs to another operation, and this one is refused.
    2. If base + 64 is over, or of another generation, the operation is dead and never happens (any more: see `ask`).
    3. If this program does not know its function, nothing is recorded: another server may know it.
    4. If its function finds that all is done, it is DONE, on any base.
    5. If the version of anything it touched (or of the whole map) is newer than its base, it is a CONFLICT. An
       operation touches all entries that it reads or writes; one that touches the whole map conflicts with any change
       since its base.
    6. If its function refuses, it is REFUSED. Else it is applied, and its entries get the new config id.

    Outcomes of rules 4 to 6 are kept in the map.
    """
    edit = MapEdit(view, size_bytes, config)
    answers: list[OperationAnswer] = []
    for operation in operations:
        if edit.edit_bytes > GROUP_BYTES:
            break
        answers.append(_judged(edit, operation, functions))
    return OperationJudgement(answers, edit.edits())


def kept_outcome(view: MapView, operation: bytes, base: int) -> KeptOutcome | None:
    """Return the stored outcome of an operation of that base; None if no kept transaction judged it.

    An operation is judged after its base. Earlier rows, also from before a force, may have another operation of its id,
    or the same one, of an earlier base.
    """
    sequence = sequence_of(base)
    for _, record in view.outcomes(max(0, sequence - LIFE + 1), sequence + LIFE):
        if operation in record:  # Most records need no reading.
            config, rows = unstamped(record)
            if config <= base + LIFE and (found := _row_of(operation, rows)) is not None:
                return found
    return None


def judgement(view: MapView, operation: bytes) -> tuple[int, KeptOutcome] | None:
    """Return the config id at which an operation of any base was judged last, and its outcome; None if not."""
    last = None
    for _, record in view.outcomes():
        if operation in record:
            config, rows = unstamped(record)
            found = _row_of(operation, rows)
            last = last if found is None else (config, found)
    return last


def _row_of(operation: bytes, rows: bytes) -> KeptOutcome | None:
    for at in range(0, len(rows), _ROW_BYTES):
        if rows.startswith(operation, at):
            row = rows[at : at + _ROW_BYTES]
            return KeptOutcome(OperationOutcome(row[-1]), row[OPERATION_ID_BYTES:-1])
    return None


def ask(view: MapView, operation: bytes, base: int) -> OperationOutcome:
    """Return the outcome of an operation of that base, by a map that a quorum showed.

    UNKNOWN: the operation may still happen, or its outcome is not kept any more.
    """
    kept = kept_outcome(view, operation, base)
    if kept is not None:
        return kept.outcome
    return _outcome_of_dead(base, view.config)


def _outcome_of_dead(base: int, config: int) -> OperationOutcome:
    is_kept = sequence_of(config) <= sequence_of(base) + 1 + KEPT
    is_over = config > base and is_dead(base, config + 1)
    return OperationOutcome.REFUSED if is_kept and is_over else OperationOutcome.UNKNOWN


def is_dead(base: int, config: int) -> bool:
    """Return True if the transaction of that config id, and any later one, is too late for an operation."""
    return generation_of(config) > generation_of(base) or sequence_of(config) > sequence_of(base) + LIFE


def fits(key: bytes, record: bytes) -> bool:
    """Return True if a key and a record have an allowed size."""
    return len(key) <= MAX_KEY_BYTES and len(record) <= MAX_RECORD_BYTES


@final
class MapEdit:
    """Changes to a map, all of one config id; reads show the changed map."""

    def __init__(self, view: MapView, size_bytes: int, config: int) -> None:
        """`size_bytes`: the size of the register's map."""
        self.config = config
        self.view = view
        self.meta = view.meta
        self.version = view.version
        self.edit_bytes = 0
        self._left_bytes = MAX_MAP_BYTES - size_bytes
        self._puts: dict[bytes, bytes | None] = {}
        self._kept: dict[bytes, KeptOutcome] = {}

    @property
    def is_empty(self) -> bool:
        """True if no key and not the whole map was touched; outcomes may have been recorded."""
        return not self._puts and self.version != self.config

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key."""
        if key not in self._puts:
            return self.view.get(key)
        record = self._puts[key]
        return None if record is None else MapEntry(key, self.config, record)

    def next_key(self, key: bytes) -> bytes | None:
        """Return the key of the next entry after `key`."""
        put = min((other for other, record in self._puts.items() if other > key and record is not None), default=None)
        after = self.view.next_key(key)
        while after is not None and after in self._puts:
            after = self.view.next_key(after)
        return min((other for other in (put, after) if other is not None), default=None)

    def kept(self, operation: Operation) -> KeptOutcome | None:
        """Return the stored outcome of an operation, of this transaction or an earlier one."""
        return self._kept.get(operation.id) or kept_outcome(self.view, operation.id, operation.base)

    def record(self, operation: Operation, outcome: OperationOutcome) -> None:
        """Record the outcome of an operation."""
        self._kept[operation.id] = KeptOutcome(outcome, operation.digest)
        self.edit_bytes += _ROW_BYTES

    def apply(self, edits: Edits, *, touches_all: bool) -> OperationRefusal | None:
        """Apply all edits of an operation, or return the refusal and apply none."""
        puts = edits.puts
        if not all(fits(key, record or b"") for key, record in puts.items()) or (
            edits.meta is not None and len(edits.meta) > MAX_META_BYTES
        ):
            return OperationRefusal(TOO_LARGE, "an entry would be too large")
        sum_bytes = sum(len(key) + NUMBER_BYTES + len(record or b"") for key, record in puts.items())
        if sum_bytes > MAX_EDIT_BYTES:
            return OperationRefusal(TOO_LARGE, f"the operation changes {sum_bytes} bytes, at most {MAX_EDIT_BYTES} fit")
        before = {key: self.get(key) for key in puts}
        growth_bytes = len(self.meta if edits.meta is None else edits.meta) - len(self.meta)
        for key, record in puts.items():
            was = before[key]
            growth_bytes += 0 if record is None else len(key) + len(record)
            growth_bytes -= 0 if was is None else len(key) + len(was.record)
        if growth_bytes > max(0, self._left_bytes):
            return OperationRefusal(TOO_LARGE, "the map is full")
        self._left_bytes -= growth_bytes
        self.edit_bytes += sum_bytes
        for key, record in puts.items():
            if record is not None or before[key] is not None:
                self._puts[key] = record
        if touches_all:
            self.meta = self.meta if edits.meta is None else edits.meta
            self.version = self.config
        return None

    def edits(self) -> list[Edit]:
        """Return the edits of the register's map, in order, with the outcomes; outcomes that are too old are deleted.

        Without an operation that was judged anew there are none.
        """
        if not self._kept:
            return []
        edits: list[Edit] = [
            (ENTRY + key, None if record is None else stamped(self.config, record))
            for key, record in sorted(self._puts.items())
            if record is not None or self.view.get(key) is not None
        ]
        if self.version == self.config:
            edits.append((META, stamped(self.config, self.meta)))
        last = sequence_of(self.config) - KEPT - 1
        old = [*islice(self.view.outcomes(0, last), 2)] if last >= 0 else []  # Two for each new one suffice.
        edits += [(_outcomes_at(sequence), None) for sequence, _ in old]
        rows = [id_ + kept.digest + bytes((kept.outcome,)) for id_, kept in self._kept.items()]
        edits.append((_outcomes_at(sequence_of(self.config)), stamped(self.config, b"".join(rows))))
        return edits


def _outcomes_at(sequence: int) -> bytes:
    return OUTCOMES + sequence.to_bytes(NUMBER_BYTES, "big")


def _judged(edit: MapEdit, operation: Operation, functions: Functions) -> OperationAnswer:
    kept, head = edit.kept(operation), edit.view.config
    if kept is not None and kept.digest == operation.digest:
        return OperationAnswer(operation.id, kept.outcome)
    if kept is not None:
        words = f"the id {operation.id.hex()} belongs to another operation; draw a new id at random for each"
        return OperationAnswer(operation.id, OperationOutcome.REFUSED, ID_USED, words)
    if operation.base >= edit.config:
        return OperationAnswer(operation.id, OperationOutcome.UNKNOWN)  # The base was forged.
    if is_dead(operation.base, edit.config):
        # The operation never happens now; whether it did before is unknown after 4,096 sequences.
        outcome = _outcome_of_dead(operation.base, edit.config - 1)
        return OperationAnswer(operation.id, outcome, EXPIRED, "the base of the operation is too old")
    function = functions.get((operation.name, operation.version))
    if function is None:
        words = f"this node has no operation {operation.name!r} of version {operation.version}"
        return OperationAnswer(operation.id, OperationOutcome.UNKNOWN, UNSUPPORTED, words)
    answer = _try(edit, head, operation, function)
    edit.record(operation, answer.outcome)
    return answer


def _try(edit: MapEdit, head: int, operation: Operation, function: Function) -> OperationAnswer:
    watched = _Watched(edit)
    edits, refusal = Edits(), None
    try:
        edits = function(watched, operation.argument)
    except OperationRefusal as refused:
        refusal = refused
    touches_all = edits.touches_all or edits.meta is not None
    if refusal is None and not edits.puts and not touches_all:
        return OperationAnswer(operation.id, OperationOutcome.DONE)
    newest = edit.version
    if touches_all:
        newest = head if edit.is_empty else edit.config
    touched = [edit.get(key) for key in watched.touched.union(edits.puts)]
    newest = max(newest, *(entry.version for entry in touched if entry is not None), 0)
    if newest > operation.base:
        words = f"config {newest} changed the same entries after the base {operation.base} of the operation"
        return OperationAnswer(operation.id, OperationOutcome.CONFLICT, "", words)
    if refusal is None:
        refusal = edit.apply(edits, touches_all=touches_all)
    if refusal is not None:
        return OperationAnswer(operation.id, OperationOutcome.REFUSED, refusal.code, refusal.message)
    return OperationAnswer(operation.id, OperationOutcome.DONE)


@final
class _Watched:
    """A view that notes the keys that were read."""

    def __init__(self, edit: MapEdit) -> None:
        self._edit = edit
        self.touched: set[bytes] = set()

    @property
    def meta(self) -> bytes:
        return self._edit.meta

    def get(self, key: bytes) -> MapEntry | None:
        self.touched.add(key)
        return self._edit.get(key)

    def next_key(self, key: bytes) -> bytes | None:
        return self._edit.next_key(key)
