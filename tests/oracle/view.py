"""A view in plain Python: layers of internal keys and flagged values, the newest first, and their merged contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle import sorted_file
from tests.oracle.memtable import TOMBSTONE, VALUE, internal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Record = tuple[bytes, bytes]
Layer = "Mapping[bytes, bytes]"


def merged(layers: Sequence[Mapping[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the newest value of each key, in key order, with tombstones."""
    newest: dict[bytes, bytes] = {}
    for layer in reversed(layers):
        newest.update(layer)
    assert all(value[0] in {VALUE, TOMBSTONE} for value in newest.values())
    return dict(sorted(newest.items()))


def get(layers: Sequence[Mapping[bytes, bytes]], space: int, key: bytes) -> bytes | None:
    for layer in layers:
        found = layer.get(internal(space, key))
        if found is not None:
            return found[1:] if found[0] == VALUE else None
    return None


def select(
    layers: Sequence[Mapping[bytes, bytes]],
    space: int,
    start: bytes | None = None,
    end: bytes | None = None,
    *,
    reverse: bool = False,
) -> list[Record]:
    """Return keys without their space, and values with their flags, between two bounds, with tombstones."""
    found = [
        (key[4:], value)
        for key, value in merged(layers).items()
        if key[:4] == internal(space, b"") and (start is None or key[4:] >= start) and (end is None or key[4:] < end)
    ]
    return found[::-1] if reverse else found


def scan(
    layers: Sequence[Mapping[bytes, bytes]],
    space: int,
    start: bytes | None = None,
    end: bytes | None = None,
    *,
    reverse: bool = False,
    limit: int | None = None,
    most_bytes: int,
) -> tuple[list[Record], bytes | None]:
    """Return one page and the start of the next one: the next key, even a deleted one."""
    page: list[Record] = []
    for key, value in select(layers, space, start, end, reverse=reverse):
        behind = key + b"\0" if reverse else key
        if limit is not None and len(page) == limit:
            return page, behind
        if value[0] == TOMBSTONE:
            continue
        most_bytes -= len(key) + len(value) - 1
        if page and most_bytes < 0:
            return page, behind
        page.append((key, value[1:]))
    return page, None


def sizes(
    layers: Sequence[Mapping[bytes, bytes]], memtables: int, space: int, start: bytes = b"", end: bytes | None = None
) -> list[dict[bytes, int]]:
    """Return the bytes of each layer's records between two bounds, by key; the first few layers are memtables."""
    return [
        {
            key[4:]: 6 + len(key) + len(value) if place < memtables else len(sorted_file.encode(key, value))
            for key, value in layer.items()
            if key[:4] == internal(space, b"") and start <= key[4:] and (end is None or key[4:] < end)
        }
        for place, layer in enumerate(layers)
    ]
