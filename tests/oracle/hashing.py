"""The hashes in plain Python, each from its own definition and none from the package.

The code is meant to be compared with the rules by eye: exact integers, wrapped once at the end, no unrolling, and
CPython's own UTF-8 decoder.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX = 2**31 - 1


def signed(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def polynomial(units: Iterable[int], start: int) -> int:
    h = start
    for unit in units:
        h = h * 31 + unit
    return signed(h)


def sequins(key: bytes) -> int:
    return polynomial(key, 0)


def text(key: bytes) -> int:
    return polynomial(struct.unpack(f"{len(key)}b", key), 1)


def string(key: bytes) -> int:
    """Hash UTF-16 code units, from 0; UnicodeDecodeError if the key is no text."""
    units = key.decode("utf-8").encode("utf-16-be")
    return polynomial(struct.unpack(f">{len(units) // 2}H", units), 0)


def cascading(key: bytes) -> int:
    """Return `Tuple.hashCode` of one element: 31 * 1 + the element's."""
    return signed(31 + string(key))


HASHES: dict[str, Callable[[bytes], int]] = {
    "sequins": sequins,
    "text": text,
    "string": string,
    "spark": string,
    "cascading": cascading,
}


def partition(name: str, key: bytes, count: int) -> int:
    """Return Hadoop's remainder of the unsigned hash; Spark's has the sign of the divisor, like Python's."""
    h = HASHES[name](key)
    return h % count if name == "spark" else (h & MAX) % count


def sequins_alternate(key: bytes, count: int) -> int:
    """Return the alternate partition where it exists, else the partition."""
    h = sequins(key)
    if h > MAX - 32:
        return (((h + 31) & MAX) % count + count - 31 % count) % count
    return (h & MAX) % count


def murmur3_32(key: bytes, seed: int = 0) -> int:
    def rotate(word: int, by: int) -> int:
        return (word << by | word >> 32 - by) % 2**32

    def mix(block: bytes) -> int:
        word = int.from_bytes(block, "little")
        return rotate(word * 0xCC9E2D51 % 2**32, 15) * 0x1B873593 % 2**32

    h = seed
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        h = (rotate(h ^ mix(key[at : at + 4]), 13) * 5 + 0xE6546B64) % 2**32
    h ^= mix(key[whole:])  # An empty tail mixes to 0.
    h ^= len(key)
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def sha1(key: bytes) -> bytes:
    return hashlib.sha1(key, usedforsecurity=False).digest()
