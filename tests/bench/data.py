"""The records that every engine is filled with: keys in random order, values that compress like real ones.

A key is 16 hexadecimal characters of a seeded generator, so neighbours share nothing (the hard case for prefix
compression, the usual one for hashed identifiers).  A value of 100 bytes is a small JSON object that names its own
number, so that no two are equal and every wrong answer is seen; larger values are several of those, cut to size.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

Record = tuple[bytes, bytes]

SEED = 42
SMALL_VALUE_BYTES = 100
LARGE_VALUE_BYTES = 1024
_OBJECT = b'{"id":%08d,"name":"user-%06x","score":%3d.%02d,"tags":["a","b"],"active":true,"region":"eu-%d"}   '


def _objects(count: int) -> list[bytes]:
    """Distinct values of exactly `SMALL_VALUE_BYTES` each."""
    objects = [
        (_OBJECT % (number, number * 2_654_435_761 % 0xFFFFFF, number % 1000, number % 97, number % 9)).ljust(
            SMALL_VALUE_BYTES
        )[:SMALL_VALUE_BYTES]
        for number in range(count)
    ]
    assert len(objects[-1]) == SMALL_VALUE_BYTES
    return objects


def _values(count: int, size_bytes: int) -> list[bytes]:
    objects = _objects(count)
    if size_bytes == SMALL_VALUE_BYTES:
        return objects
    parts = -(-size_bytes // SMALL_VALUE_BYTES)
    doubled = objects + objects[:parts]
    while len(doubled) < count + parts:
        doubled += objects
    return [b"".join(doubled[first : first + parts])[:size_bytes] for first in range(count)]


@dataclass(frozen=True)
class Data:
    """`count` records in random order, and as many keys that are in none of them."""

    count: int
    value_bytes: int
    records: list[Record] = field(repr=False)
    absent: list[bytes] = field(repr=False)

    @cached_property
    def in_order(self) -> list[Record]:
        """The records by key."""
        return sorted(self.records, key=itemgetter(0))

    @property
    def raw_bytes(self) -> int:
        """Keys and values, nothing else."""
        return sum(len(key) + len(value) for key, value in self.records)


def make(count: int, value_bytes: int) -> Data:
    """The same records for the same arguments, on every machine."""
    rng = random.Random(SEED)
    keys: dict[bytes, None] = {}
    while len(keys) < 2 * count:
        keys[b"%016x" % rng.getrandbits(64)] = None
    order = list(keys)
    return Data(
        count=count,
        value_bytes=value_bytes,
        records=list(zip(order[:count], _values(count, value_bytes), strict=True)),
        absent=order[count:],
    )


def fresh(keys: list[bytes]) -> list[bytes]:
    """Equal keys as new objects: a `bytes` remembers its hash, and a dict must not profit from an earlier round."""
    return [bytes(memoryview(key)) for key in keys]
