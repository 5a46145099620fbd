"""One answer to a scan in plain Python, from docs/users/wire.md: its records and its cursor.

The cursor is the node's own format, taken from `gossipkv.serving.scan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from tests.oracle.sorted_file import Record, crc32c, select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE_BYTES = 1 << 20


def page(
    records: Sequence[Record],
    start: bytes | None,
    end: bytes | None,
    *,
    reverse: bool,
    limit: int,
    page_bytes: int,
) -> tuple[list[Record], bool]:
    """Return the records of one page, and True if there are more."""
    found = select(records, start, end, reverse=reverse)
    taken: list[Record] = []
    room = page_bytes
    for key, value in found[:limit]:
        room -= len(key) + len(value)
        if taken and room < 0:
            break
        taken.append((key, value))
    return taken, len(taken) < len(found)


def cursor(version: str, last: bytes) -> bytes:
    body: bytes = msgpack.packb([version, last])
    return crc32c(body).to_bytes(4, "big") + body


def read_cursor(data: bytes) -> tuple[str, bytes] | None:
    """Return version and last key; None if the cursor is invalid."""
    if len(data) < 5 or crc32c(data[4:]) != int.from_bytes(data[:4], "big"):
        return None
    try:
        found = msgpack.unpackb(data[4:], raw=False)
    except ValueError:
        return None
    plain = isinstance(found, list) and [type(part) for part in found] == [str, bytes]
    return (found[0], found[1]) if plain else None


def result(
    records: Sequence[Record], version: str, options: Mapping[str, object], *, scan_limit: int, max_frame: int
) -> list[object]:
    """Return `[[[key, value], ...], cursor or nil, version]` for valid options; `version` is the chosen one."""
    start, end, limit = options.get("start"), options.get("end"), options.get("limit")
    reverse = bool(options.get("reverse"))
    prefix, given = options.get("prefix"), options.get("cursor")
    assert start is None or isinstance(start, bytes)
    assert end is None or isinstance(end, bytes)
    assert limit is None or isinstance(limit, int)
    if isinstance(prefix, bytes):
        records = [record for record in records if record[0].startswith(prefix)]
    if isinstance(given, bytes):
        read = read_cursor(given)
        assert read is not None
        records = [record for record in records if (record[0] < read[1] if reverse else record[0] > read[1])]
    found, more = page(
        records,
        start,
        end,
        reverse=reverse,
        limit=scan_limit if limit is None else min(limit, scan_limit),
        page_bytes=min(PAGE_BYTES, (max_frame - 1024) // 2),
    )
    return [[[key, value] for key, value in found], cursor(version, found[-1][0]) if more else None, version]


def merged(
    runs: Sequence[tuple[Sequence[Record], bool]], *, reverse: bool, limit: int, page_bytes: int
) -> tuple[list[Record], bool]:
    """Merge sorted runs, each with a flag for further records, into one page; return the page and the same flag."""
    ends = [records[-1][0] for records, has_more in runs if has_more]
    known = sorted((record for records, _ in runs for record in records), reverse=reverse)
    if ends:
        end = max(ends) if reverse else min(ends)
        known = [record for record in known if (record[0] >= end if reverse else record[0] <= end)]
    taken: list[Record] = []
    for key, value in known[:limit]:
        page_bytes -= len(key) + len(value)
        if taken and page_bytes < 0:
            break
        taken.append((key, value))
    return taken, bool(ends) or len(taken) < len(known)
