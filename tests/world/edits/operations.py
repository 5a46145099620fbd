"""Operations on a map, as a proposer judges them: with ids, bases, versions of entries, and outcomes that are entries.

    b"k" key         [version, [[id, base, sequence], ...]]    an entry, and all operations that wrote it
    b"o" sequence    [[id, outcome], ...]                      the outcomes of a transaction's operations

An operation is judged by the map of its base, which is a sequence of one generation. The lives of operations and of
outcomes are so short that runs go past both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.register.edits import Edit
    from gossipkv.register.entries import EntryMap

LIFE: Final = 3  # An operation whose base is older is never applied.
KEPT: Final = 6  # Outcomes are kept for so many sequences.
DONE, CONFLICT, TOO_OLD = "done", "conflict", "too old"
UNKNOWN, UNSUPPORTED = "unknown", "unsupported"  # These are not recorded, and say nothing.


class Operation(NamedTuple):
    """A write of one entry."""

    id: int
    generation: int
    base: int
    key: int
    is_new: bool = False  # Only some nodes' programs know the operation.


Write = tuple[int, int, int]  # The id of an operation, its base, and the sequence of its transaction.
Judged = tuple[list["Edit"], list[str]]  # Edits in order, and an outcome of each operation.


class View:
    """A map under judgement: its entries, and the edits of the operations before."""

    def __init__(self, entries: EntryMap, sequence: int) -> None:
        self.sequence = sequence  # The sequence of the transaction under judgement.
        self.edits: dict[bytes, bytes | None] = {}
        self._entries = entries

    def get(self, key: bytes) -> bytes | None:
        return self.edits[key] if key in self.edits else self._entries.get(key)

    def outcomes(self) -> dict[int, str]:
        """Return all recorded outcomes, by operation."""
        records = {**dict(self._entries.scan(b"o", b"p")), **self.edits}
        rows = [record for key, record in records.items() if key.startswith(b"o") and record is not None]
        return {id_: outcome for record in rows for id_, outcome in msgpack.unpackb(record)}

    def old_outcomes(self) -> list[bytes]:
        """Return the keys of the outcomes that are kept no longer."""
        return [key for key, _ in self._entries.scan(b"o", outcome_key(max(0, self.sequence - KEPT)))]


def outcome_key(sequence: int) -> bytes:
    return b"o" + sequence.to_bytes(4, "big")


def entry_key(key: int) -> bytes:
    return b"k" + bytes((key,))


def entry_of(record: bytes | None) -> tuple[int, list[Write]]:
    """Return the version of an entry, and all its writes."""
    if record is None:
        return 0, []
    version, writes = msgpack.unpackb(record)
    return version, [(id_, base, sequence) for id_, base, sequence in writes]


def judge_all(
    operations: Iterable[Operation], entries: EntryMap, sequence: int, generation: int, *, knows_new: bool
) -> Judged:
    """Judge operations in turn, each on the map as the ones before leave it."""
    view = View(entries, sequence)
    outcomes = [_judge(view, operation, generation, knows_new=knows_new) for operation in operations]
    if view.edits:
        view.edits.update(dict.fromkeys(view.old_outcomes()))
    return sorted(view.edits.items()), outcomes


def _judge(view: View, operation: Operation, generation: int, *, knows_new: bool) -> str:
    sequence, base = view.sequence, operation.base
    kept = view.outcomes().get(operation.id)
    if kept is not None:
        return kept
    if operation.generation != generation or base >= sequence:
        return UNKNOWN
    if sequence > base + LIFE:
        return UNKNOWN if sequence > base + 1 + KEPT else TOO_OLD
    if operation.is_new and not knows_new:
        return UNSUPPORTED
    key = entry_key(operation.key)
    version, writes = entry_of(view.get(key))
    outcome = DONE if version <= base else CONFLICT
    row = msgpack.unpackb(view.get(outcome_key(sequence)) or b"\x90")
    view.edits[outcome_key(sequence)] = msgpack.packb([*row, [operation.id, outcome]])
    if outcome == DONE:
        view.edits[key] = msgpack.packb([sequence, [*writes, (operation.id, base, sequence)]])
    return outcome


def writes_in(entries: EntryMap) -> Sequence[list[Write]]:
    """Return the writes of each entry, in order."""
    return [entry_of(record)[1] for _, record in entries.scan(b"k", b"l")]
