"""The records of all engines, made anew from a seed or a number wherever they are needed.

`make` has keys in random order, 16 hexadecimal characters of a seeded generator, so neighbours share nothing (the hard
case for prefix compression, the usual one for hashed identifiers). `numbered` records can be verified without being
kept: a key is its number times an odd constant modulo 2^64, so that consecutive numbers give scattered keys, and its
value is made from it. `Noise` has values that cannot be compressed and name their put.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = tuple[bytes, bytes]

SEED = 42
KEY_BYTES = 16
SMALL_VALUE_BYTES = 100
LARGE_VALUE_BYTES = 1024
RECORD_BYTES = KEY_BYTES + SMALL_VALUE_BYTES

RANGE = 1 << 64
FACTOR = 0x9E3779B97F4A7C15
INVERSE = pow(FACTOR, -1, RANGE)
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # The constants of splitmix64, whose step is `FACTOR`.

_OBJECT = b'{"id":%08d,"name":"user-%06x","score":%3d.%02d,"tags":["a","b"],"active":true,"region":"eu-%d"}   '


def object_of(number: int) -> bytes:
    """Return a small JSON object of `SMALL_VALUE_BYTES` with its own number: no two are equal."""
    fields = (number, number * 2_654_435_761 % 0xFFFFFF, number % 1000, number % 97, number % 9)
    return (_OBJECT % fields).ljust(SMALL_VALUE_BYTES)[:SMALL_VALUE_BYTES]


def _values(count: int, size_bytes: int) -> list[bytes]:
    """Return distinct values: objects, or several of them cut to size."""
    objects = [object_of(number) for number in range(count)]
    parts = -(-size_bytes // SMALL_VALUE_BYTES)
    doubled = objects + objects[:parts]
    while len(doubled) < count + parts:
        doubled += objects
    return [b"".join(doubled[first : first + parts])[:size_bytes] for first in range(count)]


@dataclass(frozen=True)
class Data:
    """`count` records in random order, and as many absent keys."""

    count: int
    value_bytes: int
    records: list[Record] = field(repr=False)
    absent: list[bytes] = field(repr=False)

    @cached_property
    def in_order(self) -> list[Record]:
        return sorted(self.records, key=itemgetter(0))

    @property
    def raw_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.records)


def make(count: int, value_bytes: int = SMALL_VALUE_BYTES) -> Data:
    """Make the same records for the same arguments, on every machine."""
    rng = random.Random(SEED)
    keys: dict[bytes, None] = {}
    while len(keys) < 2 * count:
        keys[b"%016x" % rng.getrandbits(64)] = None
    order = list(keys)
    records = list(zip(order[:count], _values(count, value_bytes), strict=True))
    return Data(count, value_bytes, records, order[count:])


def fresh(keys: list[bytes]) -> list[bytes]:
    """Return equal keys as new objects: a `bytes` caches its hash, and a dict must not profit from an earlier round."""
    return [bytes(memoryview(key)) for key in keys]


def key_of(number: int) -> bytes:
    return b"%016x" % (number * FACTOR % RANGE)


def number_of(key: bytes) -> int:
    return int(key, 16) * INVERSE % RANGE


def value_of(key: bytes, value_bytes: int = SMALL_VALUE_BYTES) -> bytes:
    return (key * (value_bytes // KEY_BYTES + 1))[:value_bytes]


def numbered(count: int, value_bytes: int = SMALL_VALUE_BYTES) -> Iterator[Record]:
    for number in range(count):
        key = key_of(number)
        yield key, value_of(key, value_bytes)


def mixed_key_of(number: int) -> bytes:
    """Return a key of that number that is unrelated to its neighbours': popular numbers are scattered unevenly."""
    mixed = number * FACTOR % RANGE
    mixed = (mixed ^ mixed >> 30) * FIRST % RANGE
    mixed = (mixed ^ mixed >> 27) * SECOND % RANGE
    return b"%016x" % (mixed ^ mixed >> 31)


def mixed(count: int) -> list[Record]:
    """Return so many records of such keys and objects."""
    return [(mixed_key_of(number), object_of(number)) for number in range(count)]


def checksum(records: Iterable[Record]) -> int:
    """Return a checksum that identifies a run of records."""
    found = 0
    for key, value in records:
        found = zlib.crc32(value, zlib.crc32(key, found))
    return found


class Noise:
    """Values of one size from one pool of noise, each stamped with the number of the put that writes it."""

    def __init__(self, value_bytes: int = SMALL_VALUE_BYTES) -> None:
        self._bytes = value_bytes - 8
        self._pool = random.Random(SEED).randbytes(1 << 20)

    def of(self, put: int) -> bytes:
        """Return the value that the put with this number writes."""
        at = put * 7919 % (len(self._pool) - self._bytes)
        return put.to_bytes(8, "little") + self._pool[at : at + self._bytes]
