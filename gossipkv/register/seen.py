"""What acceptors have seen of each other's stores: so one that was put back to an older copy is known for what it is.

A store is at a *position*: an incarnation, which is an opening of it in which something was written, and the batches
that are synced in that.  An incarnation has a number and something drawn at random: an older copy that is opened takes
the next number again.  Every message between nodes that decide tells the position of its sender and what that has seen
of the other acceptors; what is seen is kept in the batch that is synced next, whatever that is for.  No message and no
sync is made for it.

A store is *behind* where its own past has not what anybody has seen of it; it finds that itself, as soon as it is told,
and neither promises nor accepts nor answers from then on, for good.  Who asks counts a reply only of who was told with
the request what is known of it by now.

What is not synced was never told, so no crash takes a store behind.  What nobody who is left has seen, nobody can miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import draw_id
from gossipkv.register.configuration import UUID_BYTES, AcceptorId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.register.ballot import Random

# In the space of decisions.
POSITION: Final = b"p"  # With the number of an incarnation: what was drawn for it, and its batches.
SEEN: Final = b"s"  # With an acceptor: the positions in which that was seen.
BEHIND: Final = b"b"  # With the id of a store: why that is behind.

MOST_NUMBER: Final = (1 << 64) - 1
MOST_BYTES: Final = 4096  # Of what is told.
MOST_INCARNATIONS: Final = 1000  # Of its own that a store remembers: nobody who is told has been away for longer.
MOST_UNCHECKED: Final = 4  # Incarnations of another that are known by hearsay alone.
MOST_ACCEPTORS: Final = 256


class Position(NamedTuple):
    """A point in the life of a store."""

    incarnation: int
    drawn: int
    batches: int  # That are synced in it; 0: none yet, and the next opening takes the number again.

    def reaches(self, other: Position) -> bool:
        """Whether who is here has been there, too, in the same incarnation."""
        return self[:2] == other[:2] and self.batches >= other.batches


Positions = dict[int, Position]  # By incarnation.


@final
class Seen:
    """The position of one store, and what was seen of others."""

    def __init__(self, me: AcceptorId, records: Iterable[tuple[bytes, bytes]], random: Random) -> None:
        """`records`: those of the space under the keys above.  Raises ProtocolError: they cannot be read."""
        self.me = me
        self.behind = ""  # Why this store is behind; empty: nobody has said so.
        self._past: Positions = {}
        self._others: dict[AcceptorId, Positions] = {}
        for key, value in records:
            self._load(key[:1], key[1:], value)
        self._now = Position(max(self._past, default=0) + 1, draw_id(random), 0)  # As synced.
        self._appended = 0  # Batches.
        self._changed: set[AcceptorId] = set()  # Of whom more was seen than is kept.
        self._heard_itself: dict[AcceptorId, Position] = {}  # What each has said of itself last.
        self._right: dict[AcceptorId, Positions] = {}  # What each was told of its past, and counted on.

    def _load(self, kind: bytes, key: bytes, value: bytes) -> None:
        if kind == POSITION:
            incarnation = int.from_bytes(key, "big")
            self._past[incarnation] = Position(incarnation, *_numbers(_unpacked(value), 2))
        elif kind == SEEN:
            acceptor = AcceptorId(key[:UUID_BYTES], int.from_bytes(key[UUID_BYTES:], "big"))
            positions = [Position(*_numbers(row, 3)) for row in _rows(value)]
            self._others[acceptor] = {position.incarnation: position for position in positions}
        elif key == _key(self.me.store):
            self.behind = value.decode()

    # -- what is kept ------------------------------------------------------------------------------------------------

    def records(self) -> dict[bytes, bytes | None]:
        """What goes along with the batch that is appended now; `synced` is to be said when that is on the disk."""
        self._appended += 1
        incarnation, drawn, _ = self._now
        records: dict[bytes, bytes | None] = {POSITION + _key(incarnation): msgpack.packb([drawn, self._appended])}
        if incarnation - MOST_INCARNATIONS in self._past:
            del self._past[incarnation - MOST_INCARNATIONS]
            records[POSITION + _key(incarnation - MOST_INCARNATIONS)] = None
        for acceptor in self._changed:
            positions = self._others.get(acceptor)
            kept = None if positions is None else msgpack.packb([*positions.values()])
            records[SEEN + acceptor.node + _key(acceptor.store)] = kept
        self._changed.clear()
        return records

    def synced(self) -> None:
        """Take in that the next of those batches is on the disk."""
        self._now = self._past[self._now.incarnation] = self._now._replace(batches=self._now.batches + 1)

    @property
    def position(self) -> Position:
        """Where this store is, as synced."""
        return self._now

    # -- what is told ------------------------------------------------------------------------------------------------

    def seen_of(self, acceptor: AcceptorId) -> Mapping[int, Position]:
        """The positions in which an acceptor was seen."""
        return {**self._others.get(acceptor, {})}

    def tell(self, acceptors: Iterable[AcceptorId]) -> bytes:
        """What to say: where this store is, and where these were seen."""
        rows = [_row(self.me, position) for position in self._told_of_me()]
        for acceptor in acceptors:
            rows += [_row(acceptor, position) for position in self._others.get(acceptor, {}).values()]
        packed: bytes = msgpack.packb(rows)
        return packed

    def tell_node(self, node: bytes) -> bytes:
        """What to say to a node of which only the uuid is known."""
        return self.tell([acceptor for acceptor in self._others if acceptor.node == node])

    def _told_of_me(self) -> Iterator[Position]:
        if not self._now.batches and self._past:
            yield self._past[max(self._past)]
        yield self._now

    def hear(self, data: bytes) -> bool:
        """Take in what somebody tells; whether that may be of another life of a store than the one that was counted on.

        Raises:
            ProtocolError: it does not have that form.
        """
        is_news, by = False, None
        for acceptor, position in positions_in(data):
            by = by or acceptor
            if acceptor == self.me:
                self._check(position)
                continue
            right = self._right.get(acceptor, {}).get(position.incarnation)
            if acceptor == by:
                self._heard_itself[acceptor] = position  # Of two the last is where it is now.
            if position.batches and not (right is not None and right.reaches(position)):
                is_news |= self._is_news(acceptor, position)
                self._see(acceptor, position)
        return is_news

    def _is_news(self, acceptor: AcceptorId, position: Position) -> bool:
        """Whether hearsay is of another life of a store than the one that spoke here last, and not known yet."""
        itself, known = self._heard_itself.get(acceptor), self._others.get(acceptor, {}).get(position.incarnation)
        if itself is None or itself[:2] == position[:2]:
            return False
        return known is None or (position.incarnation < itself.incarnation and not known.reaches(position))

    def is_counted(self, by: AcceptorId, told: Mapping[int, Position], data: bytes) -> bool:
        """Whether a reply counts: of who was told so much of itself with the request, and has said this, which is heard.

        If so, all that was known of its past is right, and only the newest is told again.
        """
        itself = {position.incarnation: position for acceptor, position in positions_in(data) if acceptor == by}
        known = self._others.get(by, {})
        if not itself:
            return False
        now = itself[max(itself)]
        for position in known.values():
            asked, said = told.get(position.incarnation), itself.get(position.incarnation)
            was_checked = asked is not None and asked.reaches(position)
            was_said = said is not None and said.reaches(position)
            if not (was_checked or was_said or position[:2] == now[:2]):
                return False
        for incarnation in sorted(known)[:-1]:
            self._right.setdefault(by, {})[incarnation] = known.pop(incarnation)
            self._changed.add(by)
        return True

    def _see(self, acceptor: AcceptorId, position: Position) -> None:
        """Know of a position."""
        if acceptor not in self._others and len(self._others) >= MOST_ACCEPTORS:
            oldest = next(iter(self._others))
            del self._others[oldest]
            self._changed.add(oldest)
        known = self._others.setdefault(acceptor, {})
        before = known.get(position.incarnation)
        if before is not None and not (before[:2] == position[:2] and before.batches < position.batches):
            return  # Also where it is of another opening of that number: the first that was seen is told on.
        known[position.incarnation] = position
        if len(known) > MOST_UNCHECKED:
            del known[min(known)]
        self._changed.add(acceptor)

    def _check(self, position: Position) -> None:
        """Look whether this store has been where it was seen."""
        mine = self._past.get(position.incarnation)
        is_forgotten = position.incarnation <= self._now.incarnation - MOST_INCARNATIONS
        if self.behind or is_forgotten or not position.batches or (mine is not None and mine.reaches(position)):
            return
        has = "nothing of that" if mine is None else f"{mine.batches} of another" if mine[1] != position[1] else mine[2]
        self.behind = (
            f"an older copy of the store {self.me.store:016x} was put back: others have seen {position.batches} batches "
            f"of its incarnation {position.incarnation}, and it has {has}"
        )


def positions_in(data: bytes) -> Iterator[tuple[AcceptorId, Position]]:
    """What somebody tells, row by row; of more columns than these the others are passed over."""
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"what was seen is told in at most {MOST_BYTES} bytes", {"got": len(data)})
    for row in _rows(data):
        match row:
            case [bytes(node), *numbers] if len(node) == UUID_BYTES:
                store, *position = _numbers(numbers[:4], 4)
                yield AcceptorId(node, store), Position(*position)
            case _:
                raise ProtocolError("what was seen is [node, store, incarnation, drawn, batches]", {"got": repr(row)[:80]})


def _row(acceptor: AcceptorId, position: Position) -> list[object]:
    return [*acceptor, *position]


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unpacked(data: bytes) -> object:
    try:
        return msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("what was seen should be MessagePack", {"got": repr(data[:40])}) from error


def _rows(data: bytes) -> list[object]:
    rows = _unpacked(data)
    if not isinstance(rows, list):
        raise ProtocolError("what was seen is an array", {"got": repr(rows)[:80]})
    return rows


def _numbers(row: object, count: int) -> list[int]:
    if isinstance(row, list) and len(row) == count:
        numbers = [number for number in row if type(number) is int and 0 <= number <= MOST_NUMBER]
        if len(numbers) == count:
            return numbers
    raise ProtocolError(f"a position is {count} numbers", {"got": repr(row)[:80]})
