"""One page of a scan: the partitions of a version merged in key order.

A hash-partitioned version has neighbouring keys in different files, each of them in order; a page is the merge of
one bounded scan of each.  A page ends with the record that reaches a limit: of records, of bytes, or the end.

The cursor says where the next page begins: `[version, last key]`, as MessagePack behind a checksum.  It pins the
version, so a scan never mixes two; when the version is retired meanwhile, the scan fails rather than jumps.  The
checksum tells a damaged cursor from a real one; it is no secret and defends against nobody.  The other options are
the client's to repeat.
"""

from __future__ import annotations

import contextlib
import heapq
import zlib
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, final

import msgpack

from gossipkv.errors import BadRequest
from gossipkv.node.arguments import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.node.served import ServedVersion

Record = tuple[bytes, bytes]

# A page holds up the loop while it is made and encoded: about 2 ms for this much of 100-byte records in one partition.
# Each partition adds a search, about 2 µs, to every page, however small, and a merge of many costs 1 µs a record, so a
# full page of 1,000 partitions takes 14 ms.  Scans that stayed open between pages would save the searches, and be
# memory that a client pins by asking; so we pay.
PAGE_BYTES = 1024 * 1024

_CHECKSUM_BYTES = 4


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """What to scan: keys from `start` (inclusive) to `end` (exclusive) that begin with `prefix`."""

    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    reverse: bool

    def after(self, key: bytes) -> Bounds:
        """What is left when everything up to `key` has been given."""
        if self.reverse:
            end = key if self.end is None else min(self.end, key)
            return Bounds(self.start, end, self.prefix, reverse=True)
        successor = key + b"\0"
        start = successor if self.start is None else max(self.start, successor)
        return Bounds(start, self.end, self.prefix, reverse=False)


def encode_cursor(version: str, last: bytes) -> bytes:
    """The cursor behind the record with the key `last`."""
    body: bytes = msgpack.packb([version, last])
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") + body


def decode_cursor(cursor: bytes) -> tuple[str, bytes]:
    """Version and last key.

    Raises:
        BadRequest: no cursor of ours.
    """
    body = cursor[_CHECKSUM_BYTES:]
    if int.from_bytes(cursor[:_CHECKSUM_BYTES], "big") == zlib.crc32(body) and body:
        with contextlib.suppress(ValueError):
            match msgpack.unpackb(body, raw=False):
                case [str(version), bytes(last)] if len(version) <= MAX_NAME_BYTES:
                    return version, last
    raise BadRequest("scan: the cursor is not one that this method returned")


def page(version: ServedVersion, bounds: Bounds, limit: int, page_bytes: int) -> tuple[list[Record], bytes | None]:
    """At most `limit` records and, but for the first, `page_bytes`; and the cursor when there are more.

    Raises:
        NotServed: a partition is not here.
        Corrupt: a file is damaged where the scan went.
    """
    records: list[Record] = []
    left = page_bytes
    with contextlib.ExitStack() as stack:
        merged = _merge(version, bounds, limit + 1, stack)
        for record in merged:
            size = len(record[0]) + len(record[1])
            if len(records) == limit or (records and size > left):
                return records, encode_cursor(version.name, records[-1][0])
            records.append(record)
            left -= size
    return records, None


def _merge(version: ServedVersion, bounds: Bounds, limit: int, stack: contextlib.ExitStack) -> Iterator[Record]:
    scans = []
    for partition in range(len(version.files)):
        scan = version.file(partition).scan(
            bounds.start, bounds.end, prefix=bounds.prefix, reverse=bounds.reverse, limit=limit
        )
        stack.callback(scan.close)
        scans.append(scan)
    if len(scans) == 1:
        return scans[0]
    return heapq.merge(*scans, key=itemgetter(0), reverse=bounds.reverse)
