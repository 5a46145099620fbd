"""The pages of a map, each named by the SHA-256 of its bytes.

A page is one array in MessagePack, at most 64 KiB. `docs/development/metadata.md` draws each, byte by byte:

    root    [1, format, kind of map, config id, version, meta, height, [page below, ...], [page of ids, ...]]
              page below   [first key, name, entries, bytes of its leaves, newest version in it]
              page of ids  [first config id, last config id, name]
    leaf    [2, format, [[key, version, record], ...]]
    ids     [3, format, [[config id, ids], ...]]    ids: per operation 20 bytes, 4 of its digest, 1 of its outcome
    branch  [4, format, [page below, ...]]

The pages below a root of height 0 are leaves; otherwise they are branches, and a leaf has that many above it.

A config id is (generation, sequence) as one number, 16 bits above 48. Invariant: each content has one encoding, and any
other is refused, so names can be compared instead of contents. A change of a page's meaning raises `FORMAT`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache, partial
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeGuard, TypeVar, final

import msgpack

from gossipkv.errors import NotReady, ProtocolError, other_format

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Decoded = TypeVar("_Decoded")

FORMAT: Final = 1
ROOT, LEAF, IDS, BRANCH = 1, 2, 3, 4

NAME_BYTES: Final = 32
MAX_PAGE_BYTES: Final = 64 << 10
MAX_IDS_BYTES: Final = 16 << 10
MAX_MAP_BYTES: Final = 32 << 20  # Bounds the leaves of a map: 240,000 partitions of 130 bytes.
MAX_HEIGHT: Final = 8  # More than a map of that size needs, even with the longest keys.
MAX_KEY_BYTES: Final = 255
MAX_RECORD_BYTES: Final = 8 << 10
MAX_META_BYTES: Final = 4 << 10
MAX_KIND_CHARACTERS: Final = 32

OPERATION_ID_BYTES: Final = 20
MAX_OPERATIONS: Final = 64  # Bounds one request.
MAX_JUDGED: Final = 48  # Bounds one transaction: a burst of 1,000 operations takes 21.
DIGEST_BYTES: Final = 4  # An accidental second use of an id is detected, except once in four billion.
SEQUENCE_BITS: Final = 48
MAX_CONFIG: Final = (1 << 64) - 1

_ID_ROW: Final = OPERATION_ID_BYTES + DIGEST_BYTES + 1
_MAX_MEMO: Final = 16  # Cached pages of a kind: a transaction reads pages of the last one several times.
_MAX_BRANCHES: Final = 512  # Cached branches: those of a map of 100,000 partitions, which each new root needs.


class MissingPage(NotReady):
    """The page `name` is not on this node."""

    def __init__(self, name: bytes) -> None:
        super().__init__(f"this node does not have page {name.hex()[:16]}", {"page": name})
        self.name = name


class OperationOutcome(IntEnum):
    """The outcome of an operation, with its number in pages of ids."""

    UNKNOWN = 0  # Never written: the operation may have been done, or may still be.
    DONE = 1
    CONFLICT = 2
    REFUSED = 3


_version = itemgetter(1)


class MapEntry(NamedTuple):
    """A key of a map, with its record and version."""

    key: bytes
    version: int  # The config id of the last change.
    record: bytes


class PageReference(NamedTuple):
    """A leaf or a branch as referenced by the page above it: keys from `first` up to the next reference's."""

    first: bytes
    name: bytes
    entries: int
    size_bytes: int  # The bytes of the leaf, or of all leaves under the branch.
    newest: int  # The highest version under it.

    @classmethod
    def of_leaf(cls, entries: Sequence[MapEntry], page: bytes, name: bytes) -> PageReference:
        """Return the reference of a leaf."""
        return cls(entries[0].key, name, len(entries), len(page), max(map(_version, entries)))

    @classmethod
    def of_branch(cls, below: Sequence[PageReference], name: bytes) -> PageReference:
        """Return the reference of a branch."""
        entries, size_bytes = sum(page.entries for page in below), sum(page.size_bytes for page in below)
        return cls(below[0].first, name, entries, size_bytes, max(page.newest for page in below))


