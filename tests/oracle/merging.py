"""Merging in the oracle's form: clocks are dictionaries, and records are compared as tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.oracle import record

if TYPE_CHECKING:
    from tests.oracle.entry import Clock


class State(NamedTuple):
    """A replica: its clock, which names its assignments, and the last record of each key."""

    clock: Clock
    records: dict[bytes, bytes]


def merge(state: State, before: Clock, after: Clock, records: list[tuple[bytes, bytes]]) -> State | None:
    """Return the replica after an entry; None if it must wait for others."""
    named = {origin: after.get(origin, 0) for origin in state.clock}
    if all(state.clock[origin] >= count for origin, count in named.items()):
        return state
    if any(state.clock[origin] < before.get(origin, 0) for origin in state.clock):
        return None
    last = dict(state.records)
    for key, data in records:
        decoded = record.decode(data)
        assert decoded is not None
        origin, count = decoded[1:3]
        if origin in named and state.clock[origin] < count <= named[origin]:
            last[key] = max(last.get(key, b""), data, key=lambda one: one[:24])
    return State({origin: max(count, named[origin]) for origin, count in state.clock.items()}, last)


def rows(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows of records: deletes are also listed by their time."""
    listed = {}
    for key, data in records.items():
        listed[b"\1" + key] = data
        if data[24] == 2:
            listed[b"\2" + data[:8] + key] = b""
    return listed
