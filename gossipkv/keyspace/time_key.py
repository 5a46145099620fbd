"""Where in the keys of a time series the time stands.

A table that has a time key is one of ranges, whose keys have an unsigned big-endian number at the same place each:

    offset                 size     field
    0                      offset   what comes before: of keys that differ there no span is known
    offset                 width    time, in units since whenever: 1 to 8 bytes
    offset + width                  what comes behind: it may be anything, or nothing
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gossipkv.errors import ProtocolError

UNITS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}  # How many there are in a second.
MOST_WIDTH: Final = 8
MOST_END: Final = 65_522  # The longest key that a table may have; `table.records` says why.
SHORT_S: Final = 60  # A range of less than that is written to by all who write now.
NUMBER: Final = re.compile("[0-9]{1,5}")
FORM: Final = "OFFSET:WIDTH:UNIT, such as 0:8:ms; a width of 1 to 8 bytes, a unit of s, ms, us or ns"


class TimeKey(NamedTuple):
    """The place of the time in each key of a table."""

    offset: int
    width: int  # Bytes.
    unit: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.width}:{self.unit}"

    @property
    def end(self) -> int:
        """What the shortest key has, in bytes."""
        return self.offset + self.width

    def fault_of(self, key: bytes) -> str | None:
        """Why a key has no time; None: it has."""
        if len(key) >= self.end:
            return None
        where = f"bytes {self.offset} to {self.end - 1}" if self.width > 1 else f"byte {self.offset}"
        return f"a key of this table has its time, in {self.unit}, at {where}: it has {self.end} bytes at least"

    def is_short(self, first: bytes, end: bytes | None) -> bool:
        """Whether a range, from a key to before another, is of less than a minute; None: it has no end."""
        if end is None:
            return False
        low, high = first.ljust(self.offset, b"\0"), end.ljust(self.offset, b"\0")
        span = self.time_of(end) - self.time_of(first)
        return low[: self.offset] == high[: self.offset] and span < SHORT_S * UNITS[self.unit]

    def time_of(self, key: bytes) -> int:
        """The time of a key; of one that is too short the first that such keys have."""
        return int.from_bytes(key[self.offset : self.end].ljust(self.width, b"\0"), "big")


def time_key_of(value: object) -> TimeKey:
    """Read `[offset, width, unit]`.

    Raises:
        ProtocolError: no time key can be so.
    """
    match value:
        case [int(offset), int(width), str(unit)] if (
            unit in UNITS and 1 <= width <= MOST_WIDTH and 0 <= offset <= MOST_END - width
            and type(offset) is type(width) is int
        ):  # fmt: skip
            return TimeKey(offset, width, unit)
    raise ProtocolError(
        f"a time key is [offset, width, unit]: a width of 1 to {MOST_WIDTH} bytes, a unit of {', '.join(UNITS)}, and "
        f"all of it within the {MOST_END} bytes that a key may have",
        {"got": repr(value)[:80]},
    )


def parse_time_key(text: str) -> TimeKey:
    """Read what people write: `OFFSET:WIDTH:UNIT`.

    Raises:
        ProtocolError: no time key can be so.
    """
    offset, _, rest = text.partition(":")
    width, _, unit = rest.partition(":")
    if not NUMBER.fullmatch(offset) or not NUMBER.fullmatch(width):
        raise ProtocolError(f"a time key is {FORM}", {"got": text[:80]})
    return time_key_of([int(offset), int(width), unit])
