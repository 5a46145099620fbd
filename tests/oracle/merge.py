"""The merge of a store in plain Python: dicts from keys, which begin with their space, to flagged values.

This module imports nothing from the package; the bytes follow `operation.pxd`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

VALUE, TOMBSTONE, NEW_SPACE, DROPPED_SPACE = 1, 2, 3, 4

Operation = tuple[int, int, bytes, bytes]  # kind, space, key, value
Records = dict[bytes, bytes]


def key_of(space: int, key: bytes = b"") -> bytes:
    return space.to_bytes(4, "big") + key


def encode(operations: Iterable[Operation]) -> bytes:
    parts = []
    for kind, space, key, value in operations:
        whole = key_of(space, key)
        parts.append(struct.pack("<BHI", kind, len(whole), len(value)) + whole + value)
    return b"".join(parts)


def records(operations: Iterable[Operation]) -> Records:
    return {
        key_of(space, key): bytes([kind]) + value
        for kind, space, key, value in operations
        if kind in {VALUE, TOMBSTONE}
    }


def merged(
    newest_first: Sequence[Records], spaces: Collection[int], *, drops_tombstones: bool
) -> list[tuple[bytes, bytes]]:
    found: Records = {}
    for one in reversed(newest_first):
        found |= one
    return [
        (key, value)
        for key, value in sorted(found.items())
        if int.from_bytes(key[:4], "big") in spaces and not (drops_tombstones and value[0] == TOMBSTONE)
    ]


def answers(newest_first: Sequence[Records], spaces: Collection[int]) -> Records:
    """Return the live records of a store of these runs, without flags."""
    return {key: value[1:] for key, value in merged(newest_first, spaces, drops_tombstones=True)}
