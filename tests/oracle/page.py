"""Pages of a table's scan in plain Python: `select` gives the records of a part of a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.oracle import record
from tests.oracle.memtable import VALUE
from tests.oracle.view import select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = tuple[bytes, bytes]  # A key, and its record or value.
    Part = tuple[int, bytes, bytes]  # A space, and the internal keys there between which records are read.

MAX_TOMBSTONES = 4096
PAGE_BYTES = 1 << 20


class Page(NamedTuple):
    rows: list[Row]
    bound: bytes | None
    counters: dict[int, int]
    dependencies: set[bytes]


def behind(key: bytes, *, reverse: bool) -> bytes:
    """Return the bound before a key."""
    return key + b"\0" if reverse else key


def read(
    layers: Sequence[Mapping[bytes, bytes]], parts: Sequence[Part], *, reverse: bool, limit: int, now_ms: int = 0
) -> Page:
    """Return the page of all parts together."""
    found = [
        (key[1:], value[1:])
        for space, start, end in parts
        for key, value in select(layers, space, start, end)
        if value[0] == VALUE
    ]
    page, tombstones, size_bytes = Page([], None, {}, set()), 0, 0
    for key, data in sorted(found, reverse=reverse):
        if len(page.rows) == limit or tombstones == MAX_TOMBSTONES or size_bytes > PAGE_BYTES:
            return page._replace(bound=behind(key, reverse=reverse))
        fields = record.decode(data)
        assert fields is not None
        _, origin, counter, kind, dependencies, _, expires_ms = fields
        page.counters[origin] = max(page.counters.get(origin, 0), counter)
        page.dependencies.update({dependencies} - {b""})
        size_bytes += len(key) + len(data)
        if kind == record.DELETED or 0 < expires_ms <= now_ms:
            tombstones += 1
        else:
            page.rows.append((key, data))
    return page


def join(
    pages: Sequence[Sequence[Row]], bound: bytes | None, *, reverse: bool, limit: int
) -> tuple[list[Row], int, bytes | None]:
    """Return the keys and values of pages up to a bound, their size, and the bound that was reached."""
    rows: list[Row] = []
    size_bytes = 0
    for key, data in sorted((row for page in pages for row in page), reverse=reverse):
        if bound is not None and (key < bound if reverse else key >= bound):
            break
        if len(rows) == limit or size_bytes > PAGE_BYTES:
            return rows, size_bytes, behind(key, reverse=reverse)
        fields = record.decode(data)
        assert fields is not None
        rows.append((key, fields[5]))
        size_bytes += len(key) + len(fields[5])
    return rows, size_bytes, bound
