"""SCAN by cursor: pages of keys, of one database or of all in turn.

A Redis cursor is a 64-bit number, while a scan's cursor contains a key. So the node keeps the meaning of recent
numbers. A number works again on any connection of the same user with the same selected database, until it is forgotten.
Numbers of the address that holds most are forgotten first, so no client ends other clients' scans. Other nodes do not
know the numbers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import BadRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value

# Each cursor has at most a key: 64 MiB if all have the longest.
MAX_CURSORS: Final = 1000

# Random bits of a node's first number, so that numbers of two nodes are not confused.
FIRST_BITS: Final = 48

USUAL_COUNT: Final = 10


class Pattern(NamedTuple):
    """The requested keys: all with a prefix, or exactly one."""

    prefix: bytes
    is_whole: bool


def read_pattern(pattern: bytes) -> Pattern:
    """Parse a Redis pattern that is a prefix or a single key.

    Raises:
        BadRequest: the pattern is neither.
    """
    prefix = bytearray()
    at = 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        if letter == b"*" and at == len(pattern) - 1:
            return Pattern(bytes(prefix), is_whole=False)
        if letter in {b"*", b"?", b"["}:
            raise BadRequest("MATCH supports only prefix patterns, such as PREFIX*")
        at += letter == b"\\" and at < len(pattern) - 1
        prefix += pattern[at : at + 1]
        at += 1
    return Pattern(bytes(prefix), is_whole=True)


class ScanReader(NamedTuple):
    """The owner of a scan: the user, the database that the connection has selected, and the client's address."""

    user: int
    selected: str | None
    address: int


class ScanPlace(NamedTuple):
    """The position of a scan: the name of its database, and the cursor there."""

    database: str
    cursor: bytes | None
    prefix: bytes


class KeptScan(NamedTuple):
    """A position, and the owner of the scan."""

    place: ScanPlace
    reader: ScanReader


class ScanReply(NamedTuple):
    """The request to the node for a page, and the form in which keys are shown."""

    database: str
    options: dict[str, Value]
    shown_before: bytes  # The name of the database and a colon, if keys are shown with it.


@final
class Scans:
    """The cursors of all RESP scans, and the requests for their pages."""

    def __init__(self, random: random.Random) -> None:
        self._number = random.getrandbits(FIRST_BITS)
        self._kept: OrderedDict[int, KeptScan] = OrderedDict()
        self._of_addresses: Counter[int] = Counter()  # Number of kept cursors for each address.

    def page(
        self, names: Sequence[str], reader: ScanReader, cursor: int, pattern: Pattern, count: int
    ) -> ScanReply | None:
        """Return the request for the next page, of the selected database or of all `names`; None at the end."""
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
                "the cursor belongs to another node, user or SELECT, or has expired; begin again with cursor 0"
            )
        self._kept.move_to_end(cursor)
        return kept.place

    def next(
        self, names: Sequence[str], reader: ScanReader, page: ScanReply, pattern: Pattern, cursor: bytes | None
    ) -> int:
        """Keep the position behind that page, which ended with this cursor. Return its number, or 0 at the end."""
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
        """Forget the least recently used cursor of an address that has most."""
        most = max(self._of_addresses.values())
        number, kept = next(item for item in self._kept.items() if self._of_addresses[item[1].reader.address] == most)
        del self._kept[number]
        self._of_addresses[kept.reader.address] -= 1
        self._of_addresses += Counter()  # The addition drops counts of 0.


def _first(names: Sequence[str], database: str | None, pattern: Pattern, behind: str = "") -> ScanPlace | None:
    """Return where a scan begins: in `database`, or in the first database that matches the pattern."""
    if database is not None:
        return ScanPlace(database, None, pattern.prefix)
    name, colon, prefix = pattern.prefix.partition(b":")
    if colon:
        return ScanPlace(name.decode(errors="replace"), None, prefix)
    found = (candidate for candidate in sorted(names) if candidate > behind and candidate.encode().startswith(name))
    first = next(found, None) if not pattern.is_whole else None
    return None if first is None else ScanPlace(first, None, b"")
