"""Ranges that have begun anew: what each was to begin with, and what was lost by that.

What was kept is demanded of every copy from then on; what was acknowledged and not kept is forgotten, and so is what
hosts acknowledge that have not heard.  A copy of a range that was replaced is set aside, whoever had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.placement.partition import State
from tests.world.replication.copies import dot_of, order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world.replication.copies import Clock, Model, Records
    from tests.world.replication.moves import Moves


@final
class Refounded:
    """All that ever did."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self.replaced: set[int] = set()  # Partitions in whose place others stand, that are none of their children.
        self.ends: dict[int, Clock] = {}  # Of what each has replaced.
        self._kept: dict[int, Records] = {}

    def root(self, partition: int) -> int:
        """What began anew last, of a partition and what it came from."""
        return self._moves.lineage.forebears(partition)[-1]

    def base(self, partition: int) -> Records:
        """What a partition began with, of records that no clock of it covers."""
        kept = self._kept.get(self.root(partition), {})
        return {key: data for key, data in kept.items() if self._moves.lineage.has(partition, key)}

    def begins(self, old: int, new: int, ends: Sequence[tuple[int, int]], kept: int) -> None:
        """A partition stands in the place of another, with a copy that was held under that assignment, or nothing."""
        lineage, witness = self._moves.lineage, self._moves.witness
        has = witness.models[kept].records if kept else {}
        self.ends[new] = dict(ends)
        self._kept[new] = {key: data for key, data in has.items() if lineage.has(new, key)}
        witness.counts["begun anew with a copy" if kept else "begun anew with nothing"] += 1
        witness.counts["begun anew, again"] += self.root(old) in self.ends
        by = self._moves.map_of(witness.models[kept]) if kept else None
        for origin, end in ends:
            count = witness.models[kept].clock.get(origin, 0) if kept else 0
            if end > count and (by is None or origin in by.named):
                witness.found("refounded", f"{new} has {count} of {origin}, and an end of {end}")
        for data in self._kept[new].values():
            origin, count = dot_of(data)
            if count > self.ends[new].get(origin, count):
                witness.found("refounded", f"{(origin, count)} is kept, and {self.ends[new][origin]} is where it ends")
        there, witness.acknowledged = witness.acknowledged, []
        for one in there:
            if lineage.leaf(one.partition, one.key) != old:
                witness.acknowledged.append(one)
            elif order_of(self._kept[new].get(one.key, b"")) >= one.order:
                witness.acknowledged.append(one._replace(partition=new, by_one=False))
            else:
                witness.counts["acknowledged, and not kept"] += 1

    def left(self, model: Model, *, is_dropped: bool) -> None:
        """A copy of what was replaced is set aside, if it was AVAILABLE by the map that it has adopted last."""
        self._moves.witness.counts["set aside, of what was replaced"] += not is_dropped
        by = self._moves.map_of(model)
        own = None if by is None else by.assignment(model.assignment)
        if is_dropped and own is not None and own.state is State.AVAILABLE:
            self._moves.witness.found("refounded", f"{model.assignment} is dropped, of a partition that was replaced")
