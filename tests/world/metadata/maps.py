"""Maps as plain dictionaries: what a disk has of a map, and the states of a register that were committed.

It shares no code with `register.state` but the form of the records: it adds up digests over whole maps, and applies
edits to dictionaries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import ProtocolError
from gossipkv.register.edits import EMPTY
from gossipkv.register.state import HEADER, decode_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.register.edits import Edit, MapValue, Transaction

State = tuple[int, bytes]  # The sequence of a map, and its digest.
Entries = dict[bytes, bytes]


class DiskMap(NamedTuple):
    """The base of a map on a disk."""

    generation: int
    sequence: int
    digest: bytes
    ended: bool
    entries: Entries
    slot: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.sequence

    @property
    def state(self) -> State:
        return self.sequence, self.digest

    @property
    def is_whole(self) -> bool:
        return self.ended or digest_of(self.entries) == self.digest


NO_MAP = DiskMap(0, 0, EMPTY, ended=False, entries={})


def map_of(records: Mapping[bytes, bytes]) -> DiskMap:
    """Return the base that the records of a register describe."""
    header = records.get(HEADER)
    if header is None:
        return NO_MAP
    base, slot = decode_header(header)
    entries = {key[1:]: record for key, record in records.items() if key and key[0] == slot}
    return DiskMap(base.generation, base.sequence, base.digest, base.ended, entries, slot)


def is_held(base: DiskMap, generation: int, value: MapValue) -> bool:
    """Return True if a disk with this base and an acceptance in that generation can show the value's map."""
    if value.ended or base.generation > generation:  # The acceptance of a lost generation counts for nothing.
        return True
    if not base.is_whole:
        return False
    if base.sequence >= value.sequence:  # If another value was decided, this one counts for nothing.
        return base.generation == generation or base.state == (value.sequence, value.digest)
    entries, sequence = base.entries, base.sequence
    for transaction in value.tail:
        if transaction.sequence == base.sequence and transaction.digest != base.digest:
            return False
        if transaction.sequence == sequence + 1:
            entries, sequence = edited(entries, transaction.edits), sequence + 1
    return (sequence, digest_of(entries)) == (value.sequence, value.digest)


def edited(entries: Entries, edits: Iterable[Edit]) -> Entries:
    """Return a map after edits."""
    after = dict(entries)
    for key, record in edits:
        if record is None:
            after.pop(key, None)
        else:
            after[key] = record
    return after


def digest_of(entries: Entries) -> bytes:
    """Return the digest of a whole map."""
    return (sum(_weight(key, record) for key, record in entries.items()) % (1 << 256)).to_bytes(32, "big")


@lru_cache(maxsize=1 << 16)
def _weight(key: bytes, record: bytes) -> int:
    return int.from_bytes(sha256(len(key).to_bytes(4, "big") + key + record).digest(), "big")


@final
@dataclass(eq=False)
class States:
    """The states of one register that were committed, in any generation."""

    maps: dict[State, Entries] = field(default_factory=lambda: {(0, EMPTY): {}})
    steps: dict[State, tuple[State, Transaction]] = field(default_factory=dict)  # The state before, and the step.

    def commit(self, value: MapValue) -> State:
        """Add a committed value; return its state.

        Raises:
            ProtocolError: its transactions continue no committed state, or do not give its digest.
        """
        for transaction in value.tail:
            state = transaction.sequence, transaction.digest
            if state not in self.maps:
                before, entries = self._before(transaction)
                self.maps[state], self.steps[state] = entries, (before, transaction)
        state = value.sequence, value.digest
        if state not in self.maps:
            raise ProtocolError(f"no committed state is {state[0]} {state[1].hex()[:8]}")
        return state

    def _before(self, transaction: Transaction) -> tuple[State, Entries]:
        for state, entries in self.maps.items():
            if state[0] == transaction.sequence - 1:
                after = edited(entries, transaction.edits)
                if digest_of(after) == transaction.digest:
                    return state, after
        raise ProtocolError(f"transaction {transaction.sequence} continues no committed state")

    def path(self, start: State, end: State) -> list[Transaction] | None:
        """Return the transactions between two states; None if the second does not follow from the first."""
        path: list[Transaction] = []
        while end != start:
            if end[0] <= start[0]:
                return None
            end, transaction = self.steps[end]
            path.insert(0, transaction)
        return path
