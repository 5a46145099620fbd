"""Records: the values under a replica's keys; the form is in `record.pyx`, the bytes are in `record.pxd`."""

from __future__ import annotations

from typing import Final

from gossipkv.replication._replication import DELETED, EXPIRING, PUT, Record, decode, dot, encode, is_deleted, value
from gossipkv.replication._replication import check_record as check

__all__ = [
    "DELETED",
    "EXPIRING",
    "PUT",
    "Record",
    "check",
    "decode",
    "dependencies",
    "dot",
    "encode",
    "is_deleted",
    "value",
]

_LENGTH_AT: Final = 25  # Length of the dependencies.


def dependencies(data: bytes) -> bytes:
    """Return a record's dependencies; usually none, and then its value is not copied."""
    return b"" if data[_LENGTH_AT : _LENGTH_AT + 1] == b"\0" else decode(data).dependencies
