"""Operations: requested changes of a map, judged and applied in turn.

An operation has a random id, chosen by its requester, and the config id of the head that it is based on. A transaction
judges a list of operations by the rules of `judge`. The outcomes are kept in the map, so they are true as soon as the
transaction is committed, and not before.

An operation never changes on its way. A node that judges it on a later head than its base thereby re-bases it. Since
its base stays, an operation that is still sent around becomes invalid in time. `ask` serves requesters that lost the
answer: its "no" is final, since the operation cannot happen afterwards.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import LimitExceeded, ProtocolError, Unknown
from gossipkv.register.metadata.pages import (
    DIGEST_BYTES,
    MAX_JUDGED,
    MAX_META_BYTES,
    OPERATION_ID_BYTES,
    MapEntry,
    OperationOutcome,
    generation_of,
    is_whole,
    pack,
    sequence_of,
    unpack,
)
from gossipkv.register.metadata.tree import KEPT, LIFE, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.metadata.tree import ChangedPages, Edit, MapTree
    from gossipkv.wire.rpc import Value

MAX_OPERATION_BYTES: Final = 64 << 10
MAX_NAME_CHARACTERS: Final = 32

# Codes of refusals, beside those of functions.
EXPIRED: Final = "EXPIRED"
UNKNOWN_OPERATION: Final = "UNKNOWN_OPERATION"
TOO_LARGE: Final = "TOO_LARGE"
ID_USED: Final = "ID_USED"


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


class MapView(Protocol):
    """A map as functions see it."""

    @property
    def meta(self) -> bytes: ...

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key, and mark the key as touched."""

    def next_key(self, key: bytes) -> bytes | None:
        """Return the key of the next entry after `key`."""


if TYPE_CHECKING:
    # Pure, and never changed once it has a name and a version; raises OperationRefusal.
    Function = Callable[[MapView, object], Edits]
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


class OperationJudgement(NamedTuple):
    """The outcomes of a list of operations, true once their root is committed."""

    answers: list[OperationAnswer]
    changed: ChangedPages | None  # None: the map is unchanged, so the answers are true already.


def judge(tree: MapTree, operations: Sequence[Operation], config: int, functions: Functions) -> OperationJudgement:
    """Judge at most 48 operations in turn, for the transaction of that config id.

    Each operation is judged on the map as the earlier ones leave it:

    1. If its id was judged within 64 sequences of its base, that outcome stands if the digests agree. Else the id
       belongs to another operation, and this one is refused.
    2. If base + 64 is over, or of another generation, the operation is dead and never happens (any more: see `ask`).
    3. If its function finds that all is done, it is DONE, on any base.
    4. If the version of anything it touched (or of the whole map) is newer than its base, it is a CONFLICT. An
       operation touches all entries that it reads or writes; one that touches the whole map conflicts with any change
       since its base.
    5. If its function refuses, it is REFUSED. Else it is applied, and its entries get the new config id.

    Outcomes of rules 3 to 5 are kept in the map.

    Raises:
        MissingPage, ProtocolError, UnsupportedFormat: as reading the tree does.
        LimitExceeded: the map's root is full.
    """
    assert len(operations) <= MAX_JUDGED, len(operations)
    try:
        return _judge(tree, operations, config, functions, may_grow=True)
    except LimitExceeded:
        # Operations that enlarge the map are refused together, so that a full table accepts all others.
        return _judge(tree, operations, config, functions, may_grow=False)


def ask(tree: MapTree, operation: bytes, base: int, head: int) -> OperationOutcome:
    """Return the outcome of an operation of that base, by the tree of a head that a quorum showed, and its config id.

    UNKNOWN: the operation may still happen, or its outcome is not kept any more.
    """
    found = tree.outcome(operation, base)
    if found is not None:
        return found
    is_kept = sequence_of(head) <= sequence_of(base) + 1 + KEPT
    return OperationOutcome.REFUSED if is_kept and head > base and is_dead(base, head + 1) else OperationOutcome.UNKNOWN


def is_dead(base: int, config: int) -> bool:
    """Return True if the transaction of that config id, and any later one, is too late for an operation."""
    return generation_of(config) > generation_of(base) or sequence_of(config) > sequence_of(base) + LIFE


