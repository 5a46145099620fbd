"""A snapshot of a map, read page by page from another node while the map changes.

Each page is of its own moment. Since edits are absolute, the history from the first page's sequence on makes all pages
one state, that of the history's end. Its digest proves it. So no node keeps an old state for another, and a reader for
whom the history does not reach back far enough begins anew (rule 14).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import ProtocolError
from gossipkv.register.edits import digest_of
from gossipkv.register.entries import EntryMap
from gossipkv.register.state import Base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.register.edits import Transaction

MAX_PAGE_BYTES: Final = 256 << 10


class SnapshotPage(NamedTuple):
    """A part of a node's base."""

    generation: int
    sequence: int
    entries: tuple[tuple[bytes, bytes], ...]
    following: bytes | None  # The first key of the next page; None: there is none.


def page_of(base: Base, start: bytes) -> SnapshotPage:
    """Return the page of a base that begins at a key: at least one entry, if there is one."""
    entries: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    following = None
    for key, record in base.entries.scan(start):
        size_bytes += len(key) + len(record)
        if entries and size_bytes > MAX_PAGE_BYTES:
            following = key
            break
        entries.append((key, record))
    return SnapshotPage(base.generation, base.sequence, tuple(entries), following)


def snapshot_page_of(row: object) -> SnapshotPage:
    """Read a page from decoded MessagePack.

    Raises:
        ProtocolError: the row does not have that form, or its keys do not ascend.
    """
    match row:
        case [int(generation), int(sequence), list(rows), None | bytes() as following] if generation >= 0 <= sequence:
            entries = tuple([(key, record) for key, record in map(_entry_of, rows)])
            keys = [*(key for key, _ in entries), *(() if following is None else (following,))]
            if (entries or following is None) and all(before < after for before, after in pairwise(keys)):
                return SnapshotPage(generation, sequence, entries, following)
    form = "[generation, sequence, entries, first key of the next page]"
    raise ProtocolError(f"a page of a map must be {form}, with ascending keys", {"got": repr(row)[:80]})


def _entry_of(row: object) -> tuple[bytes, bytes]:
    match row:
        case [bytes(key), bytes(record)]:
            return key, record
    raise ProtocolError("an entry of a map must be [key, record]", {"got": repr(row)[:80]})


@final
class SnapshotReader:
    """One reading of another node's map: ask for pages at `start` until it is None, then for the history."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: a larger map is refused."""
        self.start: bytes | None = b""
        self.first: SnapshotPage | None = None  # The history must begin at its sequence.
        self._entries: dict[bytes, bytes | None] = {}
        self._most_bytes = most_bytes
        self._left_pages = 2 * most_bytes // MAX_PAGE_BYTES + 1  # Two neighbours together are larger than a page.
        self.size_bytes = 0

    def take(self, page: SnapshotPage) -> None:
        """Take the page at `start`.

        Raises:
            ProtocolError: the page does not continue the reading, or the map is too large.
        """
        start, first = self.start, self.first or page
        assert start is not None, "the last page was taken"
        is_next = page.sequence >= first.sequence and (not page.entries or page.entries[0][0] >= start)
        if page.generation != first.generation or not is_next:
            words = f"a page of map {page.generation}, {page.sequence} does not continue the reading at {start[:40]!r}"
            raise ProtocolError(words, {"first": [first.generation, first.sequence]})
        self.size_bytes += sum([len(key) + len(record) for key, record in page.entries])
        self._left_pages -= 1
        if self.size_bytes > self._most_bytes or self._left_pages < 0:
            raise ProtocolError("the map that another node sends is larger than a map can be")
        self._entries.update(page.entries)
        self.first, self.start = first, page.following

    def finish(self, transactions: Sequence[Transaction], digest: bytes) -> Base:
        """Return the map after the transactions from the first page's sequence on; `digest`: the decided one.

        Raises:
            ProtocolError: a transaction is missing, or the map does not have that digest.
        """
        first = self.first
        assert first is not None, "no page was taken"
        sequence = first.sequence
        for transaction in transactions:
            if transaction.sequence != sequence + 1:
                raise ProtocolError(f"the history of a map goes from {sequence} to {transaction.sequence}")
            sequence = transaction.sequence
            self._entries.update(transaction.edits)
        entries = EntryMap.of(sorted((key, record) for key, record in self._entries.items() if record is not None))
        found = digest_of(entries.scan())
        if found != digest:
            words = f"the map after transaction {sequence} does not have its digest"
            raise ProtocolError(words, {"got": found.hex()[:16], "expected": digest.hex()[:16]})
        size_bytes = sum(len(key) + len(record) for key, record in entries.scan())
        return Base(first.generation, sequence, found, size_bytes, entries=entries)
