"""Statements: a node's reports about a version and about a database, and their bytes in gossip's tree.

A version's statement is under `partitions/<database>/<version>/`, in pieces of 8,192 partitions; the first is named
after the node. Each piece is independent: a missing piece says nothing of its partitions. A database's statement is one
entry under `databases/<database>/`. Unknown fields are ignored, so later versions may add some. Malformed data, too
large data and other formats decode to None: decoding never raises, and counts bytes and partitions before it allocates.
A piece takes at most 2,930 bytes, and with the longest path (676) it fits the 4,096 bytes of an entry. 65,536
partitions are 8 pieces, at most 30 KiB of a branch's 256. A piece is a map in MessagePack:

    format      1; other formats are ignored
    database, version, digest, partitions, function, regrouped  the identity; digest is 32 bytes
    source_ms   the newest time among the source's files, since 1970; 0: not known
    progress    of the build, in percent
    uuid        the node's (16 bytes)
    first       the first partition of this piece, a multiple of 8,192
    ready, building  sets of partitions, counted from `first`: the shorter one of
                     a bitmap (bytes; bit p & 7 of byte p >> 3 is partition p; zeros at the end left out)
                     runs (a list of lengths: partitions outside, inside, outside, ..., ending inside)
    differing   likewise, the first 32 runs of partitions that are here and not served, since clients have
                them from other files; absent: none

The entry of a database is a map, too:

    format          1
    active, next    null, or [version, wire id (16 bytes)]
    newest, hold    null, or the name of a version
    refuted         a list of [digest (32 bytes), function, ...]: at most 16, the latest last
    told            true or false
    order           [stamp, version or null]: the latest known order to hold or to release a version, which
                    all nodes obey; absent: none
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from gossipkv.placement.identity import WIRE_ID_BYTES, VersionIdentity
from gossipkv.placement.orders import MAX_STAMP, RollbackOrder
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Packed = bool | int | str | bytes | None | list["Packed"] | Mapping[str, "Packed"]

FORMAT: Final = 1
MAX_PARTITIONS: Final = 65_536
PIECE_PARTITIONS: Final = 8_192
MAX_DIFFERING_RUNS: Final = 32
MAX_PIECES: Final = MAX_PARTITIONS // PIECE_PARTITIONS
MAX_PIECE_BYTES: Final = 32 << 10  # The largest possible entry of the tree, since later versions may add fields.
MAX_NAME_CHARACTERS: Final = 200  # Bounds the names of databases and versions, as at the source.
MAX_REFUTED: Final = 16  # Digests in one entry, the latest; each has few functions.
DIGEST_BYTES: Final = 32
UUID_BYTES: Final = 16

_NAME: Final = re.compile(rf"[-_a-zA-Z0-9]{{1,{MAX_NAME_CHARACTERS}}}").fullmatch
_FUNCTION: Final = re.compile(r"[-_a-zA-Z0-9]{1,32}").fullmatch
_MAX_FUNCTIONS: Final = 32


@dataclass(frozen=True, slots=True)
class Statement:
    """One node's statement about one version."""

    identity: VersionIdentity
    source_ms: int  # The newest time among the source's files, since 1970; 0 if unknown.
    progress: int  # Percent of the node's build.
    ready: PartitionSet
    building: PartitionSet
    uuid: bytes  # The uuid of the node.
    # Partitions that the node has and does not serve, since its clients get them from other files; None for none.
    differing: PartitionSet | None = None

    def __post_init__(self) -> None:
        """Assert that all sets are about the partitions of the version."""
        partitions = self.identity.partitions
        assert 0 < partitions <= MAX_PARTITIONS, self.identity
        for subset in (self.ready, self.building, self.differing or self.ready):
            assert subset.partitions == partitions, subset
        assert len(self.uuid) == UUID_BYTES, self.uuid


class Named(NamedTuple):
    """A version with its name and the id of its content."""

    version: str
    wire_id: bytes


@dataclass(frozen=True, slots=True)
class DatabaseStatement:
    """One node's statement about one database."""

    active: Named | None = None  # The version that clients get.
    next: Named | None = None  # The version that clients are to get next.
    newest: str | None = None  # The newest version of this node or its source; others report their own.
    hold: str | None = None  # The version that an operator has pinned there.
    # By the digest of a version's source, the functions that a stray record has refuted; the latest last.
    refuted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The node has reported all its copies since its start, so reports of an earlier run are obsolete.
    is_complete: bool = False
    order: RollbackOrder | None = None  # The latest order that the node knows.

    @property
    def names_any(self) -> bool:
        """True if it names a version; otherwise the node has nothing of the database any more."""
        return any(version is not None for version in (self.active, self.next, self.newest, self.hold))


