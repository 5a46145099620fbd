"""Messages between log senders and receivers in the oracle's form: clocks are dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.oracle.entry import Clock


class Entry(NamedTuple):
    """An entry of the replica with that number; the records are keys, each with its record."""

    number: int
    before: Clock
    after: Clock
    is_own: bool
    records: list[tuple[bytes, bytes]]


def rows_of(entries: list[Entry], ids: list[tuple[int, ...]]) -> list[object]:
    """Return the rows of entries; `ids`: the assignments that each number's counters stand for."""
    rows, last = [], {}
    for number, before, after, is_own, records in entries:
        begins = None if last.get(number) == before else [before.get(id_, 0) for id_ in ids[number]]
        ends = None if is_own else [after.get(id_, 0) for id_ in ids[number]]
        rows.append([number, begins, ends, [part for pair in records for part in pair]])
        last[number] = after
    return rows
