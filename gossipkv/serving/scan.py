"""What of a scan Python decides: its bounds, its cursor, and a whole page at once for what the loop hands off.

A plain scan is answered by the serving loop (`scans.pyx`), in slices, through the same merge.  The cursor says where
the next page begins: `[version, last key]`, as MessagePack behind a checksum.  It pins the version, so a scan never
mixes two; when the version is retired meanwhile, the scan fails rather than jumps.  The checksum tells a damaged
cursor from a real one; it is no secret and defends against nobody.  The other options are the client's to repeat.
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
from gossipkv.wire.results import Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.serving.published import PublishedVersion

# Keys and values of one answer, as in `scans.pyx`.  A page of this much in 100-byte values is made in 0.3 ms from
# one partition and in 1.3 ms from 1,000: 0.6 µs for each that is searched, in every page, however small, and 30 to 50
# ns for a record.  Scans that stayed open between pages would save the searches, and be memory that a client pins by
# asking; so we pay.
PAGE_BYTES = 1024 * 1024

# Some of the partitions are asked for what they have of a page on average, so many times, and so many records more.
MORE: Final = 1.25
SPARE: Final = 16

_CHECKSUM_BYTES = 4

# A cursor with the longest name and the longest key, and the heads of both.
_LONGEST_CURSOR = _CHECKSUM_BYTES + 6 + MAX_NAME_BYTES + 65_535


@final
@dataclass(frozen=True, slots=True)
class ScanBounds:
    """What to scan: keys from `start` (inclusive) to `end` (exclusive) that begin with `prefix`."""

    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    reverse: bool

    def after(self, key: bytes) -> ScanBounds:
        """What is left when everything up to `key` has been given."""
        if self.reverse:
            end = key if self.end is None else min(self.end, key)
            return ScanBounds(self.start, end, self.prefix, reverse=True)
        successor = key + b"\0"
        start = successor if self.start is None else max(self.start, successor)
        return ScanBounds(start, self.end, self.prefix, reverse=False)

    def narrowed(self) -> ScanBounds:
        """The same without a prefix."""
        if self.prefix is None:
            return self
        start = self.prefix if self.start is None else max(self.start, self.prefix)
        ends = [end for end in (self.end, prefix_end(self.prefix)) if end is not None]
        return ScanBounds(start, min(ends, default=None), None, self.reverse)


def encode_cursor(version: str, last: bytes) -> bytes:
    """The cursor behind the record with the key `last`."""
    body: bytes = msgpack.packb([version, last])
    return crc32c(body).to_bytes(_CHECKSUM_BYTES, "big") + body


def decode_cursor(cursor: bytes) -> tuple[str, bytes]:
    """Version and last key.

    Raises:
        BadRequest: no cursor of ours.
    """
    body = b"" if len(cursor) > _LONGEST_CURSOR else cursor[_CHECKSUM_BYTES:]
    if int.from_bytes(cursor[:_CHECKSUM_BYTES], "big") == crc32c(body) and body:
        with contextlib.suppress(ValueError):
            match msgpack.unpackb(body, raw=False):
                case [str(version), bytes(last)] if len(version) <= MAX_NAME_BYTES:
                    return version, last
    raise BadRequest("scan: the cursor is not one that this method returned")


@final
@dataclass(frozen=True, slots=True)
class ScanOrder:
    """The page that is asked for.

    At most `limit` records of `partitions` within `keys` (without a prefix) and, but for the first, `page_bytes`.
    """

    version: PublishedVersion
    partitions: PartitionSet
    keys: ScanBounds
    limit: int
    page_bytes: int
    max_value: int

    def share(self, partitions: PartitionSet) -> int:
        """How many records some of the partitions are asked for: seldom is the page the shorter for it."""
        return min(self.limit, SPARE + math.ceil(MORE * self.limit * len(partitions) / len(self.version.files)))

    def answer(self, page: ScanPage) -> Packed:
        """What the method answers: these records, and the cursor when there are more."""
        name = self.version.name
        cursor = None if page.last is None else encode_cursor(name, page.last)
        return Packed(b"".join((b"\x93", page.packed, msgpack.packb(cursor), msgpack.packb(name))))


class ScanPage(NamedTuple):
    """Records in the order of the scan."""

    packed: bytes  # An array of `[key, value]`, as MessagePack.
    last: bytes | None  # The last key when there are more behind it.


def page(wanted: ScanOrder, partitions: PartitionSet) -> ScanPage:
    """The first records of these partitions, which are here.

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


_HEAD = b"\x93"  # Of an array of three: what a scan answers.


class ScanRun(NamedTuple):
    """Records of one answer in the order of the scan, from some of the partitions.

    Each answer is the first of its partitions' records, in order, and says whether there are more behind its last.
    What lies behind the last key of any that has more cannot be merged yet, so the page ends there; it is thrown away,
    and asked for anew by the next page.  Records stay as they came, in MessagePack (`scan_merge.pyx`).
    """

    packed: bytes
    at: int  # Where the array of records begins in it.
    more: bool  # Whether there are more behind them.


def read_answer(packed: bytes, wanted: ScanOrder, partitions: PartitionSet, limit: int) -> ScanRun:
    """Return what a member has answered that was asked for at most `limit` records of these partitions.

    Raises:
        ValueError: it is no answer of an owner of them.
    """
    if not packed.startswith(_HEAD):
        raise ValueError("no answer to a scan")
    keys, version = wanted.keys, wanted.version
    asked = (partitioner.code(version.function), partitions.partitions, partitions.to_bytes())
    last, at = _serving.read_records(packed, len(_HEAD), keys.start, keys.end, keys.reverse, limit, asked)
    match msgpack.unpackb(b"\x92" + packed[at:]):
        case [cursor, version.name]:
            return ScanRun(packed, len(_HEAD), more=_is_behind(cursor, version.name, last))
    raise ValueError("no answer to a scan of that version")


def _is_behind(cursor: object, version: str, last: bytes | None) -> bool:
    """Whether there are more records behind the last; the cursor has to say so rightly."""
    if cursor is not None and (last is None or cursor != encode_cursor(version, last)):
        raise ValueError("a cursor that is not behind the last record")
    return cursor is not None


def merge(runs: Sequence[ScanRun], wanted: ScanOrder) -> ScanPage:
    """Return the page that these make up, which hold all partitions.

    Raises:
        TooLarge: the first value is longer than `max_value`.
        ValueError: two have the same key.
    """
    reverse, limit = wanted.keys.reverse, wanted.limit
    return ScanPage(*_serving.merge_runs([*runs], reverse, limit, wanted.page_bytes, wanted.max_value))
