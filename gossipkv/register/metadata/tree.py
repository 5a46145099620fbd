"""An ordered map on immutable pages: a root above leaves, and above the ids of judged operations.

A `MapTree` reads one root. An `Edit` makes the next one, and reads and writes only the leaves that it changes. A server
checks an edit of another node by `check_change`: it repeats the edit from the difference, and requires equal bytes. So
the rules for borders, sizes, versions and ids exist once. Invariants of every root that an edit made:

* A leaf has at least a quarter of a page, unless it is the only one. A smaller leaf joins the one before it (the first
  leaf: the one after it); a larger one than a page is cut into pieces of about three quarters of a page.
* Equal edits of equal roots give equal bytes.
* An outcome is in one page of ids, and is kept for 4,096 sequences. An operation based on config id b is judged by b +
  64, so looking it up reads few pages. A root has room for 500 leaves; 100,000 entries of 130 bytes take 300.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import LimitExceeded, ProtocolError
from gossipkv.register.metadata.pages import (
    MAX_CONFIG,
    MAX_IDS_BYTES,
    MAX_JUDGED,
    MAX_KEY_BYTES,
    MAX_META_BYTES,
    MAX_PAGE_BYTES,
    MAX_RECORD_BYTES,
    OPERATION_ID_BYTES,
    IdsReference,
    Judged,
    KeptOutcome,
    LeafReference,
    MapEntry,
    OperationOutcome,
    Root,
    decode_ids,
    decode_leaf,
    decode_root,
    encode_ids,
    encode_leaf,
    encode_root,
    keep_ids,
    keep_leaf,
    last_judged,
    name_of,
    pack,
    sequence_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    Read = Callable[[bytes], bytes]  # Maps a page's name to its bytes; raises MissingPage.

LIFE: Final = 64  # Sequences after its base in which an operation can be judged.
KEPT: Final = 4096  # Sequences for which its outcome is kept.

_MIN_BYTES: Final = MAX_PAGE_BYTES // 4
_PIECE_BYTES: Final = MAX_PAGE_BYTES * 3 // 4
# Share of a root for its pages of ids: 13 transactions of 48 rows fill a page, so 4,096 take 316 of 53 bytes.
_IDS_SHARE_BYTES: Final = 20 << 10

_key = itemgetter(0)
_version = itemgetter(1)


class EntryRules(Protocol):
    """The rules of the entries of a map, given its meta."""

    def check_entry(self, key: bytes, record: bytes) -> None:
        """Raise ProtocolError if a record may not stand at that key."""

    def check_whole(self, entries: int, first: bytes | None) -> None:
        """Raise ProtocolError if the number of entries or the first key is wrong."""


class MapKind(NamedTuple):
    """A kind of map: its name, which each root has, and its rules."""

    name: str
    rules: Callable[[bytes], EntryRules]  # Called with the meta; raises ProtocolError.


class ChangedPages(NamedTuple):
    """The pages that an edit made."""

    root: bytes  # The name of the root's page.
    pages: dict[bytes, bytes]  # Pages that the root before names are left out.


@final
class MapTree:
    """A view of a map at one head, with a cache of its pages; use it for that head alone."""

    __slots__ = ("_firsts", "_ids", "_leaves", "_read", "root")

    def __init__(self, read: Read, root: Root) -> None:
        self.root = root
        self._read = read
        self._firsts = [leaf.first for leaf in root.leaves]
        self._leaves: dict[int, tuple[MapEntry, ...]] = {}
        self._ids: dict[bytes, tuple[Judged, ...]] = {}

    @classmethod
    def opened(cls, read: Read, name: bytes, kind: str) -> MapTree:
        """Open the tree under a root.

        Raises:
            MissingPage: `read` raised it.
            ProtocolError, UnsupportedFormat: the page is no root of that name, or of a map of another kind.
        """
        root = decode_root(name, read(name))
        if root.kind != kind:
            raise ProtocolError(f"a map of {root.kind!r}, where one of {kind!r} was expected")
        return cls(read, root)

    @classmethod
    def empty(cls, kind: str) -> MapTree:
        """Return a tree without entries, which was never written: the base of a first edit."""
        return cls(_read_nothing, Root(kind, 0, 0, b"", (), ()))

    def __len__(self) -> int:
        return sum(leaf.entries for leaf in self.root.leaves)

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key; raises as `opened`, as all reads do."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None
        entries = self._leaves[at] = self.leaf(at)
        place = bisect_left(entries, key, key=_key)
        return entries[place] if place < len(entries) and entries[place].key == key else None

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[MapEntry]:
        """Yield entries from `start` up to before `end`, in order."""
        for at in range(self.leaf_of(start), len(self._firsts)):
            for entry in self.leaf(at):
                if end is not None and entry.key >= end:
                    return
                if entry.key >= start:
                    yield entry

    def outcome(self, operation: bytes, base: int) -> OperationOutcome | None:
        """Return the outcome of an operation of that base; None if no kept transaction judged it."""
        kept = self.kept(operation, base)
        return None if kept is None else kept.outcome

    def kept(self, operation: bytes, base: int) -> KeptOutcome | None:
        """Return the stored outcome of an operation of that base; None if no kept transaction judged it.

        An operation is judged after its base. Earlier rows, also from before a force, may have another operation of its
        id.
        """
        oldest = sequence_of(base) - LIFE
        for page in reversed(self.root.ids):
            if sequence_of(page.last) <= oldest:
                break
            if page.first > base + LIFE:
                continue
            if page.name not in self._ids:
                self._ids[page.name] = self.judged(page)
            rows = self._ids[page.name]
            for row in reversed(rows[bisect_right(rows, oldest, key=_sequence) :]):
                is_there = row.config <= base + LIFE and operation in row.rows  # Skip unpacking a row without the id.
                found = row.kept.get(operation) if is_there else None
                if found is not None:
                    return found
        return None

    def judgement(self, operation: bytes) -> tuple[int, KeptOutcome] | None:
        """Return the config id at which an operation of any base was judged, and its outcome; None if not."""
        for page in reversed(self.root.ids):
            for row in self.judged(page):
                found = row.kept.get(operation) if operation in row.rows else None
                if found is not None:
                    return row.config, found
        return None

    def edit(self, config: int) -> Edit:
        """Begin the transaction that makes the root of that config id."""
        return Edit(self, config)

    def leaf_of(self, key: bytes) -> int:
        """Return the number of the leaf that has a key, or would have it."""
        return max(0, bisect_right(self._firsts, key) - 1)

    def leaf(self, at: int) -> tuple[MapEntry, ...]:
        """Read a leaf, and compare it with its root's reference."""
        if at in self._leaves:
            return self._leaves[at]
        reference = self.root.leaves[at]
        page = self._read(reference.name)
        entries = decode_leaf(reference.name, page)
        end = self._firsts[at + 1] if at + 1 < len(self._firsts) else None
        if _refer(entries, page, reference.name) != reference or (end is not None and entries[-1].key >= end):
            raise ProtocolError(f"leaf {reference.name.hex()[:16]} is not what its root says of it")
        return entries

    def page(self, name: bytes) -> bytes:
        """Return the bytes of a page."""
        return self._read(name)

    def judged(self, reference: IdsReference) -> tuple[Judged, ...]:
        """Read a page of ids, and compare it with its root's reference."""
        rows = decode_ids(reference.name, self._read(reference.name))
        if (rows[0].config, rows[-1].config) != reference[:2]:
            raise ProtocolError(f"page of ids {reference.name.hex()[:16]} is not what its root says of it")
        return rows


