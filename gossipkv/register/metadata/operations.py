"""Operations: what is asked of a map, judged and applied in turn.

An operation has a random id, chosen by its requester, and the config id that it is based on.  A transaction takes a
list of them and judges each, on the map as those before it leave it:

1. judged before, by its id, within 64 sequences of its base: that outcome stands, where the digest of what was judged
   is its own (or was not kept); else the id was used for another operation, and it is refused;
2. its base + 64 is over, or of another generation: it is dead, and never happens (any more: see `ask`);
3. its function finds that all is done: DONE, on any base;
4. the version of something that it touched (of the whole, if higher) is newer than its base: CONFLICT.  What it looked
   at and what it writes is touched; one that touches all conflicts with any change since its base;
5. its function refuses: REFUSED; else it is applied, and what it writes gets the new config id.

Outcomes of 3 to 5 are kept in the map, so they are true as soon as the transaction is committed, and not before.  An
operation is never changed on its way: whoever judges it on a later head than its base has thereby re-based it, and
since its base stays as it is, it dies in time whoever still carries it around.

`ask` is for who lost the answer.  Its "no" is final: nothing can happen after it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import LimitExceeded, ProtocolError
from gossipkv.register.metadata.pages import (
    DIGEST_BYTES,
    MOST_JUDGED,
    MOST_META_BYTES,
    OPERATION_ID_BYTES,
    Entry,
    Outcome,
    generation_of,
    is_whole,
    pack,
    sequence_of,
    unpack,
)
from gossipkv.register.metadata.tree import KEPT, LIFE, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.register.metadata.tree import Changed, Edit, Tree

MOST_OPERATION_BYTES: Final = 64 << 10
MOST_NAME_CHARACTERS: Final = 32

# Why an operation was refused, beside what functions say.
EXPIRED: Final = "EXPIRED"
UNKNOWN_OPERATION: Final = "UNKNOWN_OPERATION"
TOO_LARGE: Final = "TOO_LARGE"
ID_USED: Final = "ID_USED"


class Operation(NamedTuple):
    """A change that is asked of a map, by the name of its function."""

    id: bytes  # 20 random bytes.
    base: int  # The config id of the map that its requester looked at.
    name: str
    version: int
    argument: object  # What MessagePack can say, arrays as tuples.

    def encode(self) -> bytes:
        """The bytes in which it travels."""
        return pack(self)

    @property
    def digest(self) -> bytes:
        """What tells it from another operation under its id; it may be based on another head."""
        return sha256(pack((self.id, self.name, self.version, self.argument))).digest()[:DIGEST_BYTES]


def decode_operation(data: bytes) -> Operation:
    """Read an operation.

    Raises:
        ProtocolError: these are not the bytes of one.
    """
    match unpack(data, MOST_OPERATION_BYTES):
        case (bytes(id_), base, str(name), version, argument) if (
            len(id_) == OPERATION_ID_BYTES
            and is_whole(base)
            and is_whole(version)
            and len(name) <= MOST_NAME_CHARACTERS
        ):
            return Operation(id_, base, name, version, argument)
    raise ProtocolError("an operation is [id of 20 bytes, base, name, version, argument]")


class Edits(NamedTuple):
    """The edits that an operation makes; none at all where it finds itself done."""

    puts: Mapping[bytes, bytes | None] = {}  # None: no entry any more.
    meta: bytes | None = None  # None: as it is; else all is touched.
    touches_all: bool = False


class Refusal(Exception):
    """A function refuses: it does not do what it is asked."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class View(Protocol):
    """A map as functions see it."""

    @property
    def meta(self) -> bytes:
        """The meta of the map."""
        ...

    def get(self, key: bytes) -> Entry | None:
        """Find the entry at a key, and touch it."""
        ...

    def next_key(self, key: bytes) -> bytes | None:
        """The key of the entry behind that key."""
        ...


if TYPE_CHECKING:
    # Pure, and never changed once it has a name and a version; raises Refusal.
    Function = Callable[[View, object], Edits]
    Functions = Mapping[tuple[str, int], Function]


class Answer(NamedTuple):
    """The outcome of one operation."""

    operation: bytes  # Its id.
    outcome: Outcome
    code: str = ""  # Of a refusal that this very transaction made; it is not kept, nor are its words.
    message: str = ""


class Judgement(NamedTuple):
    """The outcomes of a list of operations, true once the root that they made is committed."""

    answers: list[Answer]
    changed: Changed | None  # None: there is nothing new, so the answers are true already.


def judge(tree: Tree, operations: Sequence[Operation], config: int, functions: Functions) -> Judgement:
    """Judge operations in turn, for the transaction of that config id.

    Requires: at most 48 of them.

    Raises:
        MissingPage, ProtocolError, UnsupportedFormat: as reading the tree does.
        LimitExceeded: the map's root is full.
    """
    assert len(operations) <= MOST_JUDGED, len(operations)
    try:
        return _judge(tree, operations, config, functions, may_grow=True)
    except LimitExceeded:
        # Those that make the map larger are refused together: a full table goes on with all others.
        return _judge(tree, operations, config, functions, may_grow=False)