class IdsReference(NamedTuple):
    """A page of ids as referenced by its root."""

    first: int  # A config id, as is `last`.
    last: int
    name: bytes


class Root(NamedTuple):
    """A map without the content of its other pages."""

    kind: str
    config: int  # The config id of the transaction that made this root.
    version: int  # The config id of the last operation that touched the whole map.
    meta: bytes
    height: int  # The number of branches above each leaf.
    below: tuple[PageReference, ...]
    ids: tuple[IdsReference, ...]


class KeptOutcome(NamedTuple):
    """The stored outcome of a judged operation."""

    outcome: OperationOutcome
    digest: bytes  # The digest of the operation.


class Judged(NamedTuple):
    """The operations that one transaction judged: id, digest and outcome of each."""

    config: int
    rows: bytes

    @classmethod
    def of(cls, config: int, kept: Mapping[bytes, KeptOutcome]) -> Judged:
        """Encode the operations in their order."""
        rows = (operation + digest + bytes((outcome,)) for operation, (outcome, digest) in kept.items())
        return cls(config, b"".join(rows))

    @property
    def kept(self) -> dict[bytes, KeptOutcome]:
        """The operations by their ids."""
        rows = (self.rows[at : at + _ID_ROW] for at in range(0, len(self.rows), _ID_ROW))
        return {
            row[:OPERATION_ID_BYTES]: KeptOutcome(OperationOutcome(row[-1]), row[OPERATION_ID_BYTES:-1]) for row in rows
        }


def config_id(generation: int, sequence: int) -> int:
    """Return (generation, sequence) as one number."""
    assert 0 <= generation < 1 << 64 - SEQUENCE_BITS, generation
    assert 0 <= sequence < 1 << SEQUENCE_BITS, sequence
    return generation << SEQUENCE_BITS | sequence


def generation_of(config: int) -> int:
    """Return the generation of a config id."""
    return config >> SEQUENCE_BITS


def sequence_of(config: int) -> int:
    """Return the sequence of a config id."""
    return config & (1 << SEQUENCE_BITS) - 1


def name_of(page: bytes) -> bytes:
    """Return the name of a page: the SHA-256 of its bytes."""
    return sha256(page).digest()


def encode_root(root: Root) -> bytes:
    """Return the bytes of a root."""
    return pack((ROOT, FORMAT, *root))


def encode_leaf(entries: Sequence[MapEntry]) -> bytes:
    """Return the bytes of a leaf."""
    return pack((LEAF, FORMAT, entries))


def encode_branch(below: Sequence[PageReference]) -> bytes:
    """Return the bytes of a branch."""
    return pack((BRANCH, FORMAT, below))


def encode_ids(rows: Sequence[Judged]) -> bytes:
    """Return the bytes of a page of ids."""
    return pack((IDS, FORMAT, rows))


@final
class Decoder(Generic[_Decoded]):
    """The decoder of one kind of pages. It keeps recently decoded or made ones by name: their content never changes."""

    def __init__(self, decode: Callable[[bytes, bytes], _Decoded], most: int = _MAX_MEMO) -> None:
        def make(name: bytes) -> list[tuple[bytes, _Decoded]]:
            del name
            return []

        self._decode = decode
        self._cell = lru_cache(maxsize=most)(make)  # Threads may read at the same time.

    def __call__(self, name: bytes, page: bytes) -> _Decoded:
        """Read the page of a name. Raises as `decode_root`."""
        cell = self._cell(name)
        for kept, decoded in cell:
            if kept == page:
                return decoded
        decoded = self._decode(name, page)
        cell[:] = [(page, decoded)]
        return decoded

    def keep(self, decoded: _Decoded, page: bytes) -> bytes:
        """Return the name of a page that was made here, and keep its content: nobody needs to decode it."""
        name = name_of(page)
        self._cell(name)[:] = [(page, decoded)]
        return name