@final
class Edit:
    """Changes to a tree, all of one config id; reads show the changed map."""

    __slots__ = ("_kept", "_puts", "_tree", "config", "meta", "version")

    def __init__(self, tree: MapTree, config: int) -> None:
        """Requires: a sequence above that of the transaction which made the tree."""
        assert config <= MAX_CONFIG, config
        assert sequence_of(config) > sequence_of(tree.root.config), (config, tree.root.config)
        self.config = config
        self.meta = tree.root.meta
        self.version = tree.root.version
        self._tree = tree
        self._puts: dict[bytes, bytes | None] = {}
        self._kept: dict[bytes, KeptOutcome] = {}

    @property
    def is_empty(self) -> bool:
        """True if no key and not the whole map was touched; outcomes may have been recorded."""
        return not self._puts and self.version != self.config

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key."""
        if key not in self._puts:
            return self._tree.get(key)
        record = self._puts[key]
        return None if record is None else MapEntry(key, self.config, record)

    def next_key(self, key: bytes) -> bytes | None:
        """Return the key of the next entry after `key`."""
        put = min((other for other, record in self._puts.items() if other > key and record is not None), default=None)
        keys = (entry.key for entry in self._tree.scan(key + b"\0", put) if entry.key not in self._puts)
        return next(keys, put)

    def put(self, key: bytes, record: bytes) -> None:
        """Set the entry at a key.

        Raises:
            LimitExceeded: the key or the record is too large.
        """
        if not fits(key, record):
            raise LimitExceeded(
                f"an entry with {len(key)} bytes of key and {len(record)} of record, where at most {MAX_KEY_BYTES} "
                f"and {MAX_RECORD_BYTES} are allowed"
            )
        self._puts[key] = record

    def delete(self, key: bytes) -> None:
        """Delete the entry at a key, if any."""
        if self._tree.get(key) is None:
            self._puts.pop(key, None)
        else:
            self._puts[key] = None

    def set_meta(self, meta: bytes) -> None:
        """Set the meta, which raises the version of the whole map; raises LimitExceeded."""
        if len(meta) > MAX_META_BYTES:
            raise LimitExceeded(f"{len(meta)} bytes of meta, where at most {MAX_META_BYTES} are allowed")
        self.meta = meta
        self.version = self.config

    def kept(self, operation: bytes, base: int) -> KeptOutcome | None:
        """Return the stored outcome of an operation, of this edit or an earlier one."""
        return self._kept.get(operation) or self._tree.kept(operation, base)

    def record(self, operation: bytes, outcome: OperationOutcome, digest: bytes) -> None:
        """Store an operation's outcome and digest."""
        assert len(operation) == OPERATION_ID_BYTES, operation
        assert operation not in self._kept, operation
        assert outcome is not OperationOutcome.UNKNOWN, operation
        self._kept[operation] = KeptOutcome(outcome, digest)
        assert len(self._kept) <= MAX_JUDGED, len(self._kept)

    def finish(self) -> ChangedPages:
        """Return the new pages.

        Raises:
            LimitExceeded: the map has outgrown its root.
        """
        before = self._tree.root
        pages: dict[bytes, bytes] = {}
        leaves = self._leaves(pages)
        ids = self._ids(pages)
        root = Root(before.kind, self.config, self.version, self.meta, leaves, ids)
        page = encode_root(root)
        size_bytes = max(len(encode_root(root._replace(ids=()))) + _IDS_SHARE_BYTES, len(page))
        if size_bytes > MAX_PAGE_BYTES:
            raise LimitExceeded(
                f"a map of {sum(leaf.entries for leaf in leaves)} entries in {len(leaves)} leaves needs {size_bytes} "
                f"bytes of root, ids of operations included, where {MAX_PAGE_BYTES} are allowed: it cannot grow"
            )
        for old_name in before.names:  # A leaf may have joined a neighbour and been cut off again.
            pages.pop(old_name, None)
        name = name_of(page)
        pages[name] = page
        return ChangedPages(name, pages)

    def _leaves(self, pages: dict[bytes, bytes]) -> tuple[LeafReference, ...]:
        """Write the leaves with a touched key, and their neighbours if they join."""
        touched: dict[int, dict[bytes, MapEntry | None]] = {}
        for key in sorted(self._puts):
            touched.setdefault(self._tree.leaf_of(key), {})[key] = self.get(key)
        joined: list[LeafReference | _NewLeaf] = []
        for at in range(max(1, len(self._tree.root.leaves))):
            if at not in touched:
                leaf: LeafReference | _NewLeaf | None = self._tree.root.leaves[at] if self._tree.root.leaves else None
            else:
                before = self._tree.leaf(at) if self._tree.root.leaves else ()
                entries = [entry for entry in before if entry.key not in touched[at]]
                entries += [entry for entry in touched[at].values() if entry is not None]
                leaf = _NewLeaf.of(sorted(entries))
            if leaf is None or (isinstance(leaf, _NewLeaf) and not leaf.entries):
                continue
            if joined and min(joined[-1].size_bytes, leaf.size_bytes) < _MIN_BYTES:
                leaf = _NewLeaf.of([*self._entries(joined.pop()), *self._entries(leaf)])
            joined.append(leaf)
        return tuple(
            reference
            for leaf in joined
            for reference in ([leaf] if isinstance(leaf, LeafReference) else leaf.write(pages))
        )

    def _entries(self, leaf: LeafReference | _NewLeaf) -> Sequence[MapEntry]:
        return leaf.entries if isinstance(leaf, _NewLeaf) else self._tree.leaf(self._tree.leaf_of(leaf.first))

    def _ids(self, pages: dict[bytes, bytes]) -> tuple[IdsReference, ...]:
        """Drop old pages of ids; rewrite the last page, or append a new one."""
        oldest = sequence_of(self.config) - KEPT
        kept = [page for page in self._tree.root.ids if sequence_of(page.last) >= oldest]
        if self._kept:
            row = Judged.of(self.config, self._kept)
            rows = [*self._tree.judged(kept[-1]), row] if kept else [row]
            page = encode_ids(rows)
            if len(page) > MAX_IDS_BYTES:
                rows, page = [row], encode_ids([row])
            elif kept:
                kept.pop()
            name = keep_ids(rows, page)
            pages[name] = page
            kept.append(IdsReference(rows[0].config, self.config, name))
        return tuple(kept)


