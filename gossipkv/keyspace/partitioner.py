"""Which of N partitions a key is in, under each function that jobs in the wild use.

A dataset arrives already partitioned by whatever wrote it, so the function is a property of its version, not a
setting of ours: `FUNCTIONS` names the known ones in the order in which they are tried.  `docs/users/keyspace.md` says
what each is and whose it is.  A table says which of `TABLE_HASHES` it uses: a key's shard is that modulo their number.

Invariant: a function's name and meaning never change, since manifests and other nodes hold the name.  The code is
this build's shorthand for the serving loop, and is written nowhere.

Hashes are Java's signed 32 bits; keys are bytes.  The functions over text have no hash for a key that is not
UTF-8: they raise ValueError, since any substitute would be another program's answer.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gossipkv.keyspace import _hashing
from gossipkv.keyspace._hashing import alternate as sequins_alternate
from gossipkv.keyspace._hashing import cascading as cascading_hash
from gossipkv.keyspace._hashing import murmur3_32, sha1
from gossipkv.keyspace._hashing import sequins as sequins_hash
from gossipkv.keyspace._hashing import string as string_hash
from gossipkv.keyspace._hashing import text as writable_hash

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

# In the order of the codes in `_hashing.pxd`.  Spark's differs from `string` in the remainder alone.
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
    """The hash of seed 004: the digest as a number, big-endian."""
    return int.from_bytes(sha1(key), "big")


TABLE_HASHES: Mapping[str, Callable[[bytes], int]] = MappingProxyType({"murmur3": murmur3_32, "sha1": _sha1_number})


def code(name: str) -> int:
    """The number by which the serving loop knows this function: its place in `FUNCTIONS`.

    Raises:
        ValueError: no function has that name.
    """
    try:
        return _CODES[name]
    except KeyError:
        raise ValueError(f"unknown partition function {name!r}; known are {', '.join(FUNCTIONS)}") from None


def hash_function(name: str) -> Callable[[bytes], int]:
    """The hash below this partition function: bytes to a signed 32-bit number.

    Raises:
        ValueError: no function has that name.
    """
    return _HASHES[FUNCTIONS[code(name)]]


def partition(name: str, key: bytes, count: int) -> int:
    """The partition of `count` that holds the key, counted from 0.

    Raises:
        ValueError: no function has that name, the count is below 1 or over the platform's size type, or the function
            needs text and the key is not UTF-8.
    """
    return _hashing.partition(code(name), key, count)