def _judge(
    tree: MapTree, operations: Sequence[Operation], config: int, functions: Functions, *, may_grow: bool
) -> OperationJudgement:
    edit = tree.edit(config)
    answers = []
    # Operations based on a head of an old generation are dead, so the new generation needs a head of its own.
    is_new = generation_of(config) > generation_of(tree.root.config)
    for operation in operations:
        kept = edit.kept(operation.id, operation.base)
        if kept is not None and kept.digest == operation.digest:
            answers.append(OperationAnswer(operation.id, kept.outcome))
        elif kept is not None:
            words = f"the id {operation.id.hex()} belongs to another operation; draw a new id at random for each"
            answers.append(OperationAnswer(operation.id, OperationOutcome.REFUSED, ID_USED, words))
        elif operation.base >= config:
            # This tree lacks the base. If this transaction is committed all the same, the base was forged.
            answers.append(OperationAnswer(operation.id, OperationOutcome.UNKNOWN))
        elif is_dead(operation.base, config):
            # The operation never happens now; whether it did before is unknown after 4,096 sequences.
            outcome = ask(tree, operation.id, operation.base, config - 1)
            answers.append(OperationAnswer(operation.id, outcome, EXPIRED, "the base of the operation is too old"))
        else:
            answers.append(_try(edit, tree.root.config, operation, functions, may_grow=may_grow))
            edit.record(operation.id, answers[-1].outcome, operation.digest)
            is_new = True
    return OperationJudgement(answers, edit.finish() if is_new else None)


def _try(edit: Edit, head: int, operation: Operation, functions: Functions, *, may_grow: bool) -> OperationAnswer:
    function = functions.get((operation.name, operation.version))
    if function is None:
        words = f"this node has no operation {operation.name!r} of version {operation.version}"
        return OperationAnswer(operation.id, OperationOutcome.REFUSED, UNKNOWN_OPERATION, words)
    view = _Watched(edit)
    edits, refusal = Edits(), None
    try:
        edits = function(view, operation.argument)
    except OperationRefusal as refused:
        refusal = refused
    touches_all = edits.touches_all or edits.meta is not None
    if refusal is None and not edits.puts and not touches_all:
        return OperationAnswer(operation.id, OperationOutcome.DONE)
    newest = edit.version
    if touches_all:
        newest = head if edit.is_empty else edit.config
    touched = [edit.get(key) for key in view.touched.union(edits.puts)]
    newest = max(newest, *(entry.version for entry in touched if entry is not None), 0)
    if newest > operation.base:
        words = f"config {newest} changed the same entries after the base {operation.base} of the operation"
        return OperationAnswer(operation.id, OperationOutcome.CONFLICT, "", words)
    if refusal is None and not may_grow and _grows(edit, edits):
        refusal = OperationRefusal(TOO_LARGE, "the map is full")
    if refusal is None:
        refusal = _apply(edit, edits, touches_all=touches_all)
    if refusal is not None:
        return OperationAnswer(operation.id, OperationOutcome.REFUSED, refusal.code, refusal.message)
    return OperationAnswer(operation.id, OperationOutcome.DONE)


def _grows(edit: Edit, edits: Edits) -> bool:
    """Return True if the edits enlarge the map."""
    if edits.meta is not None and len(edits.meta) > len(edit.meta):
        return True
    before = {key: edit.get(key) for key in edits.puts}
    lengths = [(before[key], record) for key, record in edits.puts.items() if record is not None]
    return any(entry is None or len(record) > len(entry.record) for entry, record in lengths)


def _apply(edit: Edit, edits: Edits, *, touches_all: bool) -> OperationRefusal | None:
    """Apply all edits, or return the refusal and apply none."""
    if not all(fits(key, record or b"") for key, record in edits.puts.items()) or (
        edits.meta is not None and len(edits.meta) > MAX_META_BYTES
    ):
        return OperationRefusal(TOO_LARGE, "an entry would be too large")
    for key, record in edits.puts.items():
        if record is None:
            edit.delete(key)
        else:
            edit.put(key, record)
    if touches_all:
        edit.set_meta(edit.meta if edits.meta is None else edits.meta)
    return None


@final
class _Watched:
    """A view that notes the keys that were read."""

    def __init__(self, edit: Edit) -> None:
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