class _NewLeaf(NamedTuple):
    entries: list[MapEntry]
    page: bytes

    @classmethod
    def of(cls, entries: list[MapEntry]) -> _NewLeaf:
        return cls(entries, encode_leaf(entries))

    @property
    def size_bytes(self) -> int:
        return len(self.page)

    def write(self, pages: dict[bytes, bytes]) -> list[LeafReference]:
        """Return the references of its page, or of several if it is too large for one."""
        pieces = [self] if self.size_bytes <= MAX_PAGE_BYTES else [_NewLeaf.of(piece) for piece in _cut(self.entries)]
        references = [_refer(piece.entries, piece.page, keep_leaf(piece.entries, piece.page)) for piece in pieces]
        pages.update((reference.name, piece.page) for reference, piece in zip(references, pieces, strict=True))
        return references


def fits(key: bytes, record: bytes) -> bool:
    """Return True if an entry is within the limits."""
    return len(key) <= MAX_KEY_BYTES and len(record) <= MAX_RECORD_BYTES


def check_change(read: Read, kind: MapKind, before: bytes | None, changed: ChangedPages, config: int) -> None:
    """Check that another node's change is an edit of the root `before` (None: of an empty map), with that config id.

    Only the changed leaves of `before` are read.

    Raises:
        MissingPage: one of them is not here.
        ProtocolError, UnsupportedFormat: it is no such edit.
    """
    old = MapTree.empty(kind.name) if before is None else MapTree.opened(read, before, kind.name)
    new = MapTree.opened(lambda name: changed.pages.get(name) or read(name), changed.root, kind.name)
    if new.root.config != config or sequence_of(config) <= sequence_of(old.root.config):
        raise ProtocolError(
            f"a root of config id {new.root.config}, where {config} above {old.root.config} was expected"
        )
    entries = _entries_beside(new, old)
    try:
        again = _replayed(old, new, entries).finish()
    except LimitExceeded as error:
        raise ProtocolError(str(error)) from error
    if again != changed:
        raise ProtocolError("a change that is not made of its root as changes are")
    rules = kind.rules(new.root.meta)
    is_anew = new.root.meta != old.root.meta
    for entry in new.scan() if is_anew else entries.values():
        if is_anew or entry.version == config:
            rules.check_entry(entry.key, entry.record)
    rules.check_whole(len(new), new.root.leaves[0].first if new.root.leaves else None)


