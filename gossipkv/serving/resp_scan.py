"""SCAN by cursor: pages of keys, of one database or of all, one after the other.

A cursor of Redis is a number of 64 bits; one of a scan is a key and more.  So what a number means is kept here, for the
scans that were asked for last.  They can be asked for again, on any connection of the same user that has selected the
same database, until so many others were that they are forgotten: those first that are of the address that has most, so
that nobody's scans end others'.  Another node does not know them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value

# Each is a key at most: 64 MiB if all are as long as may be.
MAX_CURSORS: Final = 1000

# Where the numbers of a node begin: those of two nodes are not mistaken for each other.
FIRST_BITS: Final = 48

USUAL_COUNT: Final = 10


class Pattern(NamedTuple):
    """What keys are asked for: those that begin so, or the one that is that."""

    prefix: bytes
    is_whole: bool


def read_pattern(pattern: bytes) -> Pattern:
    """What a pattern of Redis means, if it is a beginning.

    Raises:
        BadRequest: it asks for more than keys that begin alike.
    """
    prefix = bytearray()
    at = 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        if letter == b"*" and at == len(pattern) - 1:
            return Pattern(bytes(prefix), is_whole=False)
        if letter in {b"*", b"?", b"["}:
            raise BadRequest("MATCH takes a beginning here, PREFIX*: keys are found by their order alone")
        at += letter == b"\\" and at < len(pattern) - 1
        prefix += pattern[at : at + 1]
        at += 1
    return Pattern(bytes(prefix), is_whole=True)


class ScanReader(NamedTuple):
    """Who scans: the user, the database that the connection has selected, and the address that it comes from."""

    user: int
    selected: str | None
    address: int


class ScanPlace(NamedTuple):
    """Where a scan goes on: the name of its database, and the cursor there."""

    database: str
    cursor: bytes | None
    prefix: bytes


class KeptScan(NamedTuple):
    """A place, and whose scan goes on there."""

    place: ScanPlace
    reader: ScanReader


class ScanReply(NamedTuple):
    """What is asked of the node for a page, and how its keys are shown."""

    database: str
    options: dict[str, Value]
    shown_before: bytes  # the name of the database and a colon, where keys are shown with it


@final
class Scans:
    """The cursors of all who scan by RESP, and what a page asks."""

    def __init__(self, random: random.Random) -> None:
        self._number = random.getrandbits(FIRST_BITS)
        self._kept: OrderedDict[int, KeptScan] = OrderedDict()
        self._of_addresses: Counter[int] = Counter()  # How many are kept for each.

    def page(
        self, names: Sequence[str], reader: ScanReader, cursor: int, pattern: Pattern, count: int
    ) -> ScanReply | None:
        """What the next page asks, of the selected database or of all of these names; None: there is nothing."""
        place = self._go_on(cursor, reader) if cursor != 0 else _first(names, reader.selected, pattern)
        if place is None:
            return None
        options: dict[str, Value] = {"limit": count}
        if place.prefix:
            options["prefix"] = place.prefix
        if place.cursor is not None:
            options["cursor"] = place.cursor
        return ScanReply(
            place.database, options, b"" if reader.selected is not None else place.database.encode() + b":"
        )

    def _go_on(self, cursor: int, reader: ScanReader) -> ScanPlace:
        kept = self._kept.get(cursor)
        if kept is None or kept.reader[:2] != reader[:2]:
            raise BadRequest(
                "this cursor is of another node, user or SELECT, or so old that it was forgotten: begin with 0"
            )
        self._kept.move_to_end(cursor)
        return kept.place

    def next(
        self, names: Sequence[str], reader: ScanReader, page: ScanReply, pattern: Pattern, cursor: bytes | None
    ) -> int:
        """The number of what comes behind that page, which has ended with this cursor; 0: nothing does."""
        place: ScanPlace | None = None
        if cursor is not None:
            prefix = page.options.get("prefix", b"")
            assert isinstance(prefix, bytes)
            place = ScanPlace(page.database, cursor, prefix)
        elif reader.selected is None and b":" not in pattern.prefix:
            place = _first(names, None, pattern, behind=page.database)
        if place is None:
            return 0
        self._number += 1
        self._kept[self._number] = KeptScan(place, reader)
        self._of_addresses[reader.address] += 1
        if len(self._kept) > MAX_CURSORS:
            self._forget_one()
        return self._number

    def _forget_one(self) -> None:
        """Forget the cursor that was not asked for for longest, of those of an address that has most."""
        most = max(self._of_addresses.values())
        number, kept = next(each for each in self._kept.items() if self._of_addresses[each[1].reader.address] == most)
        del self._kept[number]
        self._of_addresses[kept.reader.address] -= 1
        self._of_addresses += Counter()  # It keeps those above 0.


def _first(names: Sequence[str], database: str | None, pattern: Pattern, behind: str = "") -> ScanPlace | None:
    """Where a scan begins: in that database, or in the first one whose keys are asked for."""
    if database is not None:
        return ScanPlace(database, None, pattern.prefix)
    name, colon, prefix = pattern.prefix.partition(b":")
    if colon:
        return ScanPlace(name.decode(errors="replace"), None, prefix)
    found = (one for one in sorted(names) if one > behind and one.encode().startswith(name))
    first = next(found, None) if not pattern.is_whole else None
    return None if first is None else ScanPlace(first, None, b"")