def encode(statement: Statement) -> list[bytes]:
    """Return a version's statement in pieces of 8,192 partitions."""
    return [_encode_piece(statement, first) for first in range(0, statement.identity.partitions, PIECE_PARTITIONS)]


def decode(pieces: Sequence[bytes]) -> Statement | None:
    """Return the statement of these pieces, in any order; None if one is unreadable or of another statement.

    Partitions of a missing piece are neither ready nor being built.
    """
    if not 0 < len(pieces) <= MAX_PIECES:
        return None
    try:
        read = sorted((_piece(_fields(piece)) for piece in pieces), key=lambda piece: piece.first)
    except _Malformed:
        return None
    first = read[0].statement
    if any((piece.statement.identity, piece.statement.uuid) != (first.identity, first.uuid) for piece in read):
        return None
    if len({piece.first for piece in read}) < len(read):
        return None
    ready, building, differing = first.ready, first.building, first.differing
    for piece in read[1:]:
        ready |= piece.statement.ready
        building |= piece.statement.building
        differing = _both(differing, piece.statement.differing)
    return Statement(first.identity, first.source_ms, first.progress, ready, building, first.uuid, differing)


def _both(first: PartitionSet | None, second: PartitionSet | None) -> PartitionSet | None:
    return first | second if first and second else first or second


def encode_database(statement: DatabaseStatement) -> bytes:
    """Return a database's statement as one entry, with the refuted functions of the latest `MAX_REFUTED` digests."""
    refuted = list(statement.refuted.items())[-MAX_REFUTED:]
    order: dict[str, Packed] = {} if statement.order is None else {"order": [*statement.order]}
    return _pack({
        "format": FORMAT,
        "active": None if statement.active is None else list(statement.active),
        "next": None if statement.next is None else list(statement.next),
        "newest": statement.newest,
        "hold": statement.hold,
        "refuted": [[bytes.fromhex(digest), *functions] for digest, functions in refuted],
        "told": statement.is_complete,
        **order,
    })  # fmt: skip


def decode_database(entry: bytes) -> DatabaseStatement | None:
    """Return the statement of this entry; None if it is unreadable."""
    try:
        return _database(_fields(entry))
    except _Malformed:
        return None


class _Malformed(Exception):
    """The data is no statement, or none that this program reads."""


class _StatementPiece(NamedTuple):
    first: int
    statement: Statement


def _encode_piece(statement: Statement, first: int) -> bytes:
    identity = statement.identity
    differing: dict[str, Packed] = {}
    if statement.differing is not None and (named := _first_runs(_of_piece(statement.differing, first))):
        differing = {"differing": _shorter(named, 0)}
    fields: dict[str, Packed] = {
        "format": FORMAT,
        "database": identity.database,
        "version": identity.version,
        "digest": bytes.fromhex(identity.digest),
        "partitions": identity.partitions,
        "function": identity.function,
        "regrouped": identity.regrouped,
        "source_ms": statement.source_ms,
        "progress": statement.progress,
        "uuid": statement.uuid,
        "first": first,
        "ready": _shorter(statement.ready, first),
        "building": _shorter(statement.building, first),
    }  # fmt: skip
    return _pack(fields | differing)


def _piece(fields: Mapping[str, Packed]) -> _StatementPiece:
    partitions, first = _whole(fields, "partitions", MAX_PARTITIONS), _whole(fields, "first", MAX_PARTITIONS)
    if not first < partitions or first % PIECE_PARTITIONS:
        raise _Malformed
    identity = VersionIdentity(
        _text(fields, "database", _NAME),
        _text(fields, "version", _NAME),
        _bytes(fields, "digest", DIGEST_BYTES).hex(),
        partitions,
        _text(fields, "function", _FUNCTION),
        _flag(fields, "regrouped"),
    )
    statement = Statement(
        identity,
        _whole(fields, "source_ms", 1 << 63),
        _whole(fields, "progress", 100),
        _partitions(fields.get("ready"), first, partitions),
        _partitions(fields.get("building"), first, partitions),
        _bytes(fields, "uuid", UUID_BYTES),
        _partitions(fields.get("differing", []), first, partitions) or None,
    )
    return _StatementPiece(first, statement)


def _database(fields: Mapping[str, Packed]) -> DatabaseStatement:
    refuted = fields.get("refuted")
    if not isinstance(refuted, list) or len(refuted) > MAX_REFUTED:
        raise _Malformed
    newest, hold = (None if fields.get(name) is None else _text(fields, name, _NAME) for name in ("newest", "hold"))
    return DatabaseStatement(
        _named(fields.get("active")),
        _named(fields.get("next")),
        newest,
        hold,
        dict(map(_refutation, refuted)),
        _flag(fields, "told"),
        _order(fields.get("order")),
    )


