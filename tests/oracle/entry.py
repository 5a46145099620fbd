"""Replication entries in the oracle's form: clocks are dictionaries, records are read by the drawing of their bytes."""

from __future__ import annotations

from tests.oracle import record

Clock = dict[int, int]


def ends_of(begins: Clock, told: Clock | None, records: list[bytes]) -> Clock | None:
    """Return the clock after an entry of these records; None if the entry is invalid."""
    dots = [decoded[1:3] for data in records if (decoded := record.decode(data)) is not None]
    assert len(dots) == len(records)
    if told is not None:
        needed = [*begins.items(), *dots]
        return told if all(told.get(origin, 0) >= count for origin, count in needed) else None
    ends = dict(begins)
    for origin, count in dots:
        if origin not in ends or count != ends[origin] + 1:
            return None
        ends[origin] = count
    return ends
