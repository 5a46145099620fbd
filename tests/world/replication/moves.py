"""The decided maps, compared with the replicas on all disks; no node is asked.

A replica goes by the map of the config in its STATE.  An assignment that such a map no longer names has *ended*: it is
settled, every replica has all of its records, and clocks no longer list it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, final

from gossipkv.placement.partition import HAD, AssignmentState
from gossipkv.register.metadata.partitions import RANGE, decode_partition, decode_table
from tests.world.replication.copies import WHOLE, Bounds, dot_of, needed, order_of
from tests.world.replication.register import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.placement.partition import Partition
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.operations import Operation
    from gossipkv.replication.replica.keys import ReplicaIdentity
    from tests.world.replication.copies import Clock, Dot, Model, Records
    from tests.world.replication.copies import State as Stand
    from tests.world.replication.witness import Witness


@final
class Refounded:
    """All force-joins of a run."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self.replaced: set[int] = set()  # Partitions that were replaced by a force-join, and not split.
        self.ends: dict[int, Clock] = {}  # By new partition: the ends of the replaced one's origins.
        self._kept: dict[int, Records] = {}

    def root(self, partition: int) -> int:
        """Return the latest force-joined partition among a partition and its ancestors."""
        return self._moves.lineage.forebears(partition)[-1]

    def base(self, partition: int) -> Records:
        """Return the initial records of a partition that no clock of it covers."""
        kept = self._kept.get(self.root(partition), {})
        return {key: data for key, data in kept.items() if self._moves.lineage.has(partition, key)}

    def begins(self, old: int, new: int, ends: Sequence[tuple[int, int]], kept: int) -> None:
        """Note that `new` replaces `old`, with the replica of assignment `kept`, or with nothing (0)."""
        lineage, witness = self._moves.lineage, self._moves.witness
        has = witness.models[kept].records if kept else {}
        lineage.shards[new] = lineage.shard(old)
        ends = [end for end in ends if end[0] < HAD]  # The others belong to no assignment.
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
        """Check that a replaced replica is quarantined, if it was AVAILABLE by the map that it adopted last."""
        self._moves.witness.counts["set aside, of what was replaced"] += not is_dropped
        by = self._moves.map_of(model)
        own = None if by is None else by.assignment(model.assignment)
        if is_dropped and own is not None and own.state is AssignmentState.AVAILABLE:
            self._moves.witness.found("refounded", f"{model.assignment} is dropped, of a partition that was replaced")


@final
class Lineage:
    """All partitions that ever existed."""

    def __init__(self) -> None:
        self.bounds: dict[int, Bounds] = {}  # The bounds of ranges.
        self.shards: dict[int, int] = {}  # By force-joined partition: the id of its shard's first one.
        self.children: dict[int, tuple[int, ...]] = {}  # The children of each split partition, in the order of keys.
        self._forebears: dict[int, tuple[int, ...]] = {}
        self._before: dict[int, int] = {}  # By assignment: that of the same node in the parent.

    def shard(self, partition: int) -> int:
        """Return the name of a partition's shard in its keys."""
        return self.shards.get(partition, partition)

    def divides(self, parent: Partition, children: Sequence[Partition]) -> None:
        self.children[parent.id] = tuple(child.id for child in children)
        at = {one.node: one.id for one in parent.assignments}
        for child in children:
            self._forebears[child.id] = (child.id, *self.forebears(parent.id))
            self._before |= {one.id: at[one.node] for one in child.assignments if one.node in at}

    def forebears(self, partition: int) -> tuple[int, ...]:
        return self._forebears.get(partition, (partition,))

    def line(self, assignment: int) -> Iterator[int]:
        """Yield an assignment, that of its node in the parent, and so on."""
        found: int | None = assignment
        while found is not None:
            yield found
            found = self._before.get(found)

    def has(self, partition: int, key: bytes) -> bool:
        """Return True if a key is within a partition's bounds."""
        return self.bounds.get(partition, WHOLE).has(key)

    def leaf(self, partition: int, key: bytes) -> int:
        """Return the present partition of a key: this one, or its descendant after splits."""
        while partition in self.children:
            partition = next(child for child in self.children[partition] if self.has(child, key))
        return partition

    def leaves(self, partition: int) -> list[int]:
        """Return the present descendants of a partition."""
        children = self.children.get(partition, ())
        return [leaf for child in children for leaf in self.leaves(child)] if children else [partition]


