"""What several members say, put together: each thing once, with who says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.status.words import plain, some_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.wire.rpc import Value

    Entry = Mapping[str, Value]


def grouped(entries: Mapping[str, Entry], key: str) -> dict[str, list[Value]]:
    """Return what members say by a key, in words, each with who says so."""
    found: dict[str, list[Value]] = {}
    for node, entry in entries.items():
        if entry.get(key):
            found.setdefault(plain(entry[key]), []).append(node)
    return found


def at(nodes: Sequence[Value], entries: Mapping[str, Entry]) -> str:
    """Return who says something, in brackets; nothing where all do."""
    return "" if len(nodes) == len(entries) else f" ({some_text(nodes)})"
