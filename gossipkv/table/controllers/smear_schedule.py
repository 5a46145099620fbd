"""Insert smearing: which puts a node keeps for a while, and when each is due (the timeseries part of seed 002).

All who write to a time series write to its newest range, whatever its size.  So a put of a range that spans less than a
minute is kept by a node that does not hold it, and forwarded after a random time, up to two minutes: however much
comes at once, hosts are given it over at least that long.  This is the core, without a world;
`controllers.smear_buffer` is around it.

    accepted ──► synced ──► due ──► forwarded ──► answered ──► deleted
                   ▲                    │
                   └──── later again ◄──┘ refused, lost, or a crash

What waits is in the store alone, in the order in which it is due; here it is counted.  A row is due when a clock says
so that goes on from the time of day at the start of this life, and never jumps:

    key      due 8 (milliseconds) │ number 8 (random)
    value    [table, key, value, hybrid time at which it was accepted]

A put has that time for good: hosts originate it under it (`replication.replica.smeared`).  Of two puts of one key that
two nodes have accepted in the same millisecond either may stay, the same one everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica.hlc import HybridTime, ms_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

MAX_WAIT_MS: Final = 120_000
MAX_PUTS: Final = 1_000_000  # Of all that wait: beyond, puts are forwarded at once,
MAX_BYTES: Final = 1 << 30  # likewise.
RETRY_MS: Final = (1_000, 10_000)  # Until what was not taken is due again: between these.
MAX_SENT: Final = 4096  # Puts that are under way at a time,
MAX_SENT_BYTES: Final = 4 << 20  # or so much of them.
ROW_BYTES: Final = 64  # What one takes beside its key and value.
PART_BYTES: Final = 8  # Of a key: each half.
FIRST: Final = b"\1"  # Rows stand behind it; what says which space it is, before.


class SmearedPut(NamedTuple):
    """A put that waits."""

    at: bytes  # The key of its row.
    table: bytes
    key: bytes
    value: bytes
    time: int

    @property
    def size_bytes(self) -> int:
        """What counts."""
        return len(self.key) + len(self.value) + ROW_BYTES

    def row(self) -> tuple[bytes, bytes]:
        """As it stands in the store."""
        return self.at, msgpack.packb(self[1:])


def put_of(at: bytes, value: bytes) -> SmearedPut:
    """Read a row.  Raises ProtocolError."""
    match msgpack.unpackb(value):
        case [bytes(table), bytes(key), bytes(data), int(time)] if len(at) == len(FIRST) + 2 * PART_BYTES:
            return SmearedPut(at, table, key, data, time)
    raise ProtocolError("what waits is [table, key, value, time]", {"got": repr(value)[:80]})


@dataclass(slots=True)
class TableBacklog:
    """What waits for a table."""

    puts: int = 0
    bytes: int = 0
    why: str | None = None  # Nobody has taken what was forwarded last.
    last_ms: int = 0  # When the last of it is due, of all since it was empty.


@final
class SmearSchedule:
    """What waits at a node."""

    def __init__(
        self, random: Random, *, is_on: bool = True, most_puts: int = MAX_PUTS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._random = random
        self._is_on = is_on
        self._most_puts, self._most_bytes = most_puts, most_bytes
        self._time = HybridTime()
        self._ahead_ms = 0.0  # What the clock of rows is ahead of that which never jumps.
        self._cursor = FIRST  # Before it all is under way.
        self._sent: dict[bytes, SmearedPut] = {}
        self._sent_bytes = 0
        self.tables: dict[bytes, TableBacklog] = {}
        self.puts = 0
        self.bytes = 0
        self.is_counted = False  # What a former life has left, too.
        self.drains = False  # All is due, and nothing more is kept.

    # -- its clock ---------------------------------------------------------------------------------------------------

    def begin(self, now: float, wall_ms: int, last: bytes | None) -> None:
        """A life begins: `last`: the key of what is due last; it is not waited for longer than anything ever is."""
        least_ms = 0 if last is None else _due_of(last) - MAX_WAIT_MS
        self._ahead_ms = max(wall_ms, least_ms) - now * 1000

    def clock_ms(self, now: float) -> int:
        """The time by which rows are due."""
        return int(now * 1000 + self._ahead_ms)

    # -- what comes --------------------------------------------------------------------------------------------------

    def admits(self, size_bytes: int, wall_ms: int, most_ahead_ms: float) -> bool:
        """Whether another put of that size may wait; not while the time of day is far behind what was given before."""
        has_room = self.puts < self._most_puts and self.bytes + size_bytes + ROW_BYTES <= self._most_bytes
        is_in_step = ms_of(self._time.last) <= wall_ms + most_ahead_ms
        return self._is_on and self.is_counted and not self.drains and has_room and is_in_step

    def accept(self, table: bytes, key: bytes, value: bytes, now: float, wall_ms: int) -> SmearedPut:
        """A put that is kept from now on, unless it cannot be synced (`forget`)."""
        after_ms = self._random.randrange(MAX_WAIT_MS)
        put = SmearedPut(self._row_at(now, after_ms), table, key, value, self._time.next(wall_ms))
        self.count(put)
        return put

    def count(self, put: SmearedPut) -> None:
        """It waits: it was accepted, or was found at the start."""
        self._time.merge(put.time)
        waits = self.tables.setdefault(put.table, TableBacklog())
        waits.puts += 1
        waits.bytes += put.size_bytes
        waits.last_ms = max(waits.last_ms, _due_of(put.at))
        self.puts += 1
        self.bytes += put.size_bytes

    def answered(self, table: bytes, why: str | None) -> None:
        """What was forwarded of a table is taken, or why it is not."""
        if (waits := self.tables.get(table)) is not None:
            waits.why = why

    def is_there(self, put: SmearedPut) -> None:
        """Its row can be read: it may be before the cursor already."""
        self._cursor = min(self._cursor, put.at)

    def forget(self, put: SmearedPut) -> None:
        """It waits no more."""
        self._unsend(put)
        waits = self.tables[put.table]
        waits.puts -= 1
        waits.bytes -= put.size_bytes
        if not waits.puts:
            del self.tables[put.table]
        self.puts -= 1
        self.bytes -= put.size_bytes

    # -- what goes ---------------------------------------------------------------------------------------------------

    def span(self, now: float) -> tuple[bytes, bytes] | None:
        """From where to before where rows are to be forwarded; None: none now, since enough is under way."""
        if self._is_full:
            return None
        due_ms = self.clock_ms(now) + (2 * MAX_WAIT_MS if self.drains else 0)
        return self._cursor, _at(due_ms)

    def until_s(self, waits: TableBacklog, now: float) -> float:
        """In how many seconds the last of a table is due."""
        return max(0, waits.last_ms - self.clock_ms(now)) / 1000

    @property
    def _is_full(self) -> bool:
        return len(self._sent) >= MAX_SENT or self._sent_bytes >= MAX_SENT_BYTES

    def send(self, puts: Iterable[SmearedPut]) -> list[SmearedPut]:
        """Those of what was read in order that are to be forwarded now; the rest is read again."""
        sent: list[SmearedPut] = []
        for put in puts:
            if self._is_full:
                break
            self._cursor = put.at + b"\0"
            if put.at not in self._sent:
                self._sent[put.at] = put
                self._sent_bytes += put.size_bytes
                sent.append(put)
        return sent

    def later(self, put: SmearedPut, now: float) -> SmearedPut:
        """The row that is to be in its place, of a put that nobody has taken; it is under way until that is there."""
        return put._replace(at=self._row_at(now, self._random.randint(*RETRY_MS)))

    def is_put_off(self, put: SmearedPut, again: SmearedPut) -> None:
        """Another row can be read in its place; or it stays itself, where none could be written."""
        self._unsend(put)
        self.is_there(again)

    def _unsend(self, put: SmearedPut) -> None:
        if self._sent.pop(put.at, None) is not None:
            self._sent_bytes -= put.size_bytes

    def _row_at(self, now: float, after_ms: int) -> bytes:
        return _at(self.clock_ms(now) + after_ms) + self._random.randbytes(PART_BYTES)


def _at(due_ms: int) -> bytes:
    return FIRST + due_ms.to_bytes(PART_BYTES, "big")


def _due_of(at: bytes) -> int:
    return int.from_bytes(at[len(FIRST) : len(FIRST) + PART_BYTES], "big")
