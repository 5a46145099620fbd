"""Which partitions came from which by divisions, as the maps say that were decided, and whose a key is.

A partition's *forebears* are itself, its parent, and so on.  Its clock is of the records of all of their origins whose
keys are within its own bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tests.world.replication.copies import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.placement.partition import Partition
    from tests.world.replication.copies import Bounds


@final
class Lineage:
    """All partitions that ever were."""

    def __init__(self) -> None:
        self.bounds: dict[int, Bounds] = {}  # Of ranges.
        self.children: dict[int, tuple[int, ...]] = {}  # Of each that was divided, in the order of keys.
        self._forebears: dict[int, tuple[int, ...]] = {}
        self._before: dict[int, int] = {}  # By assignment that of its node in the parent.

    def divides(self, parent: Partition, children: Sequence[Partition]) -> None:
        """A partition was divided."""
        self.children[parent.id] = tuple(child.id for child in children)
        at = {one.node: one.id for one in parent.assignments}
        for child in children:
            self._forebears[child.id] = (child.id, *self.forebears(parent.id))
            self._before |= {one.id: at[one.node] for one in child.assignments if one.node in at}

    def forebears(self, partition: int) -> tuple[int, ...]:
        """A partition, its parent, and so on."""
        return self._forebears.get(partition, (partition,))

    def line(self, assignment: int) -> Iterator[int]:
        """An assignment, that of its node in the parent, and so on."""
        found: int | None = assignment
        while found is not None:
            yield found
            found = self._before.get(found)

    def has(self, partition: int, key: bytes) -> bool:
        """Whether a key is within a partition's bounds."""
        return self.bounds.get(partition, WHOLE).has(key)

    def leaf(self, partition: int, key: bytes) -> int:
        """What has a key of a partition by now: itself, unless it was divided."""
        while partition in self.children:
            partition = next(child for child in self.children[partition] if self.has(child, key))
        return partition

    def leaves(self, partition: int) -> list[int]:
        """All that came from a partition, and were not divided."""
        children = self.children.get(partition, ())
        return [leaf for child in children for leaf in self.leaves(child)] if children else [partition]
