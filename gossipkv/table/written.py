"""What the last hour's writes covered of time series, as the node counts that originates them: for `placement.ahead`.

Counted in pieces of five minutes, of each series apart: of a table those keys with the same bytes before their time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.ahead import MOST_SERIES
from gossipkv.placement.measures import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.replication.copy import Write

PIECE_S: Final = 300.0
PIECES: Final = 12


@dataclass(slots=True)
class _Piece:
    number: int
    low: int
    high: int
    bytes: int = 0


@final
class LastHour:
    """The writes of the last hour, by table and series."""

    def __init__(self) -> None:
        self.keys: dict[bytes, TimeKey] = {}  # Of the tables that have one, as known here.
        self._series: dict[bytes, dict[bytes, deque[_Piece]]] = {}

    def note(self, table: bytes, writes: Iterable[Write], now: float) -> None:
        """These were originated here; of a table with very many series those are counted that came first."""
        key = self.keys.get(table)
        if key is None:
            return
        number, series = int(now // PIECE_S), self._series.setdefault(table, {})
        for write in writes:
            time, prefix = key.time_of(write.key), write.key[: key.offset]
            pieces = series.get(prefix)
            if pieces is None:
                if len(series) > MOST_SERIES:  # One more says that they are too many.
                    continue
                pieces = series[prefix] = deque(maxlen=PIECES)
            if not pieces or pieces[-1].number != number:
                pieces.append(_Piece(number, time, time))
            piece = pieces[-1]
            piece.low, piece.high = min(piece.low, time), max(piece.high, time)
            piece.bytes += len(write.key) + len(write.value or b"")

    def forget(self, table: bytes) -> None:
        """It was dropped."""
        self.keys.pop(table, None)
        self._series.pop(table, None)

    def of(self, table: bytes, now: float) -> list[Written]:
        """What they covered, of each series."""
        found, series = [], self._series.get(table, {})
        for prefix, pieces in [*series.items()]:
            while pieces and pieces[0].number <= int(now // PIECE_S) - PIECES:
                pieces.popleft()
            if pieces:
                low, high = -_likely([-piece.low for piece in pieces]), _likely([piece.high for piece in pieces])
                size_bytes, seconds = sum(piece.bytes for piece in pieces), int(now - pieces[0].number * PIECE_S)
                found.append(Written(prefix, min(low, high), high, size_bytes, seconds))
            else:
                del series[prefix]
        if not series:
            self._series.pop(table, None)
        return found


def _likely(ends: Sequence[int]) -> int:
    """The farthest, unless that lies farther from the next one than all others from each other: a clock was wrong."""
    farthest, *others = sorted(ends, reverse=True)
    if len(others) > 1 and farthest - others[0] > 2 * (others[0] - others[-1]):
        return others[0]
    return farthest
