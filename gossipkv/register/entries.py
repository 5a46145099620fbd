"""An immutable map of keys to records, in order: an edit makes another map that shares all but what it changes.

The entries lie in *leaves* of up to 64. An edit copies one leaf, and the list of leaves: 2,000 references for 100,000
entries. So readers keep a map as it was for as long as they like, in any thread, and find what has changed between two
maps by comparing the identities of leaves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.register.edits import Edit


Entry = tuple[bytes, bytes]  # A key and its record.

MAX_LEAF: Final = 64
MIN_LEAF: Final = 16  # A smaller leaf joins its neighbour.

_key = itemgetter(0)


@final
class Leaf(tuple[Entry, ...]):
    """Entries in order; two leaves are equal only if they are one."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


@final
class EntryMap:
    """An immutable ordered map."""

    __slots__ = ("_count", "_firsts", "leaves")

    def __init__(self, leaves: Sequence[Leaf] = (), firsts: Sequence[bytes] | None = None, count: int = -1) -> None:
        """`leaves`: not empty, in order; the rest is found from them if it is not given."""
        self.leaves = leaves
        self._firsts = [leaf[0][0] for leaf in leaves] if firsts is None else firsts
        self._count = sum(map(len, leaves)) if count < 0 else count

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> EntryMap:
        """Return the map of these entries. Requires: their keys ascend."""
        rows = [*entries]
        return cls([Leaf(rows[at : at + MAX_LEAF // 2]) for at in range(0, len(rows), MAX_LEAF // 2)])

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> bytes | None:
        """Return the record of a key."""
        number = bisect_right(self._firsts, key) - 1
        if number < 0:
            return None
        leaf = self.leaves[number]
        at = bisect_left(leaf, key, key=_key)
        return leaf[at][1] if at < len(leaf) and leaf[at][0] == key else None

    def floor(self, key: bytes) -> Entry | None:
        """Return the last entry whose key is `key` or below."""
        return self.before(key + b"\0")

    def before(self, key: bytes) -> Entry | None:
        """Return the last entry whose key is below `key`."""
        number = bisect_left(self._firsts, key) - 1
        if number < 0:
            return None
        leaf = self.leaves[number]
        return leaf[bisect_left(leaf, key, key=_key) - 1]

    def leaf_of(self, key: bytes) -> int:
        """Return the number of the leaf that has a key, or would have it."""
        return max(0, bisect_right(self._firsts, key) - 1)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Entry]:
        """Yield the entries from `start` up to before `end`, in order."""
        for number in range(self.leaf_of(start), len(self.leaves)):
            leaf = self.leaves[number]
            at = bisect_left(leaf, start, key=_key) if leaf[0][0] < start else 0
            if end is not None and leaf[-1][0] >= end:
                yield from leaf[at : bisect_left(leaf, end, key=_key)]
                return
            yield from leaf[at:]

    def edited(self, edits: Iterable[Edit]) -> EntryMap:
        """Return the map after these edits."""
        leaves, firsts, count = [*self.leaves], [*self._firsts], self._count
        for key, record in edits:
            number = max(0, bisect_right(firsts, key) - 1)
            leaf: tuple[Entry, ...] = leaves[number] if leaves else ()
            at = bisect_left(leaf, key, key=_key)
            has = at < len(leaf) and leaf[at][0] == key
            if record is None and not has:
                continue
            put = () if record is None else ((key, record),)
            count += len(put) - has
            pieces = _pieces(leaf[:at] + put + leaf[at + has :])
            leaves[number : number + 1] = pieces
            firsts[number : number + 1] = [piece[0][0] for piece in pieces]
            if record is None:
                _join(leaves, firsts, number)
        return EntryMap(leaves, firsts, count)


def _pieces(entries: tuple[Entry, ...]) -> list[Leaf]:
    """Return the leaves of a changed one: two if it is too large, and none if it is empty."""
    if len(entries) <= MAX_LEAF:
        return [Leaf(entries)] if entries else []
    middle = len(entries) // 2
    return [Leaf(entries[:middle]), Leaf(entries[middle:])]


def _join(leaves: list[Leaf], firsts: list[bytes], number: int) -> None:
    """Join a small leaf with a neighbour, so that deletions leave no crowd of small ones."""
    if number < len(leaves) and len(leaves) > 1 and len(leaves[number]) < MIN_LEAF:
        first = max(0, number - 1)
        pieces = _pieces(leaves[first] + leaves[first + 1])
        leaves[first : first + 2] = pieces
        firsts[first : first + 2] = [piece[0][0] for piece in pieces]
