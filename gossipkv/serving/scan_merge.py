"""What other nodes answer to a scan: whether it may be believed, and the page that all answers make up.

Each answer is the first of its partitions' records, in order, and says whether there are more behind its last.  What
lies behind the last key of any that has more cannot be merged yet, so the page ends there; it is thrown away, and asked
for anew by the next page.  Records stay as they came, in MessagePack (`scan_merge.pyx`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.keyspace import partitioner
from gossipkv.serving import _serving
from gossipkv.serving.scan import Page, encode_cursor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.serving.scan import Wanted

_HEAD = b"\x93"  # Of an array of three: what a scan answers.


class Run(NamedTuple):
    """Records in the order of the scan, from some of the partitions."""

    packed: bytes
    at: int  # Where the array of records begins in it.
    more: bool  # Whether there are more behind them.


def read_answer(packed: bytes, wanted: Wanted, partitions: PartitionSet, limit: int) -> Run:
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
            return Run(packed, len(_HEAD), more=_is_behind(cursor, version.name, last))
    raise ValueError("no answer to a scan of that version")


def _is_behind(cursor: object, version: str, last: bytes | None) -> bool:
    """Whether there are more records behind the last; the cursor has to say so rightly."""
    if cursor is not None and (last is None or cursor != encode_cursor(version, last)):
        raise ValueError("a cursor that is not behind the last record")
    return cursor is not None


def merge(runs: Sequence[Run], wanted: Wanted) -> Page:
    """Return the page that these make up, which hold all partitions.

    Raises:
        TooLarge: the first value is longer than `max_value`.
        ValueError: two have the same key.
    """
    reverse, limit = wanted.keys.reverse, wanted.limit
    return Page(*_serving.merge_runs([*runs], reverse, limit, wanted.page_bytes, wanted.max_value))
