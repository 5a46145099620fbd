"""Scans in Python: bounds, cursors, and a whole page at once for requests that the loop hands off.

The serving loop answers plain scans (`scan/scans.pyx`) in slices, through the same merge. The cursor, `[version, last
key]` as MessagePack behind a checksum, says where the next page begins. It pins the version, so a scan never mixes two;
if the version is retired meanwhile, the scan fails rather than jumps. The checksum detects damaged cursors; it is no
protection against forgery. The client repeats the other options.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import BadRequest
from gossipkv.keyspace import partitioner
from gossipkv.serving import _serving
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.wire.arguments import MAX_NAME_BYTES
from gossipkv.wire.opaque import OpaqueLimits, unpack
from gossipkv.wire.results import Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.serving.published import PublishedVersion

# Keys and values of one answer, as in `scan/scans.pyx`. A page of this size in 100-byte values takes 0.3 ms from one
# partition and 1.3 ms from 1,000: 0.6 µs for each searched partition, in every page, and 30 to 50 ns for a record.
# Scans kept open between pages would save the searches, but let clients pin memory.
PAGE_BYTES = 1024 * 1024

# A subset of the partitions is asked for its average share of a page, times MORE plus SPARE records.
MORE: Final = 1.25
SPARE: Final = 16

_CHECKSUM_BYTES = 4

# A cursor with the longest name and the longest key, and the heads of both.
_CURSOR = OpaqueLimits(6 + MAX_NAME_BYTES + 65_535, max_elements=2, max_depth=1)


@final
@dataclass(frozen=True, slots=True)
class ScanBounds:
    """The range of a scan: keys from `start` (inclusive) to `end` (exclusive) that begin with `prefix`."""

    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    reverse: bool

    def after(self, key: bytes) -> ScanBounds:
        """Return the range that remains behind `key`."""
        if self.reverse:
            end = key if self.end is None else min(self.end, key)
            return ScanBounds(self.start, end, self.prefix, reverse=True)
        successor = key + b"\0"
        start = successor if self.start is None else max(self.start, successor)
        return ScanBounds(start, self.end, self.prefix, reverse=False)

    def narrowed(self) -> ScanBounds:
        """Return the same range without a prefix."""
        if self.prefix is None:
            return self
        start = self.prefix if self.start is None else max(self.start, self.prefix)
        ends = [end for end in (self.end, prefix_end(self.prefix)) if end is not None]
        return ScanBounds(start, min(ends, default=None), None, self.reverse)


def encode_cursor(version: str, last: bytes) -> bytes:
    """Return the cursor behind the record with the key `last`."""
    body: bytes = msgpack.packb([version, last])
    return crc32c(body).to_bytes(_CHECKSUM_BYTES, "big") + body


def decode_cursor(cursor: bytes) -> tuple[str, bytes]:
    """Return version and last key of a cursor.

    Raises:
        BadRequest: the bytes are no cursor of this method.
    """
    body = cursor[_CHECKSUM_BYTES:]
    if int.from_bytes(cursor[:_CHECKSUM_BYTES], "big") == crc32c(body) and body:
        with contextlib.suppress(ValueError):
            match unpack(body, _CURSOR):
                case [str(version), bytes(last)] if len(version) <= MAX_NAME_BYTES:
                    return version, last
    raise BadRequest("scan: the cursor was not returned by this method")


@final
@dataclass(frozen=True, slots=True)
class ScanOrder:
    """A requested page.

    It has at most `limit` records of `partitions` within `keys` (without a prefix), and at most `page_bytes` bytes
    unless its first record is larger.
    """

    version: PublishedVersion
    partitions: PartitionSet
    keys: ScanBounds
    limit: int
    page_bytes: int
    max_value: int

    def share(self, partitions: PartitionSet) -> int:
        """Return how many records a subset of the partitions is asked for; the page is seldom shorter for it."""
        return min(self.limit, SPARE + math.ceil(MORE * self.limit * len(partitions) / len(self.version.files)))

    def answer(self, page: ScanPage) -> Packed:
        """Return the method's answer: these records, and the cursor if there are more."""
        name = self.version.name
        cursor = None if page.last is None else encode_cursor(name, page.last)
        return Packed(b"".join((b"\x93", page.packed, msgpack.packb(cursor), msgpack.packb(name))))


class ScanPage(NamedTuple):
    """Records in the order of the scan."""

    packed: bytes  # This is an array of `[key, value]` as MessagePack.
    last: bytes | None  # The last key if there are more records, else None.


def page(wanted: ScanOrder, partitions: PartitionSet) -> ScanPage:
    """Return the first records of these local partitions.

    Raises:
        NotServed: a partition is not here.
        Corrupt: a file is damaged where the scan went.
        TooLarge: the first value is longer than `max_value`.
    """
    files = [wanted.version.file(partition) for partition in partitions]
    keys = wanted.keys
    packed, last = _serving.page(
        files, keys.start, keys.end, keys.reverse, wanted.limit, wanted.page_bytes, wanted.max_value
    )
    return ScanPage(packed, last)


_HEAD = b"\x93"  # A scan answers an array of three.


class ScanRun(NamedTuple):
    """Records of one answer in scan order, from some of the partitions.

    Each answer has the first records of its partitions, and says if there are more behind its last one. Records behind
    the last key of an unfinished answer cannot be merged yet, so the page ends there, and the next page asks for them
    again. Records stay in MessagePack as received (`scan/merge.pyx`).
    """

    packed: bytes
    at: int  # The array of records begins at this byte of `packed`.
    more: bool  # Further records follow that were not answered.


def read_answer(packed: bytes, wanted: ScanOrder, partitions: PartitionSet, limit: int) -> ScanRun:
    """Check and return the answer of a member that was asked for at most `limit` records of these partitions.

    Raises:
        ValueError: the bytes are no answer of an owner of these partitions.
    """
    if not packed.startswith(_HEAD):
        raise ValueError("the answer to a scan has an unknown form")
    keys, version = wanted.keys, wanted.version
    asked = (partitioner.code(version.function), partitions.partitions, partitions.to_bytes())
    last, at = _serving.read_records(packed, len(_HEAD), keys.start, keys.end, keys.reverse, limit, asked)
    match msgpack.unpackb(b"\x92" + packed[at:]):
        case [cursor, version.name]:
            return ScanRun(packed, len(_HEAD), more=_is_behind(cursor, version.name, last))
    raise ValueError("the answer to a scan is not from the requested version")


def _is_behind(cursor: object, version: str, last: bytes | None) -> bool:
    """Return True if there are more records. Raises: ValueError if the cursor does not match the last record."""
    if cursor is not None and (last is None or cursor != encode_cursor(version, last)):
        raise ValueError("the cursor in the answer to a scan does not follow the last record")
    return cursor is not None


def merge(runs: Sequence[ScanRun], wanted: ScanOrder) -> ScanPage:
    """Merge runs that together hold all partitions into one page.

    Raises:
        TooLarge: the first value is longer than `max_value`.
        ValueError: two runs have the same key.
    """
    reverse, limit = wanted.keys.reverse, wanted.limit
    return ScanPage(*_serving.merge_runs([*runs], reverse, limit, wanted.page_bytes, wanted.max_value))
