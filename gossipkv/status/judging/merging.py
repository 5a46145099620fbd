"""Merging of several members' statements: each one once, with its authors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.status.words import plain, some_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.wire.rpc import Value

    Entry = Mapping[str, Value]


def grouped(entries: Mapping[str, Entry], key: str) -> dict[str, list[Value]]:
    """Return the members' values under a key, in words, with the members of each."""
    found: dict[str, list[Value]] = {}
    for node, entry in entries.items():
        if entry.get(key):
            found.setdefault(plain(entry[key]), []).append(node)
    return found


def at(nodes: Sequence[Value], entries: Mapping[str, Entry]) -> str:
    """Return the authors of a statement, in brackets; empty if all members are."""
    return "" if len(nodes) == len(entries) else f" ({some_text(nodes)})"
