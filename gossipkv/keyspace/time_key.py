"""Time keys: the position of the time in the keys of a time series.

Only range tables have a time key. Each key has its time at the same position: an unsigned big-endian number, or the
start of an ISO 8601 text, which sorts by time as well:

    offset                 size     field
    0                      offset   prefix: between keys with different prefixes no span is defined
    offset                 width    time in units since any epoch, 1 to 8 bytes; or, in the unit `iso`, the first 10,
                                    13, 16 or 19 characters of `2026-11-27T13:37:25`, which count as seconds
    offset + width                  suffix: anything or nothing
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from gossipkv.errors import ProtocolError

ISO: Final = "iso"
UNITS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000, ISO: 1}  # Units per second.
MAX_WIDTH: Final = 8
WIDTHS: Final = {ISO: (10, 13, 16, 19)}  # Other units allow any width up to `MAX_WIDTH`.
FIRST: Final = b"0001-01-01T00:00:00"
MAX_END: Final = 65_522  # The longest key of a table; `table.records.endpoints` explains it.
TO_1970_S: Final = date(1970, 1, 1).toordinal() * 86_400 - 86_400  # Seconds of `iso` before 1970.
SHORT_S: Final = 60  # All present writers write to a range shorter than this.
NUMBER: Final = re.compile("[0-9]{1,5}")
EXAMPLE: Final = "2026-11-27T13:37:25"
FORM: Final = (
    "OFFSET:WIDTH:UNIT, such as 0:8:ms; WIDTH is 1 to 8 bytes with the UNIT s, ms, us or ns, or 10, 13, 16 or 19 "
    f"characters of {EXAMPLE} with the UNIT iso"
)


class TimeKey(NamedTuple):
    """The position of the time in each key of a table."""

    offset: int
    width: int  # A number of bytes.
    unit: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.width}:{self.unit}"

    @property
    def end(self) -> int:
        """The least length of a key, in bytes."""
        return self.offset + self.width

    def fault_of(self, key: bytes) -> str | None:
        """Return the reason why a key has no time; None if it has one."""
        if len(key) >= self.end and (
            self.unit != ISO or self.key_time(self.time_of(key)) == key[self.offset : self.end]
        ):
            return None
        how = f"as text such as {EXAMPLE[: self.width]}" if self.unit == ISO else f"in {self.unit}"
        where = f"bytes {self.offset} to {self.end - 1}" if self.width > 1 else f"byte {self.offset}"
        return f"the keys of this table have their time {how} at {where}, so a key needs at least {self.end} bytes"

    def is_short(self, first: bytes, end: bytes | None) -> bool:
        """Return True if the range from `first` to before `end` is shorter than a minute; `end` None means no end."""
        if end is None:
            return False
        span = self.time_of(end) - self.time_of(first)
        return self._is_one_series(first, end) and span < SHORT_S * UNITS[self.unit]

    def is_over(self, first: bytes, end: bytes | None, by_ms: int) -> bool:
        """Return True if all keys from `first` to before `end` have times before `by_ms`, in ms since 1970.

        False for a range with keys of several prefixes, and for one whose end is missing or has no time.
        """
        if end is None or not self._is_one_series(first, end):
            return False
        time = self.time_of(end)
        since_1970 = time - (TO_1970_S if self.unit == ISO else 0)
        return time > 0 and since_1970 * 1000 < by_ms * UNITS[self.unit]

    def _is_one_series(self, first: bytes, end: bytes) -> bool:
        """Return True if two bounds have the same prefix; bytes that a bound lacks count as 0."""
        low, high = first.ljust(self.offset, b"\0"), end.ljust(self.offset, b"\0")
        return low[: self.offset] == high[: self.offset]

    def time_of(self, key: bytes) -> int:
        """Return the time of a key; a key that is too short has the earliest time of its extensions."""
        time_bytes = key[self.offset : self.end]
        if self.unit != ISO:
            return int.from_bytes(time_bytes.ljust(self.width, b"\0"), "big")
        try:
            moment = datetime.fromisoformat((time_bytes + FIRST[len(time_bytes) :]).decode())
        except ValueError:  # A bound set by an operator may have no time.
            return 0
        return int((moment.replace(tzinfo=None) - datetime.fromordinal(1)).total_seconds())

    @property
    def most(self) -> int:
        """Upper bound of times, which no key reaches."""
        return date.max.toordinal() * 86_400 if self.unit == ISO else 1 << 8 * self.width

    def key_time(self, time: int) -> bytes:
        if self.unit != ISO:
            return time.to_bytes(self.width, "big")
        moment = datetime.fromordinal(1) + timedelta(seconds=min(time, self.most - 1))
        return moment.isoformat()[: self.width].encode()


def time_key_of(value: object) -> TimeKey:
    """Read `[offset, width, unit]`.

    Raises:
        ProtocolError: the value is no valid time key.
    """
    match value:
        case [int(offset), int(width), str(unit)] if (
            unit in UNITS and width in WIDTHS.get(unit, range(1, MAX_WIDTH + 1)) and 0 <= offset <= MAX_END - width
            and type(offset) is type(width) is int
        ):  # fmt: skip
            return TimeKey(offset, width, unit)
    raise ProtocolError(
        f"a time key is {FORM}; it must lie within the first {MAX_END:,} bytes of a key", {"got": repr(value)[:80]}
    )


def parse_time_key(text: str) -> TimeKey:
    """Read a time key in its text form, `OFFSET:WIDTH:UNIT`.

    Raises:
        ProtocolError: the text is no valid time key.
    """
    offset, _, rest = text.partition(":")
    width, _, unit = rest.partition(":")
    if not NUMBER.fullmatch(offset) or not NUMBER.fullmatch(width):
        raise ProtocolError(f"a time key is {FORM}", {"got": text[:80]})
    return time_key_of([int(offset), int(width), unit])
