"""Seen positions: acceptors note how far they have seen each other's stores, to detect a restored older copy.

A *position* is an incarnation (an opening of a store in which something was written) and its number of synced batches.
An incarnation has a number and a random id, since a restored copy takes the next number again. Every message between
deciding nodes carries the sender's position, and the positions that it has seen of other acceptors. Seen positions are
kept in the next batch that is synced anyway, so they cost no message and no sync.

A store is *behind* if its own past lacks a position that others have seen. The store's node finds that when it is told;
from then on it never promises, accepts or answers. A proposer counts a reply only if its request told the acceptor all
positions of it that are known by now. Unsynced state is never told, so a crash takes no store behind. A position that
no remaining node has seen cannot be missed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import draw_id
from gossipkv.register.configuration import UUID_BYTES, AcceptorId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.register.ballot import BallotRandom

# Keys in the space of decisions.
POSITION: Final = b"p"  # The key continues with an incarnation's number; the value is its random id and its batches.
SEEN: Final = b"s"  # The key continues with an acceptor; the value is its seen positions.
BEHIND: Final = b"b"  # The key continues with the id of a store; the value is why it is behind.

MAX_NUMBER: Final = (1 << 64) - 1
MAX_BYTES: Final = 4096  # Bounds the told positions.
MAX_INCARNATIONS: Final = 1000  # Own incarnations that a store remembers; no node is away for longer.
MAX_UNCHECKED: Final = 4  # Incarnations of another store that are known by hearsay alone.
MAX_ACCEPTORS: Final = 256


class AcceptorReply(NamedTuple):
    """The reply of another node's acceptor, and the positions that it has seen; None: it tells none."""

    data: bytes
    seen: bytes | None = None


class Position(NamedTuple):
    """A point in the life of a store."""

    incarnation: int
    drawn: int
    batches: int  # Synced batches; while it is 0 the next opening takes the number again.

    @property
    def opening(self) -> Opening:
        return self[:2]


Opening = tuple[int, int]  # The incarnation of a store, and its random id.
Reached = dict[Opening, int]  # The number of batches of each opening.


