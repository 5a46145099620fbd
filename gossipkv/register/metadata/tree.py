"""An ordered map on immutable pages: a root above branches and leaves, and above the ids of judged operations.

A `MapTree` reads one root. An `Edit` makes the next one. It writes a path of small pages to each leaf that it changes,
so its size hardly depends on that of the map. A server checks an edit of another node by `check_change`: it repeats the
edit from the difference, and requires equal bytes. So the rules for borders, sizes, versions and ids exist once:

* A changed leaf or branch above 2 KiB is cut into pieces of about three quarters of that, of one item or more. One
  under a quarter joins the page before it under the same branch or root (the first page: the one after it).
* References above 2 KiB in the root go to branches, one level higher. A single branch there is replaced by its content.
* Equal edits of equal roots give equal bytes.
* An outcome is in one page of ids, and is kept for 4,096 sequences. An operation based on config id b is judged by b +
  64, so looking it up reads few pages. Each transaction rewrites the last page of ids, which stays under 1 KiB; from
  there rows go to the page before, which grows up to 16 KiB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import LimitExceeded, ProtocolError
from gossipkv.register.metadata.pages import (
    MAX_CONFIG,
    MAX_IDS_BYTES,
    MAX_JUDGED,
    MAX_KEY_BYTES,
    MAX_MAP_BYTES,
    MAX_META_BYTES,
    MAX_RECORD_BYTES,
    OPERATION_ID_BYTES,
    SEQUENCE_BITS,
    IdsReference,
    Judged,
    KeptOutcome,
    MapEntry,
    MissingPage,
    OperationOutcome,
    PageReference,
    Root,
    decode_branch,
    decode_ids,
    decode_leaf,
    decode_root,
    encode_branch,
    encode_ids,
    encode_leaf,
    encode_root,
    last_judged,
    pack,
    sequence_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    Read = Callable[[bytes], bytes]  # Maps a page's name to its bytes; raises MissingPage.
    _Items = Sequence[MapEntry | PageReference]  # The content of a leaf, or of a branch.

LIFE: Final = 64  # Sequences after its base in which an operation can be judged.
KEPT: Final = 4096  # Sequences for which its outcome is kept.

_CUT_BYTES: Final = 2 << 10  # A larger leaf or branch is cut: a change writes one of each level.
_MIN_BYTES: Final = _CUT_BYTES // 4
_PIECE_BYTES: Final = _CUT_BYTES * 3 // 4
_LAST_IDS_BYTES: Final = 1 << 10  # Every transaction writes the last page of ids.
_MAX_KEPT: Final = 16  # Maps whose leaves stay listed: a list takes a read of each branch.
_MAX_NAMES: Final = 1 << 17  # Pages of one map: more than one of 32 MiB has that edits made.

_SEQUENCE: Final = (1 << SEQUENCE_BITS) - 1  # The bits of `sequence_of`.

_key = itemgetter(0)


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

    __slots__ = ("_all", "_branches", "_entries", "_firsts", "_ids", "_leaves", "_read", "root")

    def __init__(self, read: Read, root: Root) -> None:
        self.root = root
        self._read = read
        self._all: tuple[PageReference, ...] | None = None
        self._firsts: list[bytes] = []
        self._branches: dict[PageReference, tuple[PageReference, ...]] = {}
        self._leaves: dict[PageReference, tuple[MapEntry, ...]] = {}
        self._entries: tuple[PageReference, tuple[MapEntry, ...]] | None = None  # The leaf that was read last.
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
            raise ProtocolError(f"the map is of kind {root.kind!r}, expected {kind!r}")
        return cls(read, root)

    @classmethod
    def empty(cls, kind: str) -> MapTree:
        """Return a tree without entries, which was never written: the base of a first edit."""
        return cls(_read_nothing, Root(kind, 0, 0, b"", 0, (), ()))

    def __len__(self) -> int:
        return sum(page.entries for page in self.root.below)

    @property
    def leaves(self) -> tuple[PageReference, ...]:
        """The references of all leaves, in order; raises as `opened`, as all reads do."""
        if self._all is None:
            kept = _leaves_kept(self.root.below, self.root.height)
            if not kept:
                references = tuple(reference for reference, _ in self._leaves_from(b""))
                kept[:] = [(references, [reference.first for reference in references])]
            self._all, self._firsts = kept[0]
        return self._all

    def _leaves_from(self, key: bytes) -> Iterator[tuple[PageReference, bytes | None]]:
        """Yield the leaves from the one that has a key, or would have it, each with the first key of the next."""
        return self._leaves_below(self.root.below, self.root.height, key, None)

    def _leaves_below(
        self, below: Sequence[PageReference], height: int, key: bytes, end: bytes | None
    ) -> Iterator[tuple[PageReference, bytes | None]]:
        for at in range(max(0, bisect_right(below, key, key=_key) - 1), len(below)):
            following = below[at + 1].first if at + 1 < len(below) else end
            if not height:
                yield below[at], following
                continue
            branch = self.branch(below[at])
            if following is not None and branch[-1].first >= following:
                raise ProtocolError("the leaves of a map do not ascend")
            yield from self._leaves_below(branch, height - 1, key, following)

    def branch(self, reference: PageReference) -> tuple[PageReference, ...]:
        """Read a branch, and compare it with its reference."""
        if (below := self._branches.get(reference)) is None:
            below = decode_branch(reference.name, self._read(reference.name))
            if PageReference.of_branch(below, reference.name) != reference:
                raise ProtocolError(f"branch {reference.name.hex()[:16]} does not match the page above it")
            self._branches[reference] = below
        return below

    def get(self, key: bytes) -> MapEntry | None:
        """Return the entry at a key."""
        entries = self.leaf_with(key)
        place = bisect_left(entries, key, key=_key)
        return entries[place] if place < len(entries) and entries[place].key == key else None

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[MapEntry]:
        """Yield entries from `start` up to before `end`, in order."""
        for reference, following in self._leaves_from(start):
            for entry in self._leaf(reference, following):
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
            for row in reversed(self.judged(page)):
                if row.config & _SEQUENCE <= oldest:
                    break
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
        return max(0, bisect_right(self._firsts, key) - 1) if self.leaves else 0

    def leaf(self, at: int) -> tuple[MapEntry, ...]:
        """Read the leaf of a number, and compare it with its reference."""
        return self._leaf(self.leaves[at], self._firsts[at + 1] if at + 1 < len(self._firsts) else None)

    def leaf_with(self, key: bytes) -> tuple[MapEntry, ...]:
        """Read the leaf that has a key, or would have it, by one branch of each level; empty if the map is."""
        for reference, following in self._leaves_from(key):
            entries = self._leaves[reference] = self._leaf(reference, following)
            return entries
        return ()

    def _leaf(self, reference: PageReference, following: bytes | None) -> tuple[MapEntry, ...]:
        if (entries := self._leaves.get(reference)) is None:
            entries = self.entries(reference)
            if following is not None and entries[-1].key >= following:
                raise ProtocolError(f"leaf {reference.name.hex()[:16]} has keys of the next leaf")
        return entries

    def entries(self, reference: PageReference) -> tuple[MapEntry, ...]:
        """Read a leaf, and compare it with its reference, but not with the next leaf."""
        if self._entries is not None and self._entries[0] is reference:
            return self._entries[1]
        page = self._read(reference.name)
        entries = decode_leaf(reference.name, page)
        if PageReference.of_leaf(entries, page, reference.name) != reference:
            raise ProtocolError(f"leaf {reference.name.hex()[:16]} does not match the page above it")
        self._entries = reference, entries
        return entries

    def page(self, name: bytes) -> bytes:
        """Return the bytes of a page."""
        return self._read(name)

    def judged(self, reference: IdsReference) -> tuple[Judged, ...]:
        """Read a page of ids, and compare it with its root's reference."""
        if (rows := self._ids.get(reference.name)) is not None:
            return rows
        rows = decode_ids(reference.name, self._read(reference.name))
        if (rows[0].config, rows[-1].config) != reference[:2]:
            raise ProtocolError(f"page of ids {reference.name.hex()[:16]} does not match its root")
        self._ids[reference.name] = rows
        return rows