NOTHING: Final[Mapping[int, int]] = {}


@final
class Moves:
    """The maps of all tables, at all times."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.maps: defaultdict[int, dict[int, Partition]] = defaultdict(dict)  # By partition and version, in order.
        self.lineage = Lineage()
        self.partitions: dict[int, int] = {}  # The partition of each assignment that ever existed,
        self.nodes: dict[int, bytes] = {}  # and its node.
        # By partition: the settled counters of ended assignments.
        self.ended: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.forced: set[int] = set()  # Assignments that were removed by force.
        self.dropped: set[int] = set()  # Partitions of dropped tables.
        self.refounded = Refounded(self)
        self.lost: set[bytes] = set()  # Nodes that are lost for good, with their disks.
        self.slots: dict[int, int] = {}  # The wanted slots of each partition.
        # By partition: writes acknowledged at a majority.
        self.acknowledged: defaultdict[int, set[Dot]] = defaultdict(set)

    # # -- decisions ---------------------------------------------------------------------------------------------------

    def changed(self, register: bytes, before: MapView, after: MapView, done: Sequence[Operation]) -> None:
        if register == CATALOGUE:
            return
        settled = _settled(done)
        forced = {one.argument[2] for one in done if (one.name, one.version) == ("unassign", 2)}  # type: ignore[index]  # It was judged.
        table = decode_table(after.meta)
        stands = {entry.key: decode_partition(entry.record) for entry in before.scan()}
        new = {entry.key: decode_partition(entry.record) for entry in after.scan()}
        begun = [one.argument for one in done if one.name == "refound"]
        self.refounded.replaced.update(argument[1] for argument in begun)  # type: ignore[index]  # It was judged.
        if table.kind == RANGE:
            self._divides(stands, new)
        for argument in begun:
            self.refounded.begins(*argument[1:3], *argument[5:])  # type: ignore[index]  # It was judged.
        for entry in after.scan():
            if entry.version == after.config:
                was, now = stands.get(entry.key), new[entry.key]
                gone = [one.id for one in was.assignments if one.id in forced] if was is not None else []
                self.forced.update(before for id_ in gone for before in self.lineage.line(id_))
                self.decided(entry.version, now, table.replication, settled[now.id])

    def _divides(self, stands: Mapping[bytes, Partition], new: Mapping[bytes, Partition]) -> None:
        """Match new partitions with the split ones that they replace: each child takes over its parent's state."""
        there, ends = {one.id for one in new.values()}, [*sorted(new)[1:], None]
        for first, end in zip(sorted(new), ends, strict=True):
            self.lineage.bounds[new[first].id] = Bounds(first, end)
        gone = [one for one in stands.values() if one.id not in there | self.refounded.replaced]
        for parent in gone:
            bounds = self.lineage.bounds[parent.id]
            children = [one for first, one in sorted(new.items()) if bounds.has(first)]
            self.lineage.divides(parent, children)
            self.witness.counts["divided"] += 1
            self.witness.counts["divided, a child"] += len(self.lineage.forebears(parent.id)) > 1
            for child in children:
                self.ended[child.id] = dict(self.ended[parent.id])
                dots = self.acknowledged[parent.id]
                issued = self.witness.issued
                self.acknowledged[child.id] = {dot for dot in dots if self.lineage.has(child.id, issued[dot][0])}
                if (child.former, child.ends) != (parent.named, parent.ends):
                    self.witness.found("divided", f"{child} names others than {parent}")

    def decided(self, version: int, now: Partition, slots: int, settled: Mapping[int, int] = NOTHING) -> None:
        """Note a partition's new record; `settled`: the origins that it settles, with their counters."""
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
        """Check assignments that are no longer named: they have ended, and all replicas have all their records."""
        for origin in set(was.named) - set(now.named):
            self.ended[now.id][origin] = settled.get(origin, 0)
            if origin in was.former and origin not in settled:
                self.witness.found("settled", f"{origin} of partition {now.id} is not former any more")
            have = {one.clock.get(origin, 0) for one in self._assigned(now) if one.joining is None}
            if have - {settled.get(origin, 0)}:
                words = f"{origin} of partition {now.id} is settled at {settled.get(origin, 0)}, and copies have {have}"
                self.witness.found("settled", words)

    def _check_hosts(self, was: Partition, now: Partition) -> None:
        """Check that a partition loses an AVAILABLE host only by force."""
        before, after = (
            {one.id for one in each.assignments if one.state is AssignmentState.AVAILABLE} for each in (was, now)
        )
        if len(after) < len(before) and not (before - after) & self.forced:
            self.witness.found("hosts", f"partition {now.id} has {len(after)} AVAILABLE hosts, and had {len(before)}")

    def _assigned(self, partition: Partition, *, available: bool = False) -> list[Model]:
        """Return the replicas of a partition's hosts that are not lost."""
        return [
            model
            for one in partition.assignments
            if one.node not in self.lost and (one.state is AssignmentState.AVAILABLE or not available)
            for model in [self.stands_for(one.id)]
            if model is not None
        ]

    def stands_for(self, assignment: int) -> Model | None:
        """Return the replica of an assignment; until its node has adopted a split durably, the parent's replica."""
        models = self.witness.models
        found = next((models[one] for one in self.lineage.line(assignment) if one in models), None)
        is_parent_left = found is not None and found.left and found.assignment != assignment
        return None if is_parent_left else found

    def current(self) -> list[int]:
        return sorted(self.maps.keys() - self.dropped - self.lineage.children.keys() - self.refounded.replaced)

    def last(self, partition: int) -> Partition | None:
        return next(reversed(self.maps[partition].values()), None)

    # # -- the meaning of clocks ---------------------------------------------------------------------------------------

    def map_of(self, model: Model) -> Partition | None:
        return self.maps[model.partition].get(model.config)

    def meaning(self, model: Model) -> Clock:
        """Return all that a replica's clock covers, including ended origins, which it omits."""
        ended, by = self.ended[model.partition], self.map_of(model)
        if not ended or by is None:
            return model.clock
        return {**{one: count for one, count in ended.items() if one not in by.named}, **model.clock}

    def adopts(self, model: Model, who: str, state: Stand) -> None:
        """Check a replica that adopts another map: its clock lists the named origins, and omits ended ones."""
        ended, by, clock = self.ended[model.partition], self.map_of(model), state.after
        if by is not None and state.named is not None and state.named != by.named:
            self.witness.found("named", f"{who}: its clock names {state.named}, and its map {by.named}")
        for origin, count in model.clock.items():
            if origin not in clock and model.joining is None and count != ended.get(origin):
                words = f"{who}: it is silent of {origin}, of which it has {count}; settled is {ended.get(origin)}"
                self.witness.found("ended", words)

    def puts(self, model: Model, who: str, dot: Dot) -> None:
        """Check a record that a replica takes: its map names the origin, or the origin's end covers the record."""
        by = self.map_of(model)
        if by is not None and dot[0] not in by.named and dot[1] > self.ended[model.partition].get(dot[0], 0):
            self.witness.found("ended", f"{who}: it takes {dot}, whose origin its map does not name")

    def collectors(self, model: Model) -> list[Model | None]:
        """Return the replicas that need a tombstone before this one deletes it; None: not there yet."""
        by = self.map_of(model)
        return [] if by is None else [self.witness.models.get(one.id) for one in by.assignments]

    def parent_of(self, model: Model, at: int) -> Model | None:
        """Return the replica of a parent at the node of the map's `at`-th assignment, which has not adopted the map."""
        by, forebears = self.map_of(model), self.lineage.forebears(model.partition)
        models = self.witness.models.values() if by is not None else ()
        node = b"" if by is None else by.assignments[at].node
        return next((one for one in models if one.node == node and one.partition in forebears and not one.left), None)

    def was_at(self, identity: ReplicaIdentity, dot: Dot, level: str) -> bool:
        """Return True if under some map of the partition or its ancestors the slots of a level had a record."""
        here, models = self.stands_for(identity.assignment), self.witness.models
        is_here = here is not None and self.meaning(here).get(dot[0], 0) >= dot[1]
        is_settled = self.ended[identity.partition].get(dot[0], 0) >= dot[1]  # All replicas have a settled record.
        if here is None or not is_here or is_settled or level == "one":
            return is_here
        partitions = self.lineage.forebears(identity.partition)
        for version, by in (pair for one in partitions for pair in self.maps[one].items()):
            slots: dict[int, bool] = {}
            for one in by.assignments:
                if one.state in {AssignmentState.INITIALIZING, AssignmentState.AVAILABLE}:
                    has = one.id in models and models[one.id].has_confirmed(version, dot)
                    slots[one.slot] = slots.get(one.slot, True) and (has or one.node == here.node)
            served = {one.slot for one in by.assignments if one.state is AssignmentState.AVAILABLE}
            if sum(has and slot in served for slot, has in slots.items()) >= needed(level, self.slots[by.id]):
                return True
        return False

    # # -- survival ----------------------------------------------------------------------------------------------------

    def check_survival(self, partition: int) -> None:
        """Check that no minority of slots alone has a write that was acknowledged at a majority.

        Lost slots count towards that minority, so that a table of two replicas recovers.
        """
        last = self.last(partition)
        if last is None or partition in self.dropped:
            return
        hosts, slots = self._assigned(last, available=True), self.slots[partition]
        spare = len(hosts) - slots + slots // 2
        for origin, count in self.acknowledged[partition]:
            if sum(self.meaning(one).get(origin, 0) >= count for one in hosts) <= spare:
                where = {one.assignment: one.clock for one in hosts}
                self.witness.found("thin", f"{(origin, count)} of partition {partition} was acknowledged: {where}")
                return

    def called_lost(self, details: Mapping[str, object]) -> None:
        """Check a session's error that records of an origin beyond a counter are lost."""
        partition, origin, kept = details["partition"], int(str(details["assignment"]), 16), details["kept"]
        assert isinstance(partition, int)
        assert isinstance(kept, int)
        self.witness.counts["called lost"] += 1
        dots = {dot for one in self.lineage.leaves(partition) for dot in self.acknowledged[one]}
        dots |= set(map(dot_of, self.refounded.base(partition).values()))
        if any(dot[0] == origin and dot[1] > kept for dot in dots):
            self.witness.found("called lost", f"beyond {kept} of {origin}, where something was acknowledged")

    def left(self, model: Model, how: str, orphans: Sequence[Bounds] = ()) -> None:
        """Check a replica that is dropped, quarantined, or split with quarantined parts."""
        who = f"{model.assignment} of partition {model.partition}"
        for leaf in self.lineage.leaves(model.partition):
            last = self.last(leaf)
            first = self.lineage.bounds.get(leaf, Bounds()).first
            is_aside = how == "aside" or any(part.has(first) for part in orphans)
            if leaf in self.refounded.replaced:
                self.refounded.left(model, is_dropped=how == "dropped" and not is_aside)
            elif last is not None and model.partition not in self.dropped and (is_aside or how == "dropped"):
                self._check_left(model, who, last, "aside" if is_aside else how)

    def _check_left(self, model: Model, who: str, last: Partition, how: str) -> None:
        if any(model.assignment in self.lineage.line(one.id) for one in last.assignments):
            self.witness.found("dropped", f"{who} is {how}, and assigned")
        if how == "aside":
            self.witness.counts["set aside"] += 1
            if not any(model.assignment in self.lineage.line(end.assignment) for end in last.ends):
                self.witness.found("dropped", f"{who} is set aside, and has no end that was forced")
            return
        for one in self._assigned(last, available=True):
            by = self.map_of(one)
            if by is not None and by.assignment(model.assignment) is not None:
                self.witness.found("dropped", f"{who} is dropped, and {one.assignment} sends readers there")

    def check_end(self, nodes: set[bytes], *, is_placed: bool) -> None:
        """Check that running nodes have complete replicas as the last map says; and no others, if all is placed."""
        there = [one for one in self.witness.models.values() if not one.left and one.node in nodes]
        for partition in self.current():
            last = self.last(partition)
            assert last is not None
            due = {one.id for one in last.assignments if one.node in nodes and one.state is AssignmentState.AVAILABLE}
            has = {one.assignment for one in there if one.partition == partition and one.joining is None}
            here = {one.assignment for one in there if one.partition == partition}
            if not has >= due or (is_placed and here != due):
                self.witness.found("places", f"partition {partition} is to be at {due}, and is at {here}")
        for one in there:
            gone = self.dropped | self.refounded.replaced
            if one.partition in gone or (is_placed and one.partition in self.lineage.children):
                self.witness.found("places", f"{one.assignment} is of a partition that is no more")


def _settled(done: Sequence[Operation]) -> Mapping[int, Mapping[int, int]]:
    """Return the settled counters by partition: siblings settle the same origins, each with its own counter."""
    found: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for one in done:
        if one.name == "settle":
            assert isinstance(one.argument, tuple)
            _, partition, rows = one.argument
            found[partition].update(rows)
    return found
