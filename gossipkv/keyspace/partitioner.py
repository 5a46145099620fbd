"""Partition functions: the partition of a key among N, under each function that existing jobs use.

A dataset arrives already partitioned by its writer, so the function is a property of its version and no setting.
`FUNCTIONS` names the known ones in the order in which they are tried; `docs/users/keyspace.md` describes each. A table
names one of `TABLE_HASHES`: a key's shard is that hash modulo the number of shards.

Invariant: a function's name and meaning never change, since manifests and other nodes store the name. The code is this
build's shorthand for the serving loop, and is never stored.

Hashes are Java's signed 32 bits; keys are bytes. The functions over text have no hash for a key that is not UTF-8: they
raise ValueError, since any substitute would be another program's answer.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gossipkv.keyspace import _keyspace
from gossipkv.keyspace._keyspace import alternate as sequins_alternate
from gossipkv.keyspace._keyspace import cascading as cascading_hash
from gossipkv.keyspace._keyspace import murmur3_32, sha1
from gossipkv.keyspace._keyspace import sequins as sequins_hash
from gossipkv.keyspace._keyspace import string as string_hash
from gossipkv.keyspace._keyspace import text as writable_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "FUNCTIONS",
    "TABLE_HASHES",
    "cascading_hash",
    "code",
    "hash_function",
    "murmur3_32",
    "partition",
    "sequins_alternate",
    "sequins_hash",
    "sha1",
    "string_hash",
    "writable_hash",
]

# In the order of the codes in `hashing.pxd`. Spark's differs from `string` in the remainder alone.
_HASHES: Mapping[str, Callable[[bytes], int]] = MappingProxyType(
    {
        "sequins": sequins_hash,
        "text": writable_hash,
        "string": string_hash,
        "spark": string_hash,
        "cascading": cascading_hash,
    }
)

FUNCTIONS: tuple[str, ...] = tuple(_HASHES)

_CODES: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(FUNCTIONS)})


def _sha1_number(key: bytes) -> int:
    """Return the SHA-1 digest as a number, big-endian."""
    return int.from_bytes(sha1(key), "big")


TABLE_HASHES: Mapping[str, Callable[[bytes], int]] = MappingProxyType({"murmur3": murmur3_32, "sha1": _sha1_number})


def code(name: str) -> int:
    """Return the code of this function in the serving loop: its index in `FUNCTIONS`.

    Raises:
        ValueError: no function has that name.
    """
    try:
        return _CODES[name]
    except KeyError:
        raise ValueError(f"unknown partition function {name!r}; known functions are {', '.join(FUNCTIONS)}") from None


def hash_function(name: str) -> Callable[[bytes], int]:
    """Return the hash of this partition function: it maps bytes to a signed 32-bit number.

    Raises:
        ValueError: no function has that name.
    """
    return _HASHES[FUNCTIONS[code(name)]]


def partition(name: str, key: bytes, count: int) -> int:
    """Return the partition, among `count`, that holds the key, counted from 0.

    Raises:
        ValueError: no function has that name, the count is below 1 or over the platform's size type, or the function
            needs text and the key is not UTF-8.
    """
    return _keyspace.partition(code(name), key, count)
