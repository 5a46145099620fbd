"""Whether an answer is right, when several versions are known: tables in plain dictionaries.

`tables` has for each version what it holds; None is the name of a table for every version that has none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Table = dict[bytes, bytes]


@dataclass
class Judged:
    """What was counted of one answer."""

    keys: int
    wrong: int = 0
    misses: int = 0
    unchecked: int = 0


def table_of(tables: Mapping[str | None, Table], version: str) -> Table | None:
    """What an answer of this version is compared with."""
    return tables.get(version, tables.get(None))


def judge_values(
    tables: Mapping[str | None, Table], keys: Sequence[bytes], values: Sequence[bytes | None], version: str
) -> Judged:
    """Of a read."""
    table = table_of(tables, version)
    found = Judged(len(keys), misses=sum(value is None for value in values))
    for key, value in zip(keys, values, strict=True):
        found.unchecked += table is None
        found.wrong += table is not None and table.get(key) != value
    return found


def judge_scan(
    tables: Mapping[str | None, Table],
    version: str,
    *,
    start: bytes,
    limit: int,
    records: Sequence[tuple[bytes, bytes]],
    cursor: bytes | None,
) -> Judged:
    """Of a scan: those left out, those too many, and those with another value."""
    table = table_of(tables, version)
    found = Judged(len(records), wrong=max(0, len(records) - limit))
    if cursor is not None and not records:
        found.wrong += 1
    if table is None:
        found.unchecked = len(records)
        return found
    ahead = sorted(key for key in table if key >= start)
    for key, value in records:
        while ahead and ahead[0] < key:
            found.wrong += 1
            ahead.pop(0)
        if ahead and ahead[0] == key:
            found.wrong += table[key] != value
            ahead.pop(0)
        else:
            found.wrong += 1
    if cursor is None and ahead:
        found.wrong += 1
    return found


def steps_back(moments: Sequence[tuple[str, int, str]]) -> int:
    """Answers from an older version than the newest that was told before they were asked for.

    `moments` are `("asked", id, "")` and `("answered", id, version)`, in order; an answer without a version is no step.
    """
    newest: str | None = None
    floors: dict[int, str | None] = {}
    found = 0
    for what, each, version in moments:
        if what == "asked":
            floors[each] = newest
        elif version:
            floor = floors[each]
            found += floor is not None and version.encode() < floor.encode()
            newest = version if newest is None or newest.encode() < version.encode() else newest
    return found
