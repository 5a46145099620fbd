"""Known maps: the decided maps of METADATA as readers see them.

The entries of a register's map are those of a table or of the catalogue, and what transactions need beside them:

    e <key>        version, record    an entry of the map; `version`: the config id of its last change
    m              version, meta      `version`: the config id of the last operation that touched the whole map
    o <sequence>   outcomes           the operations that this transaction has judged (`operations.py`)

Versions and sequences have 8 bytes. A config id is (generation, sequence) as one number, 16 bits above 48.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.register.edits import MAX_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.edits import Edit
    from gossipkv.register.entries import EntryMap, Leaf
    from gossipkv.register.state import Base

ENTRY: Final = b"e"
META: Final = b"m"
OUTCOMES: Final = b"o"
NUMBER_BYTES: Final = 8
SEQUENCE_BITS: Final = 48
MAX_CONFIG: Final = (1 << 64) - 1


def config_id(generation: int, sequence: int) -> int:
    """Return (generation, sequence) as one number."""
    assert 0 <= generation < 1 << 64 - SEQUENCE_BITS, generation
    assert 0 <= sequence <= MAX_SEQUENCE, sequence
    return generation << SEQUENCE_BITS | sequence


def generation_of(config: int) -> int:
    """Return the generation of a config id."""
    return config >> SEQUENCE_BITS


def sequence_of(config: int) -> int:
    """Return the sequence of a config id."""
    return config & MAX_SEQUENCE


class MapEntry(NamedTuple):
    """A key of a map, with its record and version."""

    key: bytes
    version: int  # The config id of the last change.
    record: bytes


def stamped(config: int, record: bytes) -> bytes:
    """Return the record of the register's map for a record of that version."""
    return config.to_bytes(NUMBER_BYTES, "big") + record


def unstamped(record: bytes) -> tuple[int, bytes]:
    """Return the version and the record of a record in the register's map."""
    return int.from_bytes(record[:NUMBER_BYTES], "big"), record[NUMBER_BYTES:]


def _entry_of(row: tuple[bytes, bytes]) -> MapEntry:
    key, record = row
    return MapEntry(key[1:], int.from_bytes(record[:NUMBER_BYTES], "big"), record[NUMBER_BYTES:])


def keys_of(edits: Sequence[Edit] | None) -> list[bytes] | None:
    """Return the keys of a map's entries that edits of its register concern; None: all may have changed."""
    if edits is None or any(key == META for key, _ in edits):
        return None
    return [key[len(ENTRY) :] for key, _ in edits if key < META]


def first_of(leaf: Leaf) -> bytes:
    """Return the first key in a leaf of a map."""
    return leaf[0][0][len(ENTRY) :]


def entries_of(leaf: Leaf) -> tuple[MapEntry, ...]:
    """Return the entries of a map in one of its leaves."""
    return tuple([_entry_of(row) for row in leaf if row[0] < META])


@final
class MapView:
    """A map at one config id. It never changes, so it may be read in any thread, and for as long as needed."""

    __slots__ = ("_map", "config", "leaves", "meta", "version")

    def __init__(self, entries: EntryMap, config: int) -> None:
        self.config = config
        self.version, self.meta = unstamped(entries.get(META) or bytes(NUMBER_BYTES))
        self._map = entries
        end = entries.leaf_of(META) + 1
        if end <= len(entries.leaves) and entries.leaves[end - 1][0][0] >= META:
            end -= 1
        self.leaves = entries.leaves[:end]  # Two maps share the leaves in which they do not differ.

    def __len__(self) -> int:
        return sum(map(len, self.leaves[:-1])) + (len(entries_of(self.leaves[-1])) if self.leaves else 0)

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key."""
        record = self._map.get(ENTRY + key)
        if record is None:
            return None
        return MapEntry(key, int.from_bytes(record[:NUMBER_BYTES], "big"), record[NUMBER_BYTES:])

    def floor(self, key: bytes) -> MapEntry | None:
        """Return the last entry whose key is `key` or below."""
        row = self._map.floor(ENTRY + key)
        return None if row is None else _entry_of(row)

    def before(self, key: bytes) -> MapEntry | None:
        """Return the last entry whose key is below `key`."""
        row = self._map.before(ENTRY + key)
        return None if row is None else _entry_of(row)

    def next_key(self, key: bytes) -> bytes | None:
        """Return the key of the next entry after `key`."""
        return next((row[0][len(ENTRY) :] for row in self._map.scan(ENTRY + key + b"\0", META)), None)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[MapEntry]:
        """Yield the entries from `start` up to before `end`, in order."""
        return map(_entry_of, self._map.scan(ENTRY + start, META if end is None else ENTRY + end))

    def leaf(self, number: int) -> tuple[MapEntry, ...]:
        """Return the entries in the leaf of a number."""
        return entries_of(self.leaves[number])

    def leaf_of(self, key: bytes) -> int:
        """Return the number of the leaf that has a key, or would have it."""
        return self._map.leaf_of(ENTRY + key)

    def outcomes(self, first: int = 0, last: int = MAX_SEQUENCE) -> Iterator[tuple[int, bytes]]:
        """Yield the sequences from `first` to `last` whose transactions have judged operations, with their outcomes."""
        start, end = (OUTCOMES + sequence.to_bytes(NUMBER_BYTES, "big") for sequence in (first, last + 1))
        for key, record in self._map.scan(start, end):
            yield int.from_bytes(key[len(OUTCOMES) :], "big"), record


@final
class KnownMap:
    """A decided map that is synced here, with the acceptors that a value of it had."""

    def __init__(self, base: Base) -> None:
        self.generation, self.sequence = base.place
        self.config = config_id(*base.place)
        self.digest = base.digest
        self.ended = base.ended
        assert base.acceptors is not None, base.place
        self.acceptors: Acceptors = base.acceptors  # The last known ones.
        self._base = base

    @cached_property
    def view(self) -> MapView:
        """The map."""
        return MapView(self._base.entries, self.config)