@final
class SeenPositions:
    """The position of one store, and the seen positions of others."""

    def __init__(self, me: AcceptorId, records: Iterable[tuple[bytes, bytes]], random: BallotRandom) -> None:
        """`records`: the records under the keys above. Raises ProtocolError: they cannot be read."""
        self.me = me
        self.behind = ""  # Why this store is behind; empty if no node has said so.
        self._past: Reached = {}
        self._positions: dict[AcceptorId, Reached] = {}
        for key, value in records:
            self._load(key[:1], key[1:], value)
        self._now = Position(max(self._past, default=(0, 0))[0] + 1, draw_id(random), 0)  # The position as synced.
        self._appended = 0  # Appended batches.
        self._changed: set[AcceptorId] = set()  # Acceptors with positions that are not kept yet.
        self._speaks: dict[AcceptorId, Opening] = {}  # The opening in which each acceptor has spoken here last.
        self._right: dict[AcceptorId, Reached] = {}  # The told positions of each acceptor that it has not denied.

    def _load(self, kind: bytes, key: bytes, value: bytes) -> None:
        if kind == POSITION:
            drawn, batches = _numbers(_unpacked(value), 2)
            self._past[int.from_bytes(key, "big"), drawn] = batches
        elif kind == SEEN:
            acceptor = AcceptorId(key[:UUID_BYTES], int.from_bytes(key[UUID_BYTES:], "big"))
            positions = [Position(*_numbers(row, 3)) for row in _rows(value)]
            self._positions[acceptor] = {position.opening: position.batches for position in positions}
        elif key == _key(self.me.store):
            self.behind = value.decode()

    # -- persistence ---------------------------------------------------------------------------------------------------

    def records(self) -> dict[bytes, bytes | None]:
        """Return the records for the batch that is appended now; call `synced` when it is on the disk."""
        self._appended += 1
        incarnation, drawn, _ = self._now
        records: dict[bytes, bytes | None] = {POSITION + _key(incarnation): msgpack.packb([drawn, self._appended])}
        if len(self._past) > MAX_INCARNATIONS:
            oldest = min(self._past)
            del self._past[oldest]
            records[POSITION + _key(oldest[0])] = None
        for acceptor in self._changed:
            seen = self._positions.get(acceptor)
            rows = None if seen is None else msgpack.packb([[*opening, batches] for opening, batches in seen.items()])
            records[SEEN + acceptor.node + _key(acceptor.store)] = rows
        self._changed.clear()
        return records

    def synced(self) -> None:
        """Process that the next of these batches is on the disk."""
        self._now = self._now._replace(batches=self._now.batches + 1)
        self._past[self._now.opening] = self._now.batches

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The synced position of this store."""
        return self._now

    def seen_of(self, acceptor: AcceptorId) -> Reached:
        """Return the positions in which an acceptor was seen."""
        return {**self._positions.get(acceptor, {})}

    def tell(self, acceptors: Iterable[AcceptorId], word: bytes = b"") -> bytes:
        """Return this store's position, the seen positions of these acceptors, and the word that the reader expects."""
        rows: list[list[object]] = []
        if not self._now.batches and self._past:
            last = max(self._past)
            rows.append([*self.me, *last, self._past[last]])
        rows.append([*self.me, *self._now])
        for acceptor in acceptors:
            for opening, batches in self._positions.get(acceptor, {}).items():
                rows.append([*acceptor, *opening, batches])  # A call less for each acceptor.
        rows[0] += [word] if word else []
        packed: bytes = msgpack.packb(rows)
        return packed

    def tell_node(self, node: bytes) -> bytes:
        """Return the message for a node of which only the uuid is known."""
        return self.tell([acceptor for acceptor in self._positions if acceptor.node == node])

    def hear(self, data: bytes) -> bool:
        """Process another node's positions; return True if rounds may count on a restored store, and must begin anew.

        Raises:
            ProtocolError: the data does not have that form.
        """
        is_news, by = False, None
        for acceptor, position in positions_in(data):
            by = by or acceptor
            if acceptor == self.me:
                is_news |= self._check(position)
                continue
            opening = position[:2]
            if acceptor == by:
                self._speaks[acceptor] = opening  # The later row is the present opening.
            if position.batches > self._right.get(acceptor, {}).get(opening, 0):
                is_news |= self._see(acceptor, opening, position.batches)
        return is_news

    def is_counted(self, by: AcceptorId, sent: Mapping[Opening, int], data: bytes) -> bool:
        """Return True if a reply counts: no position of the sender's past that is known here was withheld from it.

        `sent`: the sender's positions that the request told; `data`: the positions in the reply. The sender has not
        denied these positions, so of a counted reply only the newest is told again.
        """
        replied = {position.opening: position.batches for acceptor, position in positions_in(data) if acceptor == by}
        if not replied:
            return False
        seen, now = self._positions.get(by, {}), max(replied)
        for opening, batches in seen.items():
            if opening != now and batches > max(sent.get(opening, 0), replied.get(opening, 0)):
                return False
        for opening in sorted(seen)[:-1]:
            self._right.setdefault(by, {})[opening] = seen.pop(opening)
            self._changed.add(by)
        return True

    def _see(self, acceptor: AcceptorId, opening: Opening, batches: int) -> bool:
        """Note a position; return True if it is news, and of another opening than the one that spoke here last."""
        if acceptor not in self._positions and len(self._positions) >= MAX_ACCEPTORS:
            first = next(iter(self._positions))
            del self._positions[first]
            self._changed.add(first)
        seen = self._positions.setdefault(acceptor, {})
        is_too_old = len(seen) >= MAX_UNCHECKED and opening < min(seen)
        before = seen.get(opening, 0)
        if before >= batches or is_too_old:
            return False
        seen[opening] = batches
        if len(seen) > MAX_UNCHECKED:
            del seen[min(seen)]
        self._changed.add(acceptor)
        speaks = self._speaks.get(acceptor, opening)
        return opening != speaks and (not before or opening < speaks)

    def has_been(self, position: Position) -> bool:
        """True if this store has been at a position, as far as it remembers."""
        opening = position[:2]
        if position.batches <= self._past.get(opening, 0):
            return True
        return len(self._past) >= MAX_INCARNATIONS and opening < min(self._past)

    def _check(self, position: Position) -> bool:
        """Check whether this store has been at a position; return True if that first shows that the store is behind."""
        if self.behind or self.has_been(position):
            return False
        mine = self._past.get(position.opening, 0)
        self.behind = (
            f"an older copy of the store {self.me.store:016x} was put back: other nodes have seen "
            f"{position.batches} batches of its incarnation {position.incarnation}, and it has {mine}"
        )
        return True


@lru_cache(maxsize=16)  # A reply is heard first, and then checked by `is_counted`.
def positions_in(data: bytes) -> tuple[tuple[AcceptorId, Position], ...]:
    """Return the positions in a message, the sender's own first; extra columns are ignored.

    Raises:
        ProtocolError: the data does not have that form.
    """
    if len(data) > MAX_BYTES:
        raise ProtocolError(f"seen positions must have at most {MAX_BYTES} bytes", {"got": len(data)})
    rows = []
    for row in _rows(data):
        match row:
            case [bytes(node), int(store), int(incarnation), int(drawn), int(batches), *_] if (
                len(node) == UUID_BYTES and store >= 0 <= incarnation and drawn >= 0 <= batches
            ):
                rows.append((AcceptorId(node, store), Position(incarnation, drawn, batches)))
            case _:
                raise ProtocolError("a seen position must be [node, store, three numbers]", {"got": repr(row)[:80]})
    return tuple(rows)


def teller_of(data: bytes) -> tuple[bytes, bytes]:
    """Return the sender's node and the word that it knows; both empty if it says none.

    Raises:
        ProtocolError: the data does not have that form.
    """
    positions = positions_in(data)
    match _rows(data):
        case [[_, _, _, _, _, bytes(word), *_], *_]:
            return positions[0][0].node, word
        case _:
            return b"", b""


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unpacked(data: bytes) -> object:
    try:
        return msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("seen positions must be MessagePack", {"got": repr(data[:40])}) from error


def _rows(data: bytes) -> list[object]:
    rows = _unpacked(data)
    if not isinstance(rows, list):
        raise ProtocolError("seen positions must be an array", {"got": repr(rows)[:80]})
    return rows


def _numbers(row: object, count: int) -> list[int]:
    if isinstance(row, list) and len(row) == count:
        numbers = [number for number in row if type(number) is int and 0 <= number <= MAX_NUMBER]
        if len(numbers) == count:
            return numbers
    raise ProtocolError(f"a position must be {count} numbers", {"got": repr(row)[:80]})
