"""Recent changes of a range table's map, which `ranges` does not undo for some minutes.

The changes are derived from consecutive maps, so they do not depend on the node that began a move or a split. A node
that starts without them takes everything for old.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.partition import AssignmentState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.measures import MeasureLimits, RangeMeasure
    from gossipkv.placement.partition import Assignment, Partition

LATELY_S: Final = 600.0  # Moved slots rest for this time; rates are smoothed over half of it.


@final
class Lately:
    """Recent changes of one table, with the times at which they were seen."""

    def __init__(self) -> None:
        # Slots that moved, by partition id; children of the partition did not move, and do not rest.
        self.moved: dict[tuple[int, int], float] = {}
        self.passed: dict[tuple[bytes, bytes], float] = {}  # Pairs of source and target nodes.
        self.divided: dict[int, float] = {}  # Children of split partitions.
        self.large: dict[int, float] = {}  # Partitions over the limit, and since when.
        self.asked: dict[int, tuple[float, float]] = {}  # First and last time at which a split was requested.
        self._seen: Mapping[bytes, Partition] | None = None

    def read(self, partitions: Mapping[bytes, Partition], now: float) -> None:
        """Process a map: partitions by their first keys, in order."""
        before, self._seen = self._seen, partitions
        for key, partition in partitions.items() if before is not None else ():
            assert before is not None
            earlier = before.get(key)
            if earlier is partition:
                continue
            if earlier is not None and earlier.id == partition.id:
                self._compare(earlier, partition, now)
                continue
            self.divided[partition.id] = now
        self._forget(now)

    def measured(self, measures: Mapping[int, RangeMeasure], limits: MeasureLimits, now: float) -> None:
        large = (id_ for id_, measure in measures.items() if limits.are_exceeded((measure.size_bytes, measure.rows)))
        self.large = {id_: self.large.get(id_, now) for id_ in large}
        self._forget(now)

    @property
    def is_over(self) -> bool:
        """True if no change is recent, so the same plan holds at any later time."""
        return not (self.moved or self.passed or self.divided or self.large or self.asked)

    def asks(self, partition: int, now: float) -> None:
        self.asked[partition] = self.asked.get(partition, (now, now))[0], now

    def resting(self, now: float) -> list[tuple[int, int, int]]:
        """Return the slots that rest: partition id, slot, and remaining seconds."""
        return [(*slot, ceil(at + LATELY_S - now)) for slot, at in sorted(self.moved.items()) if at + LATELY_S > now]

    def rests(self) -> None:
        """Forget all moves, since an operator wants other ones."""
        self.moved, self.passed = {}, {}

    def _compare(self, before: Partition, partition: Partition, now: float) -> None:
        ids = {assignment.id for assignment in before.assignments}
        for assignment in partition.assignments:
            if assignment.id not in ids:
                self.moved[partition.id, assignment.slot] = now
                if (source := _source(before, assignment)) is not None:
                    self.passed[source, assignment.node] = now

    def _forget(self, now: float) -> None:
        since = now - LATELY_S
        self.moved = {slot: at for slot, at in self.moved.items() if at > since}
        self.passed = {ends: at for ends, at in self.passed.items() if at > since}
        self.divided = {id_: at for id_, at in self.divided.items() if at > since}
        if self.asked:
            there = {partition.id for partition in (self._seen or {}).values()}
            self.asked = {id_: at for id_, at in self.asked.items() if id_ in there}


def _source(before: Partition, target: Assignment) -> bytes | None:
    for assignment in before.assignments:
        if assignment.slot == target.slot and assignment.state is AssignmentState.AVAILABLE:
            return assignment.node if assignment.node != target.node else None
    return None
