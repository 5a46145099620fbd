"""What the last hour's writes covered of ranges of time series that this node holds: for `placement.ahead`.

Counted in pieces of five minutes, of each range apart, by the node that originates the writes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.ahead import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.replication.copy import Copy, Write

PIECE_S: Final = 300.0
PIECES: Final = 12


@dataclass(slots=True)
class _Piece:
    number: int
    prefix: bytes | None  # None: there are several.
    low: int
    high: int
    bytes: int = 0


@final
class LastHour:
    """The writes of the last hour, by copy."""

    def __init__(self) -> None:
        self._pieces: dict[Copy, deque[_Piece]] = {}

    def note(self, copy: Copy, key: TimeKey, writes: Sequence[Write], now: float) -> None:
        """These were originated at a copy."""
        number = int(now // PIECE_S)
        pieces = self._pieces.setdefault(copy, deque(maxlen=PIECES))
        for write in writes:
            time, prefix = key.time_of(write.key), write.key[: key.offset]
            if not pieces or pieces[-1].number != number:
                pieces.append(_Piece(number, prefix, time, time))
            piece = pieces[-1]
            piece.prefix = prefix if piece.prefix == prefix else None
            piece.low, piece.high = min(piece.low, time), max(piece.high, time)
            piece.bytes += len(write.key) + len(write.value or b"")

    def of(self, copy: Copy, now: float) -> Written | None:
        """What they covered; None: nothing, or keys with several beginnings."""
        pieces = self._pieces.get(copy)
        while pieces and pieces[0].number <= int(now // PIECE_S) - PIECES:
            pieces.popleft()
        if not pieces:
            self._pieces.pop(copy, None)
            return None
        prefix = pieces[0].prefix
        if prefix is None or any(piece.prefix != prefix for piece in pieces):
            return None
        low, high = _likely([-piece.low for piece in pieces]), _likely([piece.high for piece in pieces])
        return Written(prefix, min(-low, high), high, sum(piece.bytes for piece in pieces))

    def forget(self, held: Sequence[Copy]) -> None:
        """Only these are held."""
        kept = {*held}
        self._pieces = {copy: pieces for copy, pieces in self._pieces.items() if copy in kept}


def _likely(ends: Sequence[int]) -> int:
    """The farthest, unless that lies farther from the next one than all others from each other: a clock was wrong."""
    farthest, *others = sorted(ends, reverse=True)
    if len(others) > 1 and farthest - others[0] > 2 * (others[0] - others[-1]):
        return others[0]
    return farthest
