"""Records that a contestant with little memory can tell right from wrong without keeping them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.data import Record

RECORD_BYTES = 116
VALUE_BYTES = 100
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # Of splitmix64.
WORD = (1 << 64) - 1
_OBJECT = b'{"id":%08d,"name":"user-%06x","score":%3d.%02d,"tags":["a","b"],"active":true,"region":"eu-%d"}   '


def key_of(number: int) -> bytes:
    """The key of that number, 16 hexadecimal digits; neighbours share nothing, and no two are equal."""
    mixed = number * STEP & WORD
    mixed = (mixed ^ mixed >> 30) * FIRST & WORD
    mixed = (mixed ^ mixed >> 27) * SECOND & WORD
    return b"%016x" % (mixed ^ mixed >> 31)


def value_of(number: int) -> bytes:
    """The value of that number, `VALUE_BYTES` of a small JSON object; all differ."""
    fields = (number, number * 2_654_435_761 % 0xFFFFFF, number % 1000, number % 97, number % 9)
    return (_OBJECT % fields).ljust(VALUE_BYTES)[:VALUE_BYTES]


def make(count: int) -> list[Record]:
    """So many records by number, which is no order of keys."""
    return [(key_of(number), value_of(number)) for number in range(count)]


def checksum(records: Iterable[Record]) -> int:
    """What tells a run of records from any other."""
    found = 0
    for key, value in records:
        found = zlib.crc32(value, zlib.crc32(key, found))
    return found