def ask(tree: Tree, operation: bytes, base: int, head: int) -> Outcome:
    """The outcome of an operation of that base, by the tree of a head that a quorum showed, and its config id.

    UNKNOWN: it may yet happen, or what became of it is not kept any more.
    """
    found = tree.outcome(operation, base)
    if found is not None:
        return found
    is_kept = sequence_of(head) <= sequence_of(base) + 1 + KEPT
    return Outcome.REFUSED if is_kept and head > base and is_dead(base, head + 1) else Outcome.UNKNOWN


def is_dead(base: int, config: int) -> bool:
    """Whether a transaction of that config id, and any later one, is too late for an operation."""
    return generation_of(config) > generation_of(base) or sequence_of(config) > sequence_of(base) + LIFE


def _judge(
    tree: Tree, operations: Sequence[Operation], config: int, functions: Functions, *, may_grow: bool
) -> Judgement:
    edit = tree.edit(config)
    answers = []
    # What is based on a head of a generation that is over is dead: there has to be one of this generation.
    is_new = generation_of(config) > generation_of(tree.root.config)
    for operation in operations:
        kept = edit.kept(operation.id, operation.base)
        if kept is not None and kept.digest == operation.digest:
            answers.append(Answer(operation.id, kept.outcome))
        elif kept is not None:
            words = f"the id {operation.id.hex()} is another operation's: each has an id of its own, drawn at random"
            answers.append(Answer(operation.id, Outcome.REFUSED, ID_USED, words))
        elif operation.base >= config:
            # Based on what this tree has not seen.  If it is committed all the same, that base was a lie.
            answers.append(Answer(operation.id, Outcome.UNKNOWN))
        elif is_dead(operation.base, config):
            # It never happens; but whether it did, before its outcome was let go, nobody knows after 4,096 sequences.
            told = ask(tree, operation.id, operation.base, config - 1)
            answers.append(Answer(operation.id, told, EXPIRED, "its base is too old"))
        else:
            answers.append(_try(edit, tree.root.config, operation, functions, may_grow=may_grow))
            edit.record(operation.id, answers[-1].outcome, operation.digest)
            is_new = True
    return Judgement(answers, edit.finish() if is_new else None)


def _try(edit: Edit, head: int, operation: Operation, functions: Functions, *, may_grow: bool) -> Answer:
    """Apply one operation, if nothing stands in its way."""
    function = functions.get((operation.name, operation.version))
    if function is None:
        words = f"there is no operation {operation.name!r} of version {operation.version} here"
        return Answer(operation.id, Outcome.REFUSED, UNKNOWN_OPERATION, words)
    view = _Watched(edit)
    edits, refusal = Edits(), None
    try:
        edits = function(view, operation.argument)
    except Refusal as refused:
        refusal = refused
    touches_all = edits.touches_all or edits.meta is not None
    if refusal is None and not edits.puts and not touches_all:
        return Answer(operation.id, Outcome.DONE)
    newest = edit.version
    if touches_all:
        newest = head if edit.is_empty else edit.config
    touched = [edit.get(key) for key in view.touched.union(edits.puts)]
    newest = max(newest, *(entry.version for entry in touched if entry is not None), 0)
    if newest > operation.base:
        words = f"what it touches was changed by {newest}, behind its base {operation.base}"
        return Answer(operation.id, Outcome.CONFLICT, "", words)
    if refusal is None and not may_grow and _grows(edit, edits):
        refusal = Refusal(TOO_LARGE, "the map is full")
    if refusal is None:
        refusal = _apply(edit, edits, touches_all=touches_all)
    if refusal is not None:
        return Answer(operation.id, Outcome.REFUSED, refusal.code, refusal.message)
    return Answer(operation.id, Outcome.DONE)


def _grows(edit: Edit, edits: Edits) -> bool:
    """Whether a map has more to hold afterwards."""
    if edits.meta is not None and len(edits.meta) > len(edit.meta):
        return True
    stands = {key: edit.get(key) for key in edits.puts}
    lengths = [(stands[key], record) for key, record in edits.puts.items() if record is not None]
    return any(entry is None or len(record) > len(entry.record) for entry, record in lengths)


def _apply(edit: Edit, edits: Edits, *, touches_all: bool) -> Refusal | None:
    """Do all of it, or nothing and say why."""
    if not all(fits(key, record or b"") for key, record in edits.puts.items()) or (
        edits.meta is not None and len(edits.meta) > MOST_META_BYTES
    ):
        return Refusal(TOO_LARGE, "an entry would be too large")
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
    """A view that knows what was looked at."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self.touched: set[bytes] = set()

    @property
    def meta(self) -> bytes:
        return self._edit.meta

    def get(self, key: bytes) -> Entry | None:
        self.touched.add(key)
        return self._edit.get(key)

    def next_key(self, key: bytes) -> bytes | None:
        return self._edit.next_key(key)