# Partitions


def _shorter(partitions: PartitionSet, first: int) -> Packed:
    """Return the partitions of one piece, counted from its first, as a bitmap or as runs."""
    piece = _of_piece(partitions, first)
    bitmap = piece.to_bytes().rstrip(b"\0")
    if 2 * (piece.bits & ~(piece.bits << 1)).bit_count() > len(bitmap) + 1:  # A run takes at least two bytes.
        return bitmap
    runs: list[Packed] = []
    before = 0
    for start, end in piece.runs():
        runs += [start - before, end - start]
        before = end
    return runs if len(_pack(runs)) <= len(_pack(bitmap)) else bitmap


def _first_runs(piece: PartitionSet) -> PartitionSet:
    runs = piece.runs()[:MAX_DIFFERING_RUNS]
    return PartitionSet.of(piece.partitions, (at for start, end in runs for at in range(start, end)))


def _of_piece(partitions: PartitionSet, first: int) -> PartitionSet:
    size = min(PIECE_PARTITIONS, partitions.partitions - first)
    return PartitionSet(size, partitions.bits >> first & (1 << size) - 1)


def _partitions(value: Packed, first: int, partitions: int) -> PartitionSet:
    size = min(PIECE_PARTITIONS, partitions - first)
    if isinstance(value, bytes):
        try:
            bits = PartitionSet.from_bytes(size, value).bits
        except ValueError:
            raise _Malformed from None
    # A longer list is never the shorter encoding.
    elif isinstance(value, list) and len(value) <= size // 8 + 2 and len(value) % 2 == 0:
        bits = _bits_of_runs(value, size)
    else:
        raise _Malformed
    return PartitionSet(partitions, bits << first)


def _bits_of_runs(runs: list[Packed], size: int) -> int:
    lengths = [length for length in runs if type(length) is int and 0 <= length <= size]
    if len(lengths) < len(runs) or sum(lengths) > size:
        raise _Malformed
    bits = end = 0
    for gap, length in zip(lengths[::2], lengths[1::2], strict=True):
        bits |= ((1 << length) - 1) << end + gap
        end += gap + length
    return bits


# Fields


def _pack(value: Packed) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _fields(packed: bytes) -> Mapping[str, Packed]:
    """Return the decoded map, if it is of this format. Raises _Malformed."""
    if len(packed) > MAX_PIECE_BYTES:
        raise _Malformed
    try:
        fields = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException):
        raise _Malformed from None
    if not isinstance(fields, dict) or type(fields.get("format")) is not int or fields["format"] != FORMAT:
        raise _Malformed
    return fields


def _whole(fields: Mapping[str, Packed], name: str, most: int) -> int:
    number = fields.get(name)
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= most:
        return number
    raise _Malformed


def _flag(fields: Mapping[str, Packed], name: str) -> bool:
    flag = fields.get(name)
    if isinstance(flag, bool):
        return flag
    raise _Malformed


def _text(fields: Mapping[str, Packed], name: str, form: Callable[[str], re.Match[str] | None]) -> str:
    return _of_form(fields.get(name), form)


def _of_form(text: Packed, form: Callable[[str], re.Match[str] | None]) -> str:
    if isinstance(text, str) and form(text) is not None:
        return text
    raise _Malformed


def _bytes(fields: Mapping[str, Packed], name: str, size_bytes: int) -> bytes:
    found = fields.get(name)
    if isinstance(found, bytes) and len(found) == size_bytes:
        return found
    raise _Malformed


def _named(value: Packed) -> Named | None:
    match value:
        case None:
            return None
        case [version, bytes(wire_id)] if len(wire_id) == WIRE_ID_BYTES:
            return Named(_of_form(version, _NAME), wire_id)
    raise _Malformed


def _order(value: Packed) -> RollbackOrder | None:
    match value:
        case None:
            return None
        case [int(stamp), str() | None as version] if not isinstance(stamp, bool) and 0 <= stamp <= MAX_STAMP:
            return RollbackOrder(stamp, None if version is None else _of_form(version, _NAME))
    raise _Malformed


def _refutation(value: Packed) -> tuple[str, tuple[str, ...]]:
    match value:
        case [bytes(digest), *functions] if len(digest) == DIGEST_BYTES and len(functions) <= _MAX_FUNCTIONS:
            return digest.hex(), tuple(_of_form(function, _FUNCTION) for function in functions)
    raise _Malformed
