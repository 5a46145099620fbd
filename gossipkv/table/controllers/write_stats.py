"""The spans of the last hour's writes to time series, counted by their origin node for `placement.ahead`.

Each series is counted in pieces of five minutes. A series is the keys of a table with the same bytes before their time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.ahead import MAX_SERIES
from gossipkv.placement.measures import SeriesWrites

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.replication.replica.record import RecordWrite

PIECE_S: Final = 300.0
PIECES: Final = 12
SAMPLED: Final = 64  # Largest number of times kept per piece.
BELIEVED: Final = 4  # Times within 4 lengths of the middle half on either side are believed.


@dataclass(slots=True)
class _Interval:
    number: int
    low: int
    high: int
    bytes: int = 0
    count: int = 0
    times: list[int] = field(default_factory=list)  # The time of each `stride`th write.
    stride: int = 1

    def note(self, time: int, size_bytes: int) -> None:
        self.low, self.high = min(self.low, time), max(self.high, time)
        self.bytes += size_bytes
        self.count += 1
        if self.count % self.stride == 0:
            self.times.append(time)
            if len(self.times) > SAMPLED:
                self.times = self.times[::2]
                self.stride *= 2


@final
class WriteStats:
    """The writes of the last hour, by table and series."""

    def __init__(self) -> None:
        self.keys: dict[bytes, TimeKey] = {}  # Time keys of the tables known here.
        self._series: dict[bytes, dict[bytes, deque[_Interval]]] = {}

    def note(self, table: bytes, writes: Iterable[RecordWrite], now: float) -> None:
        """Count writes originated here; in a table of very many series, count only the series that came first."""
        key = self.keys.get(table)
        if key is None:
            return
        number, series = int(now // PIECE_S), self._series.setdefault(table, {})
        for write in writes:
            time, prefix = key.time_of(write.key), write.key[: key.offset]
            pieces = series.get(prefix)
            if pieces is None:
                if len(series) > MAX_SERIES:  # One more than the limit shows that the table has too many.
                    continue
                pieces = series[prefix] = deque(maxlen=PIECES)
            if not pieces or pieces[-1].number != number:
                pieces.append(_Interval(number, time, time))
            pieces[-1].note(time, len(write.key) + len(write.value or b""))

    def forget(self, table: bytes) -> None:
        """Forget a dropped table."""
        self.keys.pop(table, None)
        self._series.pop(table, None)

    def of(self, table: bytes, now: float) -> list[SeriesWrites]:
        """Return the last hour's writes to each series of a table."""
        found, series = [], self._series.get(table, {})
        for prefix, pieces in [*series.items()]:
            while pieces and pieces[0].number <= int(now // PIECE_S) - PIECES:
                pieces.popleft()
            if pieces:
                size_bytes, seconds = sum(piece.bytes for piece in pieces), int(now - pieces[0].number * PIECE_S)
                found.append(SeriesWrites(prefix, *_covered(pieces), size_bytes, seconds))
            else:
                del series[prefix]
        if not series:
            self._series.pop(table, None)
        return found


def _covered(pieces: Collection[_Interval]) -> tuple[int, int]:
    """Return the oldest and the newest time, without outliers, which come from wrong clocks."""
    times = sorted(time for piece in pieces for time in piece.times)
    part = len(times) // 4
    middle = times[part : len(times) - part]
    room = BELIEVED * (middle[-1] - middle[0])
    every = (*times, *(piece.low for piece in pieces), *(piece.high for piece in pieces))
    believed = [time for time in every if middle[0] - room <= time <= middle[-1] + room]
    return min(believed), max(believed)
