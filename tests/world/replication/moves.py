"""What the maps say, as they were decided, held against what is on all disks: nothing of it is asked of a node.

A copy goes by the map of the config that stands in its state; an assignment that such a map does not name any more has
*ended*: it is settled, every copy has all that it has originated, and clocks are silent about it from then on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.partition import State
from gossipkv.register.metadata.partitions import decode_partition, decode_table
from tests.world.replication.register import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.operations import Operation
    from gossipkv.register.metadata.tree import Tree
    from tests.world.replication.copies import Clock, Dot, Model
    from tests.world.replication.witness import Witness

NOTHING: Final[Mapping[int, int]] = {}


@final
class Moves:
    """The maps of all tables, of all times."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self.maps: defaultdict[int, dict[int, Partition]] = defaultdict(dict)  # By partition and version, in order.
        self.partitions: dict[int, int] = {}  # Of each assignment that ever was,
        self.nodes: dict[int, bytes] = {}  # and its node.
        self.ended: defaultdict[int, dict[int, int]] = defaultdict(dict)  # By partition: what was settled, and where.
        self.forced: set[int] = set()  # Assignments that were taken by force.
        self.dropped: set[int] = set()  # Partitions of tables that are no more.
        self.lost: set[bytes] = set()  # Nodes that are, with their disks.
        self.slots: dict[int, int] = {}  # Of each partition, how many there are to be.
        self.acknowledged: defaultdict[int, set[Dot]] = defaultdict(set)  # By partition: at a majority.

    # -- what is decided ---------------------------------------------------------------------------------------------

    def changed(self, register: bytes, before: Tree, after: Tree, done: Sequence[Operation]) -> None:
        """A map was changed by these operations."""
        if register == CATALOGUE:
            return
        settled = {pair[0]: pair[1] for one in done if one.name == "settle" for pair in _rows(one)}
        forced = {one.argument[2] for one in done if (one.name, one.version) == ("unassign", 2)}  # type: ignore[index]  # It was judged.
        slots = decode_table(after.root.meta).replication
        stands = {entry.key: decode_partition(entry.record) for entry in before.scan()}
        for entry in after.scan():
            if entry.version == after.root.config:
                was, now = stands.get(entry.key), decode_partition(entry.record)
                self.forced |= {one.id for one in was.assignments if one.id in forced} if was is not None else set()
                self.decided(entry.version, now, slots, settled)

    def decided(self, version: int, now: Partition, slots: int, settled: Mapping[int, int] = NOTHING) -> None:
        """A partition has another record; `settled`: what was settled by that, with the counters."""
        maps = self.maps[now.id]
        was = next(reversed(maps.values()), None)
        maps[version] = now
        self.slots[now.id] = slots
        for one in now.assignments:
            self.partitions[one.id], self.nodes[one.id] = now.id, one.node
        if was is not None:
            self._ends(was, now, settled)
            self._check_hosts(was, now)
        self.check_survival(now.id)

    def _ends(self, was: Partition, now: Partition, settled: Mapping[int, int]) -> None:
        """What was named and is not any more has ended; who never was AVAILABLE has originated nothing."""
        for origin in set(was.named) - set(now.named):
            self.ended[now.id][origin] = settled.get(origin, 0)
            if origin in was.former and origin not in settled:
                self._witness.found("settled", f"{origin} of partition {now.id} is not former any more")
            have = {one.clock.get(origin, 0) for one in self._assigned(now) if one.joining is None}
            if have - {settled.get(origin, 0)}:
                words = f"{origin} of partition {now.id} is settled at {settled.get(origin, 0)}, and copies have {have}"
                self._witness.found("settled", words)

    def _check_hosts(self, was: Partition, now: Partition) -> None:
        """Only by force a partition has fewer hosts that are AVAILABLE; and one slot moves at a time."""
        before, after = ({one.id for one in each.assignments if one.state is State.AVAILABLE} for each in (was, now))
        if len(after) < len(before) and not (before - after) & self.forced:
            self._witness.found("hosts", f"partition {now.id} has {len(after)} AVAILABLE hosts, and had {len(before)}")

    def _assigned(self, partition: Partition, *, available: bool = False) -> list[Model]:
        """The copies of a partition's hosts that are not lost."""
        models = self._witness.models
        return [
            models[one.id]
            for one in partition.assignments
            if one.id in models and one.node not in self.lost and (one.state is State.AVAILABLE or not available)
        ]

    def last(self, partition: int) -> Partition | None:
        """A partition, by the last map."""
        return next(reversed(self.maps[partition].values()), None)

    # -- what clocks mean --------------------------------------------------------------------------------------------

    def map_of(self, model: Model) -> Partition | None:
        """The record that a copy goes by."""
        return self.maps[model.partition].get(model.config)

    def meaning(self, model: Model) -> Clock:
        """All that a copy's clock covers: it is silent of what has ended."""
        ended, by = self.ended[model.partition], self.map_of(model)
        if not ended or by is None:
            return model.clock
        return {**{one: count for one, count in ended.items() if one not in by.named}, **model.clock}

    def adopts(self, model: Model, who: str, clock: Clock) -> None:
        """A copy goes by another map, and its clock is silent of what has ended."""
        ended = self.ended[model.partition]
        for origin, count in model.clock.items():
            if origin not in clock and model.joining is None and count != ended.get(origin):
                words = f"{who}: it is silent of {origin}, of which it has {count}; settled is {ended.get(origin)}"
                self._witness.found("ended", words)

    def puts(self, model: Model, who: str, dot: Dot) -> None:
        """A copy takes a record: it is of an assignment that its map names, and not beyond where it has ended."""
        by = self.map_of(model)
        if by is not None and dot[0] not in by.named and dot[1] > self.ended[model.partition].get(dot[0], 0):
            self._witness.found("ended", f"{who}: it takes {dot}, whose origin its map does not name")

    def collectors(self, model: Model) -> list[Model | None]:
        """The copies that have to have a tombstone before this one lets go of it; None: one that is not there yet."""
        by = self.map_of(model)
        return [] if by is None else [self._witness.models.get(one.id) for one in by.assignments]

    # -- what must be kept -------------------------------------------------------------------------------------------

    def check_survival(self, partition: int) -> None:
        """No minority of slots, with what is lost already, has all of anything acknowledged at a majority.

        Of slots that are lost the rest is enough, so that a table of two replicas recovers.
        """
        last = self.last(partition)
        if last is None or partition in self.dropped:
            return
        hosts, slots = self._assigned(last, available=True), self.slots[partition]
        spare = len(hosts) - slots + slots // 2
        for origin, count in self.acknowledged[partition]:
            if sum(self.meaning(one).get(origin, 0) >= count for one in hosts) <= spare:
                where = {one.assignment: one.clock for one in hosts}
                self._witness.found("thin", f"{(origin, count)} of partition {partition} was acknowledged: {where}")
                return

    def called_lost(self, details: Mapping[str, object]) -> None:
        """A session was told that what it has seen of an origin is lost beyond a counter."""
        partition, origin, kept = details["partition"], int(str(details["assignment"]), 16), details["kept"]
        assert isinstance(partition, int)
        assert isinstance(kept, int)
        self._witness.counts["called lost"] += 1
        if any(dot[0] == origin and dot[1] > kept for dot in self.acknowledged[partition]):
            self._witness.found("called lost", f"beyond {kept} of {origin}, where something was acknowledged")

    def left(self, model: Model, how: str) -> None:
        """A copy is dropped, or set aside."""
        last, who = self.last(model.partition), f"{model.assignment} of partition {model.partition}"
        if last is None or model.partition in self.dropped:
            return
        if last.assignment(model.assignment) is not None:
            self._witness.found("dropped", f"{who} is {how}, and assigned")
        if how == "aside":
            if all(end.assignment != model.assignment for end in last.ends):
                self._witness.found("dropped", f"{who} is set aside, and has no end that was forced")
            return
        for one in self._assigned(last, available=True):
            by = self.map_of(one)
            if by is not None and by.assignment(model.assignment) is not None:
                self._witness.found("dropped", f"{who} is dropped, and {one.assignment} sends readers there")

    def check_end(self, nodes: set[bytes], *, is_placed: bool) -> None:
        """Each of the nodes that are up has whole copies as the last map says; and no others, once all is placed."""
        there = [one for one in self._witness.models.values() if not one.left and one.node in nodes]
        for partition in self.maps.keys() - self.dropped:
            last = self.last(partition)
            assert last is not None
            due = {one.id for one in last.assignments if one.node in nodes and one.state is State.AVAILABLE}
            has = {one.assignment for one in there if one.partition == partition and one.joining is None}
            here = {one.assignment for one in there if one.partition == partition}
            if not has >= due or (is_placed and here != due):
                self._witness.found("places", f"partition {partition} is to be at {due}, and is at {here}")
        for one in there:
            if one.partition in self.dropped:
                self._witness.found("places", f"{one.assignment} is of a table that was dropped")


def _rows(operation: Operation) -> Sequence[tuple[int, int]]:
    argument = operation.argument
    assert isinstance(argument, tuple)
    rows: Sequence[tuple[int, int]] = argument[2]
    return rows
