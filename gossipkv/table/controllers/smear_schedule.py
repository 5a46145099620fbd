"""Insert smearing: selects the puts that a node keeps, and sets when each is due.

All writers of a time series write to its newest range. So a node that does not hold a range of less than a minute
keeps the puts to that range, and forwards each after a random time of up to two minutes. A burst reaches the hosts
spread over that time. This core does no I/O; `controllers.smear_buffer` does.

    accepted ──► synced ──► due ──► forwarded ──► answered ──► deleted
                   ▲                    │
                   └──── later again ◄──┘ refused, lost, or a crash

Waiting puts are only in the store, in the order in which they are due; this module counts them. The clock of due times
starts from the time of day at the start of the incarnation, and never jumps:

    key      due 8 (milliseconds) │ number 8 (random)
    value    [table, key, value, hybrid time of acceptance, expiry in ms since 1970 if there is one]

Hosts originate a put under its time of acceptance (`replication.replica.smeared`). If two nodes accept puts of one key
in the same millisecond, either put may win, the same one at all hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica.hlc import ms_of, next_time

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

MAX_WAIT_MS: Final = 120_000
MAX_PUTS: Final = 1_000_000  # Waiting puts; when there are as many, new puts are forwarded at once.
MAX_BYTES: Final = 1 << 30  # Bytes of waiting puts, with the same effect.
RETRY_MS: Final = (1_000, 10_000)  # Bounds of the delay before a refused put is due again.
MAX_SENT: Final = 4096  # Puts under way at a time.
MAX_SENT_BYTES: Final = 4 << 20  # Bytes of puts under way at a time.
ROW_BYTES: Final = 64  # Overhead of a put, beside its key and value.
PART_BYTES: Final = 8  # Bytes of each half of a row's key.
FIRST: Final = b"\1"  # All rows sort after this key; the key SMEARED of the space sorts before.


class SmearedPut(NamedTuple):
    """A put that waits."""

    at: bytes  # The key of its row.
    table: bytes
    key: bytes
    value: bytes
    time: int
    expires_ms: int = 0  # 0: never.

    @property
    def size_bytes(self) -> int:
        """The size that counts against the limits."""
        return len(self.key) + len(self.value) + ROW_BYTES

    def row(self) -> tuple[bytes, bytes]:
        """Return the row for the store: key, value."""
        return self.at, msgpack.packb(self[1:] if self.expires_ms else self[1:-1])


def put_of(at: bytes, value: bytes) -> SmearedPut:
    """Read a row.  Raises ProtocolError."""
    match msgpack.unpackb(value):
        case [bytes(table), bytes(key), bytes(data), int(time), *expiry] if (
            len(at) == len(FIRST) + 2 * PART_BYTES and len(expiry) <= 1
        ):
            return SmearedPut(at, table, key, data, time, *expiry)
    raise ProtocolError(
        "a smeared put must be [table, key, value, time] or [table, key, value, time, expiry]",
        {"got": repr(value)[:80]},
    )


@dataclass(slots=True)
class TableBacklog:
    """The waiting puts of a table."""

    puts: int = 0
    bytes: int = 0
    why: str | None = None  # Reason why the last forwarding failed.
    last_ms: int = 0  # Latest due time since the backlog was empty.


@final
class SmearSchedule:
    """The schedule of a node's waiting puts."""

    def __init__(
        self, random: Random, *, is_on: bool = True, most_puts: int = MAX_PUTS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._random = random
        self._is_on = is_on
        self._most_puts, self._most_bytes = most_puts, most_bytes
        self._time = 0  # The last hybrid time of an acceptance.
        self._ahead_ms = 0.0  # Offset of the clock of due times from the monotonic clock.
        self._cursor = FIRST  # All rows before the cursor are under way.
        self._sent: dict[bytes, SmearedPut] = {}
        self._sent_bytes = 0
        self.tables: dict[bytes, TableBacklog] = {}
        self.puts = 0
        self.bytes = 0
        self.is_counted = False  # True once the puts of a former incarnation are counted.
        self.drains = False  # If True, all puts are due, and no new put is kept.

    # -- the clock of due times --------------------------------------------------------------------------------------

    def begin(self, now: float, wall_ms: int, last: bytes | None) -> None:
        """Start the clock late enough that no row waits over two minutes; `last`: the key of the last row."""
        least_ms = 0 if last is None else _due_of(last) - MAX_WAIT_MS
        self._ahead_ms = max(wall_ms, least_ms) - now * 1000

    def clock_ms(self, now: float) -> int:
        """Return the time of the clock of due times."""
        return int(now * 1000 + self._ahead_ms)

    # -- new puts ----------------------------------------------------------------------------------------------------

    def admits(self, size_bytes: int, wall_ms: int, most_ahead_ms: float) -> bool:
        """True if a put of that size may wait; False while the time of day is far behind the last acceptance."""
        has_room = self.puts < self._most_puts and self.bytes + size_bytes + ROW_BYTES <= self._most_bytes
        is_in_step = ms_of(self._time) <= wall_ms + most_ahead_ms
        return self._is_on and self.is_counted and not self.drains and has_room and is_in_step

    def accept(
        self, table: bytes, key: bytes, value: bytes, now: float, wall_ms: int, *, expiry: int = 0
    ) -> SmearedPut:
        """Return a new waiting put; call `forget` if the put cannot be synced.  `expiry`: as in `RecordWrite`."""
        after_ms = self._random.randrange(MAX_WAIT_MS)
        expires_ms, time = wall_ms - expiry if expiry < 0 else expiry, next_time(self._time, wall_ms)
        put = SmearedPut(self._row_at(now, after_ms), table, key, value, time, expires_ms)
        self.count(put)
        return put

    def count(self, put: SmearedPut) -> None:
        """Count a put that waits: an accepted one, or one found at the start."""
        self._time = max(self._time, put.time)
        waits = self.tables.setdefault(put.table, TableBacklog())
        waits.puts += 1
        waits.bytes += put.size_bytes
        waits.last_ms = max(waits.last_ms, _due_of(put.at))
        self.puts += 1
        self.bytes += put.size_bytes

    def answered(self, table: bytes, why: str | None) -> None:
        """Record why a table's forwarded puts were refused; None if they were written."""
        if (waits := self.tables.get(table)) is not None:
            waits.why = why

    def is_there(self, put: SmearedPut) -> None:
        """Move the cursor back to a put whose row can be read now."""
        self._cursor = min(self._cursor, put.at)

    def forget(self, put: SmearedPut) -> None:
        """Remove a put from the counts."""
        self._unsend(put)
        waits = self.tables[put.table]
        waits.puts -= 1
        waits.bytes -= put.size_bytes
        if not waits.puts:
            del self.tables[put.table]
        self.puts -= 1
        self.bytes -= put.size_bytes

    # -- due puts ----------------------------------------------------------------------------------------------------

    def span(self, now: float) -> tuple[bytes, bytes] | None:
        """Return the first key and the end of the rows to forward; None while enough puts are under way."""
        if self._is_full:
            return None
        due_ms = self.clock_ms(now) + (2 * MAX_WAIT_MS if self.drains else 0)
        return self._cursor, _at(due_ms)

    def until_s(self, waits: TableBacklog, now: float) -> float:
        """Return the seconds until the last put of a table is due."""
        return max(0, waits.last_ms - self.clock_ms(now)) / 1000

    @property
    def _is_full(self) -> bool:
        return len(self._sent) >= MAX_SENT or self._sent_bytes >= MAX_SENT_BYTES

    def send(self, puts: Iterable[SmearedPut]) -> list[SmearedPut]:
        """Return the puts to forward now, of those read in order; the rest must be read again."""
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
        """Return the new row of a refused put, which stays under way until `is_put_off`."""
        return put._replace(at=self._row_at(now, self._random.randint(*RETRY_MS)))

    def is_put_off(self, put: SmearedPut, again: SmearedPut) -> None:
        """Replace a put by `again`, whose row can be read; or by itself, if no new row could be written."""
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
