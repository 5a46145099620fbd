"""The witness of splits reports each violation that is planted for it, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock as packed
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import (
    ABANDONED,
    DIVIDED,
    IDENTITY,
    QUARANTINED,
    RECORD,
    STATE,
    KeyBounds,
    ReplicaIdentity,
    suffix_of,
)
from gossipkv.storage.engine.shell import Batch
from tests.world.replication.eye import Eye
from tests.world.replication.witness import Witness

TABLE = b"tableid_tableid_"
NODES = {1: b"a", 2: b"b", 3: b"c"}
PARENT, LOW, HIGH = 7, 8, 9
HALVES = {LOW: KeyBounds(b"", b"m"), HIGH: KeyBounds(b"m", None)}
SPACE = 5


def partition(id_, former=(), base=0):
    """Return a partition on three nodes, with assignments numbered from `base`."""
    hosts = [Assignment(base + number, node, number - 1, AssignmentState.AVAILABLE) for number, node in NODES.items()]
    return Partition.of(id_, hosts)._replace(former=former)


class Scene:
    """A range on three nodes, with a record in each half that all have; the map splits the range."""

    def __init__(self):
        self.witness = Witness(now=lambda: 0.0)
        self.eyes = {number: Eye(self.witness, node) for number, node in NODES.items()}
        self.position = 0
        moves = self.witness.moves
        moves.lineage.bounds[PARENT] = KeyBounds(b"", None)
        moves.decided(1, partition(PARENT), 3)
        self.rows = [(b"a", self.record(b"a", 1)), (b"z", self.record(b"z", 2))]
        for number in NODES:
            batch = Batch()
            batch.new_space(SPACE)
            batch.put(SPACE, IDENTITY, ReplicaIdentity(TABLE, PARENT, number).encode())
            batch.put(SPACE, STATE, self.state(1, {}, (1, 2, 3)))
            self.syncs(number, batch)
            self.takes(number, *self.rows, clock={1: 2}, before={})
        children = [partition(id_, (1, 2, 3), 10 * id_) for id_ in HALVES]
        moves._divides({b"": partition(PARENT)}, dict(zip((b"", b"m"), children, strict=True)))
        for child in children:
            moves.decided(2, child, 3)

    def record(self, key, count, origin=1):
        data = record.encode(10 * count, origin, count, record.PUT, b"", b"")
        self.witness.issued[origin, count] = key, data
        return data

    @staticmethod
    def state(config, after, named, before=None):
        clocks = ({**dict.fromkeys(named, 0), **one} for one in (after, after if before is None else before))
        return encode_state(0, config, *(packed.of(sorted(one.items())) for one in clocks))

    def syncs(self, number, batch):
        """Let a node append a batch and sync it."""
        self.position += 1
        self.eyes[number].appended(self.position, batch)
        self.eyes[number].synced(self.position)

    def takes(self, number, *rows, clock, before):
        """Let the parent's replica at a node receive records."""
        batch = Batch()
        for key, data in rows:
            batch.put(SPACE, RECORD + key, data)
        batch.put(SPACE, STATE, self.state(1, clock, (1, 2, 3), before))
        self.syncs(number, batch)

    def adopts(self, number, *, clock=None, named=None, bounds=HALVES, aside=()):
        batch = Batch()
        for key in (IDENTITY, STATE):
            batch.delete(SPACE, key)
        batch.put(SPACE, DIVIDED, ReplicaIdentity(TABLE, PARENT, number).encode())
        for id_, half in bounds.items():
            own = number if id_ in aside else 10 * id_ + number
            batch.put(SPACE, IDENTITY + suffix_of(id_), ReplicaIdentity(TABLE, id_, own, half).encode())
            if id_ in aside:
                batch.put(SPACE, QUARANTINED + suffix_of(id_), b"why")
            else:
                its = named or (1, 2, 3, *(10 * id_ + one for one in NODES))
                state = self.state(2, {1: 2} if clock is None else clock, its)
                batch.put(SPACE, STATE + suffix_of(id_), state)
        self.syncs(number, batch)

    def deletes(self, number, *keys, leaves=None):
        """Let a node delete keys, and state that the child `leaves` has left the space."""
        batch = Batch()
        for key in keys:
            batch.delete(SPACE, key)
        if leaves:
            for key in (IDENTITY, STATE):
                batch.delete(SPACE, key + suffix_of(leaves))
            batch.put(SPACE, ABANDONED + suffix_of(leaves), ReplicaIdentity(TABLE, leaves, 1, HALVES[leaves]).encode())
        self.syncs(number, batch)

    def stands(self, number, *rows, has=(LOW, HIGH)):
        """Return the store that a later life of a node finds."""
        found = [(RECORD + key, data) for key, data in rows]
        for id_ in has:
            found.append(
                (IDENTITY + suffix_of(id_), ReplicaIdentity(TABLE, id_, 10 * id_ + number, HALVES[id_]).encode())
            )
            named = (1, 2, 3, *(10 * id_ + one for one in NODES))
            found.append((STATE + suffix_of(id_), self.state(2, {1: 2}, named)))

        def scan(space, start, end, limit):
            return sorted(row for row in found if start <= row[0] < end), None

        return SimpleNamespace(spaces=lambda: [SPACE], scan=scan)

    @property
    def broken(self):
        return {violation.checker for violation in self.witness.violations}


