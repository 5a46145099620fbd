"""Vector clocks as dictionaries from assignment to counter: each rule in a loop, and the packed form by `struct`."""

from __future__ import annotations

import struct
from itertools import pairwise

EQUAL, BEFORE, AFTER, CONCURRENT = range(4)
ENTRY = struct.Struct(">QQ")
Clock = dict[int, int]


def pack(clock: Clock) -> bytes:
    return b"".join(ENTRY.pack(*entry) for entry in sorted(clock.items()))


def unpack(data: bytes) -> Clock:
    return dict(ENTRY.iter_unpack(data))


def fault(data: bytes) -> int | None:
    """Return the offset of the first entry that is cut or does not ascend; None if there is none."""
    whole = len(data) - len(data) % ENTRY.size
    assignments = [assignment for assignment, _ in ENTRY.iter_unpack(data[:whole])]
    for number, (before, after) in enumerate(pairwise(assignments), start=1):
        if after <= before:
            return number * ENTRY.size
    return None if whole == len(data) else whole


def covers(one: Clock, other: Clock) -> bool:
    """Return True if no entry of `other` is above that of `one`."""
    for assignment, counter in other.items():  # noqa: SIM110  # A plain loop is faster, and this is a yardstick too.
        if counter > one.get(assignment, 0):
            return False
    return True


def compare(one: Clock, other: Clock) -> int:
    if covers(one, other):
        return EQUAL if covers(other, one) else AFTER
    return BEFORE if covers(other, one) else CONCURRENT


def merge(one: Clock, other: Clock) -> Clock:
    merged = dict(one)
    for assignment, counter in other.items():
        if counter > merged.get(assignment, -1):
            merged[assignment] = counter
    return merged


def least(one: Clock, other: Clock) -> Clock:
    return {assignment: min(counter, other[assignment]) for assignment, counter in one.items() if assignment in other}


def ahead(one: Clock, other: Clock) -> tuple[int, ...]:
    """Return the assignments in which `one` is above `other`, ascending."""
    return tuple(sorted(name for name, count in one.items() if count > other.get(name, 0)))
