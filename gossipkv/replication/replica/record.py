"""What stands in a copy for a key: a record; what one is stands in `record.pyx`, and its bytes in `record.pxd`."""

from __future__ import annotations

from typing import Final

from gossipkv.replication._replication import DELETED, PUT, Record, decode, dot, encode, value, wins
from gossipkv.replication._replication import check_record as check

__all__ = [
    "DELETED",
    "PUT",
    "Record",
    "check",
    "decode",
    "dependencies",
    "dot",
    "encode",
    "is_deleted",
    "value",
    "wins",
]

_KIND_AT: Final = 24
_LENGTH_AT: Final = 25  # Of the dependencies.


def is_deleted(data: bytes) -> bool:
    """Whether a record is a tombstone: asked of each that is synced, so the rest of it is not decoded."""
    return data[_KIND_AT] == DELETED


def dependencies(data: bytes) -> bytes:
    """What a record depends on; mostly nothing, and then its value is not copied."""
    return b"" if data[_LENGTH_AT : _LENGTH_AT + 1] == b"\0" else decode(data).dependencies
