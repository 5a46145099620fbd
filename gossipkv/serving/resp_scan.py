"""SCAN by cursor: pages of keys, of one database or of all, one after the other.

A cursor of Redis is a number of 64 bits; one of a scan is a key and more.  So what a number means is kept here, for the
scans that were asked for last.  They can be asked for again, until so many others were that they are forgotten; another
node does not know them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value

# Each is a key at most: 64 MiB if all are as long as may be.
MOST_CURSORS: Final = 1000

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


class Place(NamedTuple):
    """Where a scan goes on: the name of its database, and the cursor there."""

    database: str
    cursor: bytes | None
    prefix: bytes


class Page(NamedTuple):
    """What is asked of the node for a page, and how its keys are shown."""

    database: str
    options: dict[str, Value]
    shown_before: bytes  # the name of the database and a colon, where keys are shown with it


@final
class Scans:
    """The cursors of all who scan by RESP, and what a page asks."""

    def __init__(self, random: random.Random) -> None:
        self._number = random.getrandbits(FIRST_BITS)
        self._places: OrderedDict[int, Place] = OrderedDict()

    def page(
        self, names: Sequence[str], database: str | None, cursor: int, pattern: Pattern, count: int
    ) -> Page | None:
        """What the next page asks, of that database or of all of these names; None: there is nothing."""
        place = _first(names, database, pattern) if cursor == 0 else self._places.get(cursor)
        if place is None:
            if cursor == 0:
                return None
            raise BadRequest("this cursor is of another node, or so old that it was forgotten: begin with 0")
        if cursor != 0:
            self._places.move_to_end(cursor)
        options: dict[str, Value] = {"limit": count}
        if place.prefix:
            options["prefix"] = place.prefix
        if place.cursor is not None:
            options["cursor"] = place.cursor
        return Page(place.database, options, b"" if database is not None else place.database.encode() + b":")

    def next(
        self, names: Sequence[str], database: str | None, page: Page, pattern: Pattern, cursor: bytes | None
    ) -> int:
        """The number of what comes behind that page, which has ended with this cursor; 0: nothing does."""
        place: Place | None = None
        if cursor is not None:
            prefix = page.options.get("prefix", b"")
            assert isinstance(prefix, bytes)
            place = Place(page.database, cursor, prefix)
        elif database is None and b":" not in pattern.prefix:
            place = _first(names, None, pattern, behind=page.database)
        if place is None:
            return 0
        self._number += 1
        self._places[self._number] = place
        if len(self._places) > MOST_CURSORS:
            self._places.popitem(last=False)
        return self._number


def _first(names: Sequence[str], database: str | None, pattern: Pattern, behind: str = "") -> Place | None:
    """Where a scan begins: in that database, or in the first one whose keys are asked for."""
    if database is not None:
        return Place(database, None, pattern.prefix)
    name, colon, prefix = pattern.prefix.partition(b":")
    if colon:
        return Place(name.decode(errors="replace"), None, prefix)
    found = (one for one in sorted(names) if one > behind and one.encode().startswith(name))
    first = next(found, None) if not pattern.is_whole else None
    return None if first is None else Place(first, None, b"")
