"""The verdict on an answer when several versions are known: tables in plain dictionaries.

`tables` has the contents of each version; the key None stands for every version without an entry of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Table = dict[bytes, bytes]
Tables = Mapping[str | None, Table]


@dataclass
class Judged:
    keys: int
    wrong: int = 0
    misses: int = 0
    unchecked: int = 0
    untold: int = 0  # The unchecked keys of unknown versions.


def table_of(tables: Tables, version: str) -> Table | None:
    """Return the table with which an answer of this version is compared."""
    return tables.get(version, tables.get(None))


def judge_values(tables: Tables, keys: Sequence[bytes], values: Sequence[bytes | None], version: str) -> Judged:
    table = table_of(tables, version)
    found = Judged(len(keys), misses=sum(value is None for value in values))
    for key, value in zip(keys, values, strict=True):
        found.unchecked += table is None
        found.untold += table is None
        found.wrong += table is not None and table.get(key) != value
    return found


def judge_scan(
    tables: Tables,
    version: str,
    *,
    start: bytes,
    limit: int,
    records: Sequence[tuple[bytes, bytes]],
    cursor: bytes | None,
    others: Collection[bytes] | None = None,
    ends: bool = True,
) -> Judged:
    """Count wrong records of a scan: out of order, left out, too many, or with another value.

    If a version may have more than is known, `others` are the keys that it is known not to have, and records with any
    other key are unchecked. `ends`: the end is judged, too.
    """
    table = table_of(tables, version)
    found = Judged(len(records), wrong=max(0, len(records) - limit))
    if ends and cursor is not None and not records:
        found.wrong += 1
    in_order = []
    for key, value in records:
        if key < start or (in_order and key <= in_order[-1][0]):
            found.wrong += 1
        else:
            in_order.append((key, value))
    if table is None:
        found.unchecked = found.untold = len(in_order)
        return found
    ahead = sorted(key for key in table if key >= start)
    for key, value in in_order:
        while ahead and ahead[0] < key:
            found.wrong += 1
            ahead.pop(0)
        if ahead and ahead[0] == key:
            found.wrong += table[key] != value
            ahead.pop(0)
        elif others is None or key in others:
            found.wrong += 1
        else:
            found.unchecked += 1
    if ends and cursor is None and ahead:
        found.wrong += 1
    return found


def steps_back(moments: Sequence[tuple[str, int, str]]) -> int:
    """Count answers from an older version than the newest one known when they were asked for.

    `moments` are `("asked", id, "")` and `("answered", id, version)`, in order; an answer without a version is no
    step.
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
