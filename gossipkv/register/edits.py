"""Edits: the value of a register that holds a map, and the digest of a map.

An *edit* is a key with its next record, or with None, which deletes it. A *transaction* is a list of edits with a
sequence number. The value of a register has all transactions that may be undecided, in its *tail*:

    value        [1, sequence, digest, decided, [transaction, ...], ended]
    transaction  [sequence, [[key, record or nil], ...], digest]    the keys ascend

Every sequence up to `decided` is decided, so the tail has all transactions above it, and may have some below: they
tell an acceptor what was decided. A digest describes the whole map after a transaction: it is the sum, modulo 2^256, of
the SHA-256 of each entry. So it costs what an edit changes, in any order. It detects damaged disks and defects, and no
forgery: whoever takes part in decisions is trusted.

This module knows no tables: METADATA and partitions of tables are maps alike.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from gossipkv.errors import ProtocolError, other_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMAT: Final = 1
DIGEST_BYTES: Final = 32
EMPTY: Final = bytes(DIGEST_BYTES)  # The digest of a map without entries.
MAX_SEQUENCE: Final = (1 << 48) - 1
MAX_TAIL_BYTES: Final = 64 << 10  # A longer tail is decided before another transaction joins it.
MAX_EDITS_BYTES: Final = 384 << 10  # Bounds one transaction.
MAX_MAP_BYTES: Final = 32 << 20  # Bounds a map: 240,000 partitions of 130 bytes.
EDIT_BYTES: Final = 8  # The size of an edit in a value, beside its key and its record.

_MODULUS: Final = 1 << 8 * DIGEST_BYTES

Edit = tuple[bytes, bytes | None]


class Transaction(NamedTuple):
    """The edits of one sequence number, and the digest of the map after them."""

    sequence: int
    edits: tuple[Edit, ...]
    digest: bytes


class MapValue(NamedTuple):
    """The value of a register that holds a map: the payload beside its acceptors."""

    sequence: int = 0
    digest: bytes = EMPTY
    decided: int = 0
    tail: tuple[Transaction, ...] = ()
    ended: bytes = b""  # Names the operation that has ended the map for good; empty: none has.

    def encode(self) -> bytes:
        """Return the payload."""
        packed: bytes = msgpack.packb((FORMAT, *self))
        return packed

    def ended_by(self, operation: bytes) -> MapValue:
        """Return the value that ends the map: it takes no edits any more. An ended one stays as it is."""
        last = Transaction(self.sequence + 1, (), self.digest)
        return self if self.ended else MapValue(last.sequence, self.digest, self.decided, (*self.tail, last), operation)


@lru_cache(maxsize=64)  # Each of a round's steps reads the same value.
def decode_value(payload: bytes) -> MapValue:
    """Read a payload.

    Raises:
        ProtocolError: the payload is no value, its tail has a hole, or it ends at another transaction than the value.
        UnsupportedFormat: the payload has another format.
    """
    match _unpacked(payload):
        case [int(format_), *_] if format_ != FORMAT:
            raise other_format("the value of a map", format_, FORMAT)
        case [int(format_), int(sequence), bytes(digest), int(decided), list(rows), bytes(ended)] if (
            type(format_) is type(sequence) is type(decided) is int  # True is an integer, too.
            and 0 <= decided <= sequence <= MAX_SEQUENCE
            and len(digest) == DIGEST_BYTES
        ):
            tail = transactions_of(rows)
            first, last = (tail[0].sequence, tail[-1]) if tail else (sequence + 1, None)
            if first > decided + 1 or (last is not None and (last.sequence, last.digest) != (sequence, digest)):
                words = f"the value of a map must have all its transactions from {decided + 1} to {sequence}"
                raise ProtocolError(words, {"first": first, "transactions": len(tail)})
            return MapValue(sequence, digest, decided, tail, ended)
    form = "[1, sequence, digest, decided, transactions, ended]"
    raise ProtocolError(f"the value of a map must be {form}", {"got": repr(payload)[:80]})


def transactions_of(rows: object) -> tuple[Transaction, ...]:
    """Read consecutive transactions.

    Raises:
        ProtocolError: a row is no transaction, its keys do not ascend, or one is missing between two of them.
    """
    if not isinstance(rows, (list, tuple)):
        raise ProtocolError("transactions must be a list", {"got": repr(rows)[:80]})
    found = tuple([_transaction_of(row) for row in rows])
    for before, after in pairwise(found):
        if after.sequence != before.sequence + 1:
            words = f"a transaction between {before.sequence} and {after.sequence} is missing"
            raise ProtocolError(words, {"sequence": after.sequence})
    return found


def _transaction_of(row: object) -> Transaction:
    match row:
        case [int(sequence), list(edits), bytes(digest)] if (
            type(sequence) is int and 0 < sequence <= MAX_SEQUENCE and len(digest) == DIGEST_BYTES
        ):
            return Transaction(sequence, _edits_of(edits), digest)
    raise ProtocolError("a transaction must be [sequence, edits, digest]", {"got": repr(row)[:80]})


def _edits_of(rows: list[object]) -> tuple[Edit, ...]:
    edits = []
    for row in rows:
        match row:
            case [bytes(key), None | bytes() as record]:
                edits.append((key, record))
            case _:
                raise ProtocolError("an edit must be [key, record or nil]", {"got": repr(row)[:80]})
    if any(before >= after for (before, _), (after, _) in pairwise(edits)):
        raise ProtocolError("the keys of a transaction's edits must ascend", {"got": repr(edits)[:80]})
    return tuple(edits)


def _unpacked(payload: bytes) -> object:
    try:
        return msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("the value of a map must be MessagePack", {"got": repr(payload[:40])}) from error


def divided(edits: Sequence[Edit]) -> list[Sequence[Edit]]:
    """Divide edits into parts that one transaction can have."""
    parts: list[list[Edit]] = [[]]
    left_bytes = MAX_EDITS_BYTES
    for key, record in edits:
        left_bytes -= len(key) + len(record or b"") + EDIT_BYTES
        if left_bytes < 0 and parts[-1]:
            parts.append([])
            left_bytes = MAX_EDITS_BYTES - len(key) - len(record or b"") - EDIT_BYTES
        parts[-1].append((key, record))
    return [*parts]


def digest_of(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the digest of a map with these entries."""
    return sum([_weight(key, record) for key, record in entries], 0).__mod__(_MODULUS).to_bytes(DIGEST_BYTES, "big")


def digest_after(digest: bytes, edits: Iterable[Edit], before: Mapping[bytes, bytes | None]) -> bytes:
    """Return the digest of a map after edits; `before`: the records that their keys had before them."""
    number = int.from_bytes(digest, "big")
    for key, record in edits:
        was = before[key]
        number += (0 if record is None else _weight(key, record)) - (0 if was is None else _weight(key, was))
    return (number % _MODULUS).to_bytes(DIGEST_BYTES, "big")


def _weight(key: bytes, record: bytes) -> int:
    return int.from_bytes(sha256(len(key).to_bytes(4, "big") + key + record).digest(), "big")