@final
class Edit:
    """Changes to a tree, all of one config id; reads show the changed map."""

    __slots__ = ("_kept", "_opened", "_puts", "_tree", "config", "meta", "version")

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
        self._opened: set[bytes] = set()  # Names of pages below the root before that `finish` has read.

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
                f"an entry has a key of {len(key)} bytes and a record of {len(record)}, at most {MAX_KEY_BYTES} "
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
            raise LimitExceeded(f"the meta has {len(meta)} bytes, at most {MAX_META_BYTES} are allowed")
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
            LimitExceeded: the map has become too large.
        """
        before = self._tree.root
        pages: dict[bytes, bytes] = {}
        below, height = self._replaced(before.below, before.height, sorted(self._puts), pages), before.height
        while height and len(below) <= 1:
            height -= 1
            for branch in below:  # One, or none if the map is empty.
                page = pages.pop(branch.name, None)
                below = [*(decode_branch(branch.name, page) if page is not None else self._tree.branch(branch))]
        while len(pack(below)) > _CUT_BYTES:
            height += 1
            below = [_write(piece, pages) for piece in _cut(below)]
        size_bytes = sum(page.size_bytes for page in below)
        if size_bytes > MAX_MAP_BYTES:
            raise LimitExceeded(
                f"a map of {sum(page.entries for page in below)} entries needs {size_bytes} bytes of leaves, and "
                f"{MAX_MAP_BYTES} are allowed"
            )
        for old_name in self._opened:  # A page may have joined a neighbour and been cut off again.
            pages.pop(old_name, None)
        ids = self._ids(pages)
        root = Root(before.kind, self.config, self.version, self.meta, height, tuple(below), ids)
        page = encode_root(root)
        name = decode_root.keep(root, page)
        pages[name] = page
        return ChangedPages(name, pages)

    def _replaced(
        self, below: Sequence[PageReference], level: int, keys: list[bytes], pages: dict[bytes, bytes]
    ) -> list[PageReference]:
        """Return the references that replace those at a level (0: leaves), with the entries at `keys` edited.

        Writes the pages with a touched key, and their neighbours if they join.
        """
        if not below:
            entries = [entry for key in keys if (entry := self.get(key)) is not None]
            return [_write(piece, pages) for piece in _cut(entries) if piece]
        joined: list[PageReference | _Items] = []
        start = 0
        for at, reference in enumerate(below):
            end = bisect_left(keys, below[at + 1].first) if at + 1 < len(below) else len(keys)
            touched, start = keys[start:end], end
            page: PageReference | _Items = reference
            if touched:
                self._opened.add(reference.name)
            if touched and level:
                page = self._replaced(self._tree.branch(reference), level - 1, touched, pages)
            elif touched:
                kept = {entry.key: entry for entry in self._tree.entries(reference)}
                edited = kept | {key: self.get(key) for key in touched}
                page = [entry for key in sorted(edited) if (entry := edited[key]) is not None]
            if not page:
                continue
            is_kept = isinstance(page, PageReference) and (not joined or isinstance(joined[-1], PageReference))
            if joined and not is_kept and (_is_small(joined[-1]) or _is_small(page)):
                page = [*self._items(joined.pop(), level), *self._items(page, level)]
            joined.append(page)
        return [
            reference
            for page in joined
            for reference in (
                [page] if isinstance(page, PageReference) else [_write(piece, pages) for piece in _cut(page)]
            )
        ]

    def _items(self, page: PageReference | _Items, level: int) -> _Items:
        if not isinstance(page, PageReference):
            return page
        self._opened.add(page.name)
        return self._tree.branch(page) if level else self._tree.entries(page)

    def _ids(self, pages: dict[bytes, bytes]) -> tuple[IdsReference, ...]:
        """Drop old pages of ids; rewrite the last page, or append a new one and move its rows to the page before."""
        oldest = sequence_of(self.config) - KEPT
        kept = [page for page in self._tree.root.ids if sequence_of(page.last) >= oldest]
        if self._kept:
            row = Judged.of(self.config, self._kept)
            last = [*self._tree.judged(kept[-1])] if kept else []
            page = encode_ids([*last, row])
            if len(page) > _LAST_IDS_BYTES:
                if len(kept) > 1 and len(encode_ids(rows := [*self._tree.judged(kept[-2]), *last])) <= MAX_IDS_BYTES:
                    kept[-2:] = [_keep_ids(rows, encode_ids(rows), pages)]
                last, page = [], encode_ids([row])
            elif kept:
                kept.pop()
            kept.append(_keep_ids([*last, row], page, pages))
        return tuple(kept)


@lru_cache(maxsize=_MAX_KEPT)
def _leaves_kept(below: tuple[PageReference, ...], height: int) -> list[tuple[tuple[PageReference, ...], list[bytes]]]:
    """Return a list for the leaves under these references and their first keys, which never change."""
    del below, height
    return []


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
        raise ProtocolError(f"the root has config id {new.root.config}, expected {config} above {old.root.config}")
    entries, gone = _apart(new, old)
    try:
        again = _replayed(old, new, entries, gone).finish()
    except LimitExceeded as error:
        raise ProtocolError(str(error)) from error
    if again != changed:
        raise ProtocolError("the change is not a canonical change of its root")
    rules = kind.rules(new.root.meta)
    is_anew = new.root.meta != old.root.meta
    for entry in new.scan() if is_anew else entries.values():
        if is_anew or entry.version == config:
            rules.check_entry(entry.key, entry.record)
    rules.check_whole(len(new), new.root.below[0].first if new.root.below else None)


def check_all(read: Read, kind: MapKind, name: bytes, only: Collection[bytes] | None = None) -> None:
    """Check that a root and its pages fit together: all of them, or `only` these, if others were checked before.

    Raises as `check_change`.
    """
    tree = MapTree.opened(read, name, kind.name)
    rules = kind.rules(tree.root.meta)
    for at, leaf in enumerate(tree.leaves):
        if only is None or leaf.name in only:
            for entry in tree.leaf(at):
                rules.check_entry(entry.key, entry.record)
    rules.check_whole(len(tree), tree.root.below[0].first if tree.root.below else None)
    for page in tree.root.ids:
        if only is None or page.name in only:
            tree.judged(page)


def pages_of(read: Read, name: bytes) -> tuple[bytes, ...]:
    """Return the names of all pages of a tree, each after the page that names it.

    Pages below a missing branch are left out. Raises as `MapTree.opened`; MissingPage: the root is missing.
    """
    root = decode_root(name, read(name))
    tree, names, below = MapTree(read, root), [name], root.below
    for _ in range(root.height):
        names += [branch.name for branch in below]
        found: list[PageReference] = []
        for branch in below:
            with suppress(MissingPage):
                found += tree.branch(branch)
        below = tuple(found)
        if len(names) + len(below) > _MAX_NAMES:
            raise ProtocolError(f"the map has more than {_MAX_NAMES} pages")
    return (*names, *(leaf.name for leaf in below), *(page.name for page in root.ids))


def _apart(new: MapTree, old: MapTree) -> tuple[dict[bytes, MapEntry], dict[bytes, MapEntry]]:
    """Return the entries of leaves that the old tree lacks, and of those that the new tree lacks."""
    sides = [(new, new.root.below), (old, old.root.below)]
    height = new.root.height
    if height != old.root.height:
        sides, height = [(new, new.leaves), (old, old.leaves)], 0
    for level in range(height, -1, -1):
        shared = {*sides[0][1]}.intersection(sides[1][1])
        sides = [(tree, tuple(page for page in below if page not in shared)) for tree, below in sides]
        if level:
            sides = [(tree, tuple(page for branch in below for page in tree.branch(branch))) for tree, below in sides]
    entries, gone = ({entry.key: entry for page in below for entry in tree.entries(page)} for tree, below in sides)
    return entries, gone


def _replayed(old: MapTree, new: MapTree, entries: dict[bytes, MapEntry], gone: dict[bytes, MapEntry]) -> Edit:
    """Return the edit that leads from one tree to another, by the entries of the leaves that differ."""
    edit = old.edit(new.root.config)
    for key, entry in entries.items():
        if entry.version == edit.config:
            edit.put(key, entry.record)
    for key in gone.keys() - entries.keys():
        edit.delete(key)
    if new.root.version == edit.config:
        edit.set_meta(new.root.meta)
    if new.root.ids and new.root.ids[-1].last == edit.config:
        for operation, kept in last_judged(new.page(new.root.ids[-1].name)).kept.items():
            edit.record(operation, *kept)
    return edit


def _write(items: _Items, pages: dict[bytes, bytes]) -> PageReference:
    """Add a leaf or a branch to `pages`."""
    if below := [item for item in items if isinstance(item, PageReference)]:
        page = encode_branch(below)
        reference = PageReference.of_branch(below, decode_branch.keep(tuple(below), page))
    else:
        entries = [item for item in items if isinstance(item, MapEntry)]
        page = encode_leaf(entries)
        reference = PageReference.of_leaf(entries, page, decode_leaf.keep(tuple(entries), page))
    pages[reference.name] = page
    return reference


def _keep_ids(rows: Sequence[Judged], page: bytes, pages: dict[bytes, bytes]) -> IdsReference:
    name = decode_ids.keep(tuple(rows), page)
    pages[name] = page
    return IdsReference(rows[0].config, rows[-1].config, name)


def _is_small(page: PageReference | _Items) -> bool:
    """Return True for the items of a changed page that must join another."""
    return not isinstance(page, PageReference) and len(pack(page)) < _MIN_BYTES


def _cut(items: _Items) -> Iterator[_Items]:
    """Yield pieces of similar size; all at once if they fit in a page."""
    if len(pack(items)) <= _CUT_BYTES:  # With the length before the items; few pages have more.
        yield items
        return
    sizes = [len(pack(item)) for item in items]
    sum_bytes = sum(sizes)
    pieces = -(-sum_bytes // _PIECE_BYTES) if sum_bytes > _CUT_BYTES else 1
    start, number, filled = 0, 1, 0
    for at, size_bytes in enumerate(sizes):
        if filled * pieces >= sum_bytes * number:
            yield items[start:at]
            start, number = at, number + 1
        filled += size_bytes
    yield items[start:]


def _read_nothing(name: bytes) -> bytes:
    raise AssertionError(f"an empty tree has no page {name.hex()}")