@Decoder
def decode_root(name: bytes, page: bytes) -> Root:
    """Read a root.

    Raises:
        ProtocolError: the bytes do not have that name, or are no root.
        UnsupportedFormat: the format is another one.
    """
    kind, config, version, meta, height, below, ids = _fields(ROOT, 7, name, page)
    if not isinstance(kind, str) or len(kind) > MAX_KIND_CHARACTERS or not isinstance(meta, bytes):
        raise ProtocolError("a root must begin with the kind of its map", {"got": repr(kind)[:80]})
    if not is_whole(config) or not is_whole(version, config) or len(meta) > MAX_META_BYTES:
        raise ProtocolError("a root must have a config id, a version that is not newer, and a small meta")
    if not is_whole(height, MAX_HEIGHT) or (height and not below):
        raise ProtocolError(f"a root must have a height of at most {MAX_HEIGHT}, or 0 without pages below it")
    root = Root(kind, config, version, meta, height, _references_of(below), _ids_of(ids, config))
    if any(page.newest > config for page in root.below) or sum(page.size_bytes for page in root.below) > MAX_MAP_BYTES:
        raise ProtocolError(f"a root must have no newer version below it, and at most {MAX_MAP_BYTES} bytes of leaves")
    names = {*(page.name for page in root.below), *(page.name for page in root.ids)}
    if len(names) < len(root.below) + len(root.ids):
        raise ProtocolError("a root names a page twice")
    return root


@Decoder
def decode_leaf(name: bytes, page: bytes) -> tuple[MapEntry, ...]:
    """Read the entries of a leaf; raises as `decode_root`."""
    (rows,) = _fields(LEAF, 1, name, page)
    entries = []
    for row in _rows(rows, 3):
        key, version, record = row
        if not isinstance(key, bytes) or not isinstance(record, bytes) or not is_whole(version):
            raise ProtocolError("an entry must be [key, version, record]", {"got": repr(row)[:80]})
        if len(key) > MAX_KEY_BYTES or len(record) > MAX_RECORD_BYTES:
            raise ProtocolError(f"an entry has a key of {len(key)} bytes and a record of {len(record)} bytes")
        entries.append(MapEntry(key, version, record))
    if not entries or any(before.key >= after.key for before, after in pairwise(entries)):
        raise ProtocolError("the keys of a leaf do not ascend")
    return tuple(entries)


@partial(Decoder, most=_MAX_BRANCHES)
def decode_branch(name: bytes, page: bytes) -> tuple[PageReference, ...]:
    """Read the references of a branch; raises as `decode_root`."""
    (rows,) = _fields(BRANCH, 1, name, page)
    below = _references_of(rows)
    if not below:
        raise ProtocolError("a branch must have pages below it")
    return below


@Decoder
def decode_ids(name: bytes, page: bytes) -> tuple[Judged, ...]:
    """Read a page of ids; raises as `decode_root`."""
    (rows,) = _fields(IDS, 1, name, page)
    judged = []
    for row in _rows(rows, 2):
        config, outcomes = row
        if not is_whole(config) or not isinstance(outcomes, bytes) or not _is_rows(outcomes):
            raise ProtocolError("a row of ids must be [config id, ids, digests and outcomes]", {"got": repr(row)[:80]})
        judged.append(Judged(config, outcomes))
    if (
        not judged
        or len(page) > MAX_IDS_BYTES
        or any(before.config >= after.config for before, after in pairwise(judged))
    ):
        raise ProtocolError("a page of ids is empty, too large, or not in the order of config ids")
    return tuple(judged)


def last_judged(page: bytes) -> Judged:
    """Return the last row of a page of ids, without checking the others. Raises ProtocolError: there is none."""
    match unpack(page, MAX_IDS_BYTES):
        case (_, _, (*_, (config, bytes(rows)))) if is_whole(config) and _is_rows(rows):
            return Judged(config, rows)
    raise ProtocolError("a page of ids must end with [config id, ids, digests and outcomes]")


