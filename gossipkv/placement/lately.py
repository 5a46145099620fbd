"""What has become of a range table's map in the last minutes: for `ranges`, which undoes nothing of it.

It is read from the maps that follow each other, so it is the same whoever has begun a move or a division.  Who begins
without it takes what there is for old.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.partition import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.measures import Limits, Measure
    from gossipkv.placement.partition import Assignment, Partition

LATELY_S: Final = 600.0  # What was moved rests so long; the rates are smoothed over half of it.


@final
class Lately:
    """What is remembered of one table, by the time at which it was seen."""

    def __init__(self) -> None:
        # Slots, by their partition's id, that went to another node; children of that have not, and do not rest.
        self.moved: dict[tuple[int, int], float] = {}
        self.passed: dict[tuple[bytes, bytes], float] = {}  # From which node something went to which.
        self.divided: dict[int, float] = {}  # The children.
        self.large: dict[int, float] = {}  # Partitions over the limit, since then.
        self.asked: dict[int, tuple[float, float]] = {}  # When a division was asked for, first and last.
        self._seen: Mapping[bytes, Partition] | None = None

    def read(self, partitions: Mapping[bytes, Partition], now: float) -> None:
        """Take in a map: partitions by their first keys, in order."""
        before, self._seen = self._seen, partitions
        for key, partition in partitions.items() if before is not None else ():
            assert before is not None
            known = before.get(key)
            if known is partition:
                continue
            if known is not None and known.id == partition.id:
                self._compare(known, partition, now)
                continue
            self.divided[partition.id] = now
        self._forget(now)

    def measured(self, measures: Mapping[int, Measure], limits: Limits, now: float) -> None:
        """Take in what partitions have."""
        large = (id_ for id_, one in measures.items() if limits.are_exceeded((one.size_bytes, one.rows)))
        self.large = {id_: self.large.get(id_, now) for id_ in large}

    def asks(self, partition: int, now: float) -> None:
        """A division is asked for."""
        self.asked[partition] = self.asked.get(partition, (now, now))[0], now

    def resting(self, now: float) -> list[tuple[int, int, int]]:
        """What is not moved now: partitions by their ids, slots, and for how many seconds yet."""
        return [(*slot, ceil(at + LATELY_S - now)) for slot, at in sorted(self.moved.items()) if at + LATELY_S > now]

    def rests(self) -> None:
        """Forget what was moved: people want something else."""
        self.moved, self.passed = {}, {}

    def _compare(self, before: Partition, partition: Partition, now: float) -> None:
        known = {one.id for one in before.assignments}
        for one in partition.assignments:
            if one.id not in known:
                self.moved[partition.id, one.slot] = now
                if (source := _source(before, one)) is not None:
                    self.passed[source, one.node] = now

    def _forget(self, now: float) -> None:
        since = now - LATELY_S
        self.moved = {slot: at for slot, at in self.moved.items() if at > since}
        self.passed = {ends: at for ends, at in self.passed.items() if at > since}
        self.divided = {id_: at for id_, at in self.divided.items() if at > since}
        if self.asked:
            there = {one.id for one in (self._seen or {}).values()}
            self.asked = {id_: at for id_, at in self.asked.items() if id_ in there}


def _source(before: Partition, target: Assignment) -> bytes | None:
    held = (one for one in before.assignments if one.slot == target.slot and one.node != target.node)
    return next((one.node for one in held if one.state is State.AVAILABLE), None)