def check_all(read: Read, kind: MapKind, name: bytes, only: Collection[bytes] | None = None) -> None:
    """Check that a root and its pages fit together: all of them, or `only` these, if others were checked before.

    Raises as `check_change`.
    """
    tree = MapTree.opened(read, name, kind.name)
    rules = kind.rules(tree.root.meta)
    for at, leaf in enumerate(tree.root.leaves):
        if only is None or leaf.name in only:
            for entry in tree.leaf(at):
                rules.check_entry(entry.key, entry.record)
    rules.check_whole(len(tree), tree.root.leaves[0].first if tree.root.leaves else None)
    for page in tree.root.ids:
        if only is None or page.name in only:
            tree.judged(page)


def pages_of(name: bytes, root: bytes) -> tuple[bytes, ...]:
    """Return the names of all pages of a tree, its root's first; raises as `decode_root`."""
    return (name, *decode_root(name, root).names)


def _entries_beside(tree: MapTree, other: MapTree) -> dict[bytes, MapEntry]:
    """Return the entries of leaves that `other` lacks."""
    unchanged = set(other.root.leaves)
    places = (at for at, leaf in enumerate(tree.root.leaves) if leaf not in unchanged)
    return {entry.key: entry for at in places for entry in tree.leaf(at)}


def _replayed(old: MapTree, new: MapTree, entries: dict[bytes, MapEntry]) -> Edit:
    """Return the edit that leads from one tree to another whose changed leaves have these entries."""
    edit = old.edit(new.root.config)
    for key, entry in entries.items():
        if entry.version == edit.config:
            edit.put(key, entry.record)
    for key in _entries_beside(old, new).keys() - entries.keys():
        edit.delete(key)
    if new.root.version == edit.config:
        edit.set_meta(new.root.meta)
    if new.root.ids and new.root.ids[-1].last == edit.config:
        for operation, kept in last_judged(new.page(new.root.ids[-1].name)).kept.items():
            edit.record(operation, *kept)
    return edit


def _sequence(row: Judged) -> int:
    return sequence_of(row.config)


def _refer(entries: Sequence[MapEntry], page: bytes, name: bytes) -> LeafReference:
    return LeafReference(entries[0].key, name, len(entries), len(page), max(map(_version, entries)))


def _cut(entries: list[MapEntry]) -> Iterator[list[MapEntry]]:
    """Yield pieces of similar size, none larger than a page."""
    sizes = [len(pack(entry)) for entry in entries]
    sum_bytes = sum(sizes)
    pieces = -(-sum_bytes // _PIECE_BYTES)
    start, number, filled = 0, 1, 0
    for at, size_bytes in enumerate(sizes):
        if filled * pieces >= sum_bytes * number:
            yield entries[start:at]
            start, number = at, number + 1
        filled += size_bytes
    yield entries[start:]


def _read_nothing(name: bytes) -> bytes:
    raise AssertionError(f"an empty tree has no page {name.hex()}")
