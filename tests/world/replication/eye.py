"""The witness's view of one disk: appended batches, decoded as their effects on replicas.

A space has one replica, or several side by side, each with the records of its own keys (`replication.replica.keys`).
Records that a replica leaves behind in a shared space may be deleted; those of a replica or of a quarantined one must
not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from gossipkv.storage.engine.shell import DELETE, PUT, operations
from tests.world.replication.copies import (
    ASIDE,
    DIVIDED,
    EXPIRING,
    IDENTITY,
    JOINING,
    KIND_BYTES,
    LEFT,
    LOADING,
    NOTHING,
    RECORD,
    STATE,
    Bounds,
    Change,
    dot_of,
    identity_of,
    joining_of,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.storage.engine.shell import Batch
    from tests.world.replication.copies import Records
    from tests.world.replication.store import RunningStore
    from tests.world.replication.witness import Witness

    Place = tuple[int, bytes]  # A space, and the suffix of a replica's keys in it.


def rows_of(store: RunningStore, space: int) -> Mapping[bytes, Mapping[bytes, bytes]]:
    """Return the rows of a space beside records, by the suffix of their keys."""
    found: defaultdict[bytes, dict[bytes, bytes]] = defaultdict(dict)
    for key, value in store.scan(space, b"\0", RECORD, limit=1 << 16)[0]:
        found[key[KIND_BYTES:]][key[:KIND_BYTES]] = value
    return found


def records_of(store: RunningStore, space: int) -> Records:
    return {key[1:]: data for key, data in store.scan(space, RECORD, b"\2", limit=1 << 16)[0]}


@final
@dataclass(eq=False)
class Eye:
    """The witness's view of one disk; see `store.Heard`."""

    witness: Witness
    node: bytes
    spaces: dict[Place, int] = field(default_factory=dict)  # The assignment of each replica.
    aside: dict[Place, Bounds] = field(default_factory=dict)  # The bounds of quarantined replicas,
    held: dict[Place, int] = field(default_factory=dict)  # and their former assignments.
    sides: dict[int, Records] = field(default_factory=dict)  # Records appended to spaces that have no replica yet.
    pending: list[Change] = field(default_factory=list)
    last: tuple[int, Batch] | None = None  # The last batch, which may grow until it is written.
    is_put_back: bool = False  # Its disk is an older copy, from the next life on.

    # # -- an opened store ---------------------------------------------------------------------------------------------

    def opened(self, store: RunningStore) -> Iterator[tuple[int, bytes, Records]]:
        """Read the store; yield assignment, state and records of each replica."""
        self.spaces.clear()
        self.sides.clear()
        self.aside.clear()
        for space in store.spaces():
            rows = rows_of(store, space)
            records = records_of(store, space) if any(IDENTITY in row for row in rows.values()) else {}
            for suffix, row in rows.items():
                if IDENTITY in row:
                    assignment, bounds = identity_of(row[IDENTITY])
                    if ASIDE in row:
                        self.aside[space, suffix], self.held[space, suffix] = bounds, assignment
                    elif STATE in row:
                        self.spaces[space, suffix] = assignment
                        yield assignment, row[STATE], {key: one for key, one in records.items() if bounds.has(key)}

    # # -- batches -----------------------------------------------------------------------------------------------------

    def appended(self, position: int, batch: Batch) -> None:
        self.read()
        self.last = position, batch

    def read(self) -> None:
        """Decode the last batch, which does not grow any more."""
        if self.last is None:
            return
        (position, batch), self.last = self.last, None
        puts: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        gone: defaultdict[int, list[bytes]] = defaultdict(list)
        for kind, space, key, value in operations(batch.payload):
            if kind == PUT:
                puts[space].append((key, value))
            elif kind == DELETE:
                gone[space].append(key)
        for space, some in puts.items():
            kept = [key[KIND_BYTES:] for key in gone[space] if key[:KIND_BYTES] == ASIDE]
            parent = self.held.get((space, kept[0])) if kept else None
            self._puts(position, space, some, is_whole=JOINING in gone[space], kept=parent)
        for space, keys in gone.items():
            self._deletes(position, space, keys, dict(puts[space]))
        for space in batch.dropped:
            self._drops(position, space)

    def _puts(
        self,
        position: int,
        space: int,
        puts: Sequence[tuple[bytes, bytes]],
        *,
        is_whole: bool,
        kept: int | None,
    ) -> None:
        values = {key: value for key, value in puts if key[:1] == b"\0"}
        records = tuple((key[1:], data) for key, data in puts if key[:1] == RECORD)
        parent = next((self.spaces[space, key[KIND_BYTES:]] for key in values if key[:KIND_BYTES] == DIVIDED), None)
        if LOADING in values:
            self.sides[space] = {}
        if space in self.sides:
            self.sides[space].update(records)
        loaded = self.sides.pop(space, {}) if IDENTITY in values else None
        for key, value in values.items():
            suffix = key[KIND_BYTES:]
            if key[:KIND_BYTES] == IDENTITY:
                self._is_there((space, suffix), value, is_aside=ASIDE + suffix in values)
            elif key[:KIND_BYTES] == ASIDE and IDENTITY + suffix not in values:
                assignment = self.spaces.pop((space, suffix))
                self.aside[space, suffix], self.held[space, suffix] = self._bounds(assignment), assignment
                self.pending.append(Change(position, assignment, NOTHING, (), (), space, left="aside"))
        changed = [(self.spaces[at], at) for at in sorted(self.spaces) if at[0] == space and STATE + at[1] in values]
        for assignment, (_, suffix) in changed:
            own = tuple(row for row in records if self._bounds(assignment).has(row[0]))
            self._issues(assignment, own)
            joining = joining_of(values[JOINING]) if JOINING in values else None
            state, is_joining = state_of(values[STATE + suffix]), JOINING in values or is_whole
            change = Change(position, assignment, state, own, (), space, loaded, joining, is_joining)
            self.pending.append(change._replace(parent=parent if kept is None else kept))
        if changed and sum(len(one.records) for one in self.pending[-len(changed) :]) != len(records):
            self.witness.found("strays", f"a batch in space {space} has records of no copy that it says something of")

    def _is_there(self, place: Place, value: bytes, *, is_aside: bool) -> None:
        assignment, bounds = identity_of(value)
        if is_aside:
            self.aside[place], self.held[place] = bounds, assignment
            return
        self.spaces[place] = assignment
        if bounds != self._bounds(assignment):
            self.witness.found("bounds", f"{assignment} has {bounds}, and by the map {self._bounds(assignment)}")

    def _bounds(self, assignment: int) -> Bounds:
        moves = self.witness.moves
        return moves.lineage.bounds.get(moves.partitions[assignment], Bounds())

    def _issues(self, assignment: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        for key, data in records:
            if dot_of(data)[0] == assignment:
                self.witness.issued[dot_of(data)] = key, data
                self.witness.counts["records"] += 1

    def _deletes(self, position: int, space: int, keys: Sequence[bytes], puts: Mapping[bytes, bytes]) -> None:
        collected: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in keys:
            suffix = key[KIND_BYTES:]
            if key[:1] == RECORD:
                self._deletes_record(space, key[1:], collected)
            elif key[:KIND_BYTES] == LEFT:
                self.witness.counts["what was left is cleared"] += 1
            elif key[:KIND_BYTES] == IDENTITY and self.aside.pop((space, suffix), None) is None:
                self._leaves(position, (space, suffix), puts)
        for assignment, some in collected.items():
            self.pending.append(Change(position, assignment, NOTHING, (), tuple(some), space))

    def _deletes_record(self, space: int, key: bytes, collected: defaultdict[int, list[bytes]]) -> None:
        here = [self.spaces[place] for place in self.spaces if place[0] == space]
        owner = next((one for one in here if self._bounds(one).has(key)), None)
        if owner is not None:
            collected[owner].append(key)
        elif any(place[0] == space and bounds.has(key) for place, bounds in self.aside.items()):
            self.witness.found("aside", f"{key!r} is deleted from space {space}, where it is set aside")

    def _leaves(self, position: int, place: Place, puts: Mapping[bytes, bytes]) -> None:
        """Note that a replica has left its place: it is split, is in another space, or is dropped beside others."""
        space, suffix = place
        assignment = self.spaces.pop(place)
        if DIVIDED + suffix in puts:
            parts = [at for at in self.aside if at[0] == space and ASIDE + at[1] in puts]
            orphans = tuple(self.aside[at] for at in parts)
            self.pending.append(Change(position, assignment, NOTHING, (), (), space, left="divided", orphans=orphans))
        elif assignment in self.spaces.values():
            self.witness.counts["loads beside a sibling"] += 1
        else:
            self.pending.append(Change(position, assignment, NOTHING, (), (), space, left="dropped"))

    def _drops(self, position: int, space: int) -> None:
        self.sides.pop(space, None)
        places = [place for place in self.spaces if place[0] == space]
        if len(places) > 1 or any(place[0] == space for place in self.aside):
            self.witness.found("shared", f"space {space} is dropped, and others lie in it")
        for place in places:
            assignment = self.spaces.pop(place)
            if assignment not in self.spaces.values():
                self.pending.append(Change(position, assignment, NOTHING, (), (), space, left="dropped"))

    def merged(self, store: RunningStore) -> None:
        """Find the expired records that a merge has dropped."""
        for (space, _), assignment in self.spaces.items():
            model = self.witness.models.get(assignment)
            if model is None:
                continue
            expiring = {key for key, data in model.records.items() if data[24:25] == EXPIRING} - model.collected
            for key in sorted(expiring - records_of(store, space).keys()) if expiring else ():
                self.witness.expires(model, key)

    def synced(self, position: int) -> None:
        if self.last is not None and self.last[0] <= position:
            self.read()
        while self.pending and self.pending[0].position <= position:
            self.witness.applies(self.pending.pop(0), self.node)