@pytest.fixture
def scene():
    """Return a scene whose first node has adopted the split."""
    scene = Scene()
    scene.adopts(1)
    assert scene.broken == set()
    return scene


def test_what_is_right(scene):
    """Each child begins with its half and keeps it in a later life; a node that has not heard of the split goes on."""
    models = scene.witness.models
    assert [models[10 * id_ + 1].records.keys() for id_ in HALVES] == [{b"a"}, {b"z"}]
    assert models[1].left == "divided"
    scene.witness.opened(scene.eyes[1], scene.stands(1, *scene.rows))
    scene.takes(2, (b"b", scene.record(b"b", 1, 2)), clock={1: 2, 2: 1}, before={1: 2})
    scene.adopts(2, clock={1: 2, 2: 1})
    assert scene.broken == set()
    assert scene.witness.counts["written, not heard of a division"] == 1


@pytest.mark.parametrize(
    ("how", "broken"),
    [
        ({"clock": {}}, "ended"),
        ({"clock": {1: 1}}, "continuity"),
        ({"named": (81, 82, 83)}, "named"),  # The child drops a former assignment.
        ({"bounds": {LOW: KeyBounds(b"", b"n"), HIGH: KeyBounds(b"n", None)}}, "bounds"),
        ({"aside": (HIGH,)}, "dropped"),  # A half of this node is quarantined.
    ],
)
def test_an_adoption_that_is_wrong(how, broken):
    """A wrong clock, wrong names, wrong bounds or a missing half is reported."""
    scene = Scene()
    scene.adopts(1, **how)
    assert broken in scene.broken


def test_a_parent_that_goes_on_after_its_adoption(scene):
    """The parent's replica is split: records under its state belong to no replica."""
    batch = Batch()
    batch.put(SPACE, IDENTITY, ReplicaIdentity(TABLE, PARENT, 1).encode())
    batch.put(SPACE, RECORD + b"c", scene.record(b"c", 3))
    batch.put(SPACE, STATE, scene.state(1, {1: 3}, (1, 2, 3), {1: 2}))
    scene.syncs(1, batch)
    assert "left" in scene.broken


def test_records_that_a_child_lost(scene):
    """A record may be lost neither by a disk nor by a sibling's delete."""
    scene.witness.opened(scene.eyes[1], scene.stands(1, *scene.rows[:1]))
    assert scene.broken == {"disk"}
    scene.witness.violations.clear()
    scene.deletes(1, RECORD + b"z")
    assert scene.broken == {"collected"}


def test_what_is_left_may_be_deleted_and_nothing_else(scene):
    """After a child has loaded elsewhere its old records may be deleted, but not its sibling's."""
    batch = Batch()
    batch.new_space(6)
    batch.put(6, IDENTITY, ReplicaIdentity(TABLE, LOW, 81, HALVES[LOW]).encode())
    batch.put(6, STATE, scene.state(2, {1: 2}, (1, 2, 3, 81, 82, 83)))
    for key in (IDENTITY, STATE):
        batch.delete(SPACE, key + suffix_of(LOW))
    scene.eyes[1].sides[6] = dict(scene.rows[:1])
    scene.syncs(1, batch)
    scene.deletes(1, RECORD + b"a")
    assert scene.broken == set()
    assert scene.witness.counts["loads beside a sibling"] == 1
    scene.deletes(1, RECORD + b"z")
    assert scene.broken == {"collected"}


def test_what_is_set_aside_stays():
    """Only an operator may drop a quarantined replica."""
    scene = Scene()
    scene.adopts(1, aside=(HIGH,))
    scene.witness.violations.clear()
    scene.deletes(1, RECORD + b"z")
    assert scene.broken == {"aside"}


def test_a_space_that_is_dropped_with_two_in_it(scene):
    """A child that leaves may delete only its own records."""
    batch = Batch()
    batch.drop_space(SPACE)
    scene.syncs(1, batch)
    assert "shared" in scene.broken


def test_what_a_copy_has_left_behind(scene):
    scene.witness.check_litter(scene.stands(1, *scene.rows))
    assert scene.broken == set()
    scene.witness.check_litter(scene.stands(1, *scene.rows, has=(HIGH,)))
    assert scene.broken == {"litter"}


def test_records_of_nobody(scene):
    """A batch must not state one child's clock and hold the other child's record."""
    batch = Batch()
    batch.put(SPACE, RECORD + b"z", scene.record(b"z", 1, 81))
    batch.put(SPACE, STATE + suffix_of(LOW), scene.state(2, {1: 2, 81: 1}, (1, 2, 3, 81, 82, 83), {1: 2}))
    scene.syncs(1, batch)
    assert "strays" in scene.broken


@pytest.mark.parametrize(("hosts", "broken"), [((1, 2), set()), ((1,), {"acknowledged"})])
def test_what_is_reached_across_a_division(scene, hosts, broken):
    """Enough replicas had the record by the parent's map, or have it by the child's."""
    for number in hosts[1:]:
        scene.adopts(number)
    if len(hosts) == 1:
        for number in (2, 3):  # The nodes never had the record.
            scene.witness.models[number].confirmed.clear()
    heirs = [
        SimpleNamespace(children=(), bounds=HALVES[id_], identity=ReplicaIdentity(TABLE, id_, 10 * id_ + 1))
        for id_ in HALVES
    ]
    scene.witness.reached(1, SimpleNamespace(children=heirs), [(1, 2)], "majority")
    assert scene.broken == broken
