"""Records: the values under a replica's keys; the form is in `record.pyx`, the bytes are in `record.pxd`."""

from __future__ import annotations

from gossipkv.replication._replication import (
    DELETED,
    EXPIRING,
    MAX_TOMBSTONES,
    PAGE_BYTES,
    PUT,
    Record,
    RecordWrite,
    decode,
    dependencies,
    dot,
    encode,
    expires_ms,
    is_deleted,
    join_pages,
    new_records,
    newest,
    read_page,
    value,
)
from gossipkv.replication._replication import check_record as check

__all__ = [
    "DELETED",
    "EXPIRING",
    "MAX_TOMBSTONES",
    "PAGE_BYTES",
    "PUT",
    "Record",
    "RecordWrite",
    "check",
    "decode",
    "dependencies",
    "dot",
    "encode",
    "expires_ms",
    "is_deleted",
    "join_pages",
    "new_records",
    "newest",
    "read_page",
    "value",
]
