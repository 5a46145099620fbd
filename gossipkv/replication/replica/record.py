"""Records: the values under a replica's keys; the form is in `record.pyx`, the bytes are in `record.pxd`."""

from __future__ import annotations

from gossipkv.replication._replication import (
    DELETED,
    EXPIRING,
    PUT,
    Record,
    decode,
    dependencies,
    dot,
    encode,
    is_deleted,
    newest,
    value,
)
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
    "newest",
    "value",
]