def pack(value: object) -> bytes:
    """Encode a value in its only encoding."""
    data: bytes = msgpack.packb(value)
    return data


def unpack(data: bytes, most_bytes: int) -> object:
    """Decode the result of `pack`, with arrays as tuples.

    Raises:
        ProtocolError: the data is larger than `most_bytes`, no MessagePack, or not in its only encoding.
    """
    if len(data) > most_bytes:
        raise ProtocolError(f"the data has {len(data)} bytes, at most {most_bytes} are allowed")
    try:
        value: object = msgpack.unpackb(data, use_list=False)
        if pack(value) == data:
            return value
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"the bytes are not MessagePack: {error}") from None
    raise ProtocolError("the bytes are not in the canonical form")


def _fields(kind: int, number: int, name: bytes, page: bytes) -> tuple[object, ...]:
    if len(page) > MAX_PAGE_BYTES:
        raise ProtocolError(f"a page has {len(page)} bytes, at most {MAX_PAGE_BYTES} are allowed")
    if name_of(page) != name:
        raise ProtocolError(f"the bytes of a page do not match its name {name.hex()[:16]}")
    match unpack(page, MAX_PAGE_BYTES):
        case (int(found), int(made), *fields) if type(made) is int and type(found) is int:
            if made != FORMAT:
                raise other_format(f"page {name.hex()[:16]}", made, FORMAT)
            if (found, len(fields)) == (kind, number):
                return tuple(fields)
    raise ProtocolError(f"page {name.hex()[:16]} is not of kind {kind}")


def _rows(value: object, width: int) -> tuple[tuple[object, ...], ...]:
    if isinstance(value, tuple) and all(isinstance(row, tuple) and len(row) == width for row in value):
        return value
    raise ProtocolError(f"a page must have rows of {width} fields", {"got": repr(value)[:80]})


def _references_of(value: object) -> tuple[PageReference, ...]:
    below = []
    for first, name, entries, size_bytes, newest in _rows(value, 5):
        if not isinstance(first, bytes) or not _is_name(name) or len(first) > MAX_KEY_BYTES:
            raise ProtocolError("a leaf or a branch must be named by its first key and 32 bytes")
        if not is_whole(entries) or not is_whole(size_bytes, MAX_MAP_BYTES) or not is_whole(newest):
            raise ProtocolError("a leaf or a branch must have a number of entries, a size and a newest version")
        below.append(PageReference(first, name, entries, size_bytes, newest))
    if any(before.first >= after.first for before, after in pairwise(below)):
        raise ProtocolError("the pages below a root or a branch do not ascend")
    return tuple(below)


def _ids_of(value: object, config: int) -> tuple[IdsReference, ...]:
    pages: list[IdsReference] = []
    for first, last, name in _rows(value, 3):
        if not _is_name(name) or not is_whole(last, config) or not is_whole(first, last):
            raise ProtocolError("a page of ids must be named by two config ids and 32 bytes")
        pages.append(IdsReference(first, last, name))
    if any(before.last >= after.first for before, after in pairwise(pages)):
        raise ProtocolError("the pages of ids of a root do not ascend")
    return tuple(pages)


def _is_rows(rows: bytes) -> bool:
    """Return True if these are operations with their outcomes, each once."""
    number, rest = divmod(len(rows), _ID_ROW)
    if rest or not 1 <= number <= MAX_JUDGED:
        return False
    outcomes = rows[_ID_ROW - 1 :: _ID_ROW]
    ids = {rows[at : at + OPERATION_ID_BYTES] for at in range(0, len(rows), _ID_ROW)}
    return len(ids) == number and min(outcomes) >= OperationOutcome.DONE and max(outcomes) <= OperationOutcome.REFUSED


def is_whole(value: object, most: int = MAX_CONFIG) -> TypeGuard[int]:
    """Return True for a number from 0 to `most`; bools do not count, since they have other bytes."""
    return type(value) is int and 0 <= value <= most


def _is_name(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and len(value) == NAME_BYTES
