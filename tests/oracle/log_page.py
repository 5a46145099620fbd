"""Joined log entries in the oracle's form."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """An entry of the replica with that number; the clocks are packed, and records count by themselves."""

    number: int
    before: bytes
    after: bytes
    is_own: bool
    position: int
    config: int
    records: tuple[tuple[bytes, bytes], ...]


def joined(steps: list[Step]) -> list[Step]:
    """Join each entry to the last one of its replica, if it continues that under the same config."""
    found: list[Step] = []
    for step in steps:
        last = next((at for at in reversed(range(len(found))) if found[at].number == step.number), None)
        if last is None or (found[last].after, found[last].config) != (step.before, step.config):
            found.append(step)
            continue
        one = found[last]
        is_own, records = one.is_own and step.is_own, one.records + step.records
        found[last] = one._replace(after=step.after, is_own=is_own, records=records)
    return found
