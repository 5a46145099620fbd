"""Each checker of METADATA reports the violation that is planted for it, and nothing else."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.ballot import ZERO, Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors, Value
from gossipkv.register.edits import MapValue, Transaction
from gossipkv.register.messages import AcceptorRecord, encode_record
from gossipkv.register.metadata import tables
from gossipkv.register.metadata.known import ENTRY, META, OUTCOMES, KnownMap, MapView, config_id, stamped
from gossipkv.register.metadata.operations import Operation, OperationOutcome, judge
from gossipkv.register.metadata.partitions import OPERATIONS, TableMeta, first_edits, shard_key
from gossipkv.register.metadata.tables import NamedTable
from gossipkv.register.space import MAP, RECORD
from gossipkv.register.state import HEADER, Base, encode_header
from tests.world.metadata import world
from tests.world.metadata.deciding_node import CATALOGUE
from tests.world.metadata.store import Disk
from tests.world.metadata.witness import Answered, Witness

TABLE = b"a table's id ..."
WHO = [AcceptorId(16 * letter, 7) for letter in (b"a", b"b", b"c")]
ALL = Acceptors.of(WHO)
KEY = shard_key(0)
FIRST = first_edits(
    TableMeta(TABLE, "t", "hash", 1, 1),
    {KEY: Partition.of(5, [Assignment(6, WHO[0].node, 0, AssignmentState.AVAILABLE)])}, 1,
)  # fmt: skip


class Scene:
    """Three disks that a test fills; the catalogue names one table, whose map is the first."""

    def __init__(self):
        self.random = Random(1)
        self.witness = Witness(CATALOGUE)
        self.disks = [Disk(who.node, who.store) for who in WHO]
        self.witness.disks = dict(zip(WHO, self.disks, strict=True))
        self.counter = 0
        self.tops = {}  # By register: the committed maps.
        self.do(CATALOGUE, [(META, stamped(1, b"secret"))])
        self.do(TABLE, FIRST)
        self.judge(CATALOGUE, self.wish("add_table", b"t", *NamedTable(TABLE, "hash", ALL.new, 1)))
        self.put(TABLE, self.top())
        assert self.broken() == set()

    def broken(self):
        return {violation.checker for violation in self.witness.violations}

    def sync(self, records, disks=(0, 1, 2)):
        for at in disks:
            for key, value in records:
                if value is None:
                    self.disks[at].records.pop(key, None)
                else:
                    self.disks[at].records[key] = value
            self.witness.synced(self.disks[at], records)

    def put(self, register, base, disks=(0, 1, 2)):
        """Write a map as the base of disks."""
        entries = [(MAP + register + b"\0" + key, record) for key, record in base.entries.scan()]
        self.sync(
            [(MAP + register + HEADER, encode_header(base._replace(acceptors=ALL, shown=ZERO), 0)), *entries], disks
        )

    def accept(self, register, value, disks=(0, 1, 2), ballot=None):
        self.counter += 1
        at = ballot or Ballot(0, 0, self.counter, 1)
        self.sync([(RECORD + register, encode_record(AcceptorRecord(at, at, Value(ALL, value.encode()))))], disks)

    def top(self, register=TABLE):
        return self.tops.get(register, [Base()])[-1]

    def follows(self, edits, register=TABLE):
        """Return the value with a transaction of these edits after the top, and its map."""
        base = self.top(register)
        after = base.after(sorted(edits))
        transaction = Transaction(after.sequence, tuple(sorted(edits)), after.digest)
        return MapValue(after.sequence, after.digest, base.sequence, (transaction,)), after

    def do(self, register, edits):
        value, after = self.follows(edits, register)
        if after.sequence > 1:
            self.put(register, self.top(register))
        self.accept(register, value)
        self.tops.setdefault(register, [Base()]).append(after)

    def wish(self, name, *argument, base=1):
        operation = Operation(self.random.randbytes(20), base, name, 1, argument)
        self.witness.wanted[operation.id] = [operation]
        return operation

    def judged(self, register, *operations):
        top = self.top(register)
        functions = tables.OPERATIONS if register == CATALOGUE else OPERATIONS
        return judge(MapView(top.entries, top.sequence), 0, operations, top.sequence + 1, functions).edits

    def judge(self, register, *operations):
        self.do(register, self.judged(register, *operations))

    def assign(self, base=1):
        """Return an operation that assigns the partition to the second node."""
        return self.wish("assign", KEY, 5, self.random.getrandbits(60), WHO[1].node, 0, base=base)

    def recorded(self, operation, outcome):
        """Return the edit of a transaction that records one outcome."""
        config = self.top().sequence + 1
        row = operation.id + operation.digest + bytes((outcome,))
        return OUTCOMES + config.to_bytes(8, "big"), stamped(config, row)

    def show(self, base, who=0, **changed):
        base = base._replace(acceptors=ALL, shown=ZERO, **changed)
        maps = SimpleNamespace(known={TABLE: base})
        self.witness.shown(self.disks[who], SimpleNamespace(maps=maps, known={TABLE: KnownMap(base)}))


@pytest.fixture
async def scene():
    return Scene()


async def test_what_is_right_is_right(scene):
    """A transaction, a refusal, a conflict, their answers and the end of the table break nothing."""
    moved, late = scene.assign(), scene.assign()
    refused = scene.wish("advance", KEY, 5, 1, 2, base=2)
    scene.show(scene.top())
    scene.judge(TABLE, moved, late)
    scene.judge(TABLE, refused)
    scene.show(scene.top())
    for operation, outcome in (
        (moved, OperationOutcome.DONE),
        (late, OperationOutcome.CONFLICT),
        (refused, OperationOutcome.REFUSED),
    ):
        scene.witness.told.append(Answered(TABLE, operation.id, outcome, "answer"))
    scene.witness.told.append(Answered(TABLE, bytes(20), OperationOutcome.REFUSED, "ask"))
    assert scene.witness.counts["replayed"] == 3
    scene.put(TABLE, scene.top())
    scene.accept(TABLE, MapValue(3, scene.top().digest, 3).ended_by(b"drop"))
    scene.sync([(MAP + TABLE, None)])
    scene.witness.check_told()
    assert scene.witness.violations == []


async def test_two_values_in_a_ballot(scene):
    ballot = Ballot(0, 0, 90, 1)
    value, _ = scene.follows([(ENTRY + b"x", b"1")])
    scene.accept(TABLE, value, disks=[0], ballot=ballot)
    scene.accept(TABLE, value.ended_by(b"drop"), disks=[1], ballot=ballot)
    assert "one_value" in scene.broken()


@pytest.mark.parametrize("fork", ["from another", "a sequence left out", "after the end", "the end taken back"])
async def test_a_fork(scene, fork):
    """A value must continue the top, or be it."""
    first = MapValue(1, scene.top().digest, 1)
    value, after = scene.follows(scene.judged(TABLE, scene.assign()))
    match fork:
        case "from another":
            scene.judge(TABLE, scene.assign())
            scene.accept(TABLE, value)
        case "a sequence left out":
            last = Transaction(3, ((ENTRY + b"x", b"1"),), after.after([(ENTRY + b"x", b"1")]).digest)
            scene.accept(TABLE, MapValue(3, last.digest, 2, (last,)))
        case "after the end":
            scene.accept(TABLE, first.ended_by(b"drop"))
            scene.accept(TABLE, value)
        case "the end taken back":
            scene.accept(TABLE, first.ended_by(b"drop"))
            scene.accept(TABLE, first)
    assert "one_chain" in scene.broken()


async def test_a_commit_below_the_top(scene):
    (value, _), (other, _) = (scene.follows(scene.judged(TABLE, scene.assign())) for _ in range(2))
    scene.accept(TABLE, value, ballot=Ballot(0, 0, 92, 1))
    scene.accept(TABLE, value, ballot=Ballot(0, 0, 91, 1))
    assert scene.broken() == set()
    scene.accept(TABLE, other, ballot=Ballot(0, 0, 90, 1))
    assert scene.broken() == {"one_chain"}


async def test_a_force_may_go_back(scene):
    first = scene.top()
    scene.judge(TABLE, scene.assign())
    scene.accept(TABLE, MapValue(1, first.digest, 1), ballot=Ballot(1, 1, 1, 1))
    assert scene.broken() <= {"held"}


async def test_a_map_that_no_majority_has(scene):
    """An acceptor with the value, but without what it continues, has no map."""
    scene.judge(TABLE, scene.assign())
    value, _ = scene.follows(scene.judged(TABLE, scene.assign(base=2)))
    scene.put(TABLE, scene.top(), disks=[0])
    scene.accept(TABLE, value._replace(tail=value.tail[-1:]), disks=[0, 1])
    assert scene.broken() == {"held"}
    assert any("is held by 1 of 3" in violation.what for violation in scene.witness.violations)


async def test_an_acceptor_without_the_map(scene):
    scene.judge(TABLE, scene.assign())
    value, _ = scene.follows(scene.judged(TABLE, scene.assign(base=2)))
    scene.put(TABLE, scene.top(), disks=[0, 1])
    scene.accept(TABLE, value)
    (violation,) = scene.witness.violations
    assert "accepted 3" in violation.what


@pytest.mark.parametrize("key", [HEADER, b"\0" + META])
async def test_what_is_needed_is_deleted(scene, key):
    """The records of the base that a value continues must stay."""
    scene.judge(TABLE, scene.assign())
    scene.sync([(MAP + TABLE + key, None)], disks=[0])
    assert "held" in scene.broken()


async def test_a_table_is_named_before_it_is_held(scene):
    """The catalogue may name a table only when a majority holds its first map."""
    other = b"o" * 16
    value, after = scene.follows(FIRST, other)
    last = after.after([(ENTRY + b"x", b"1")])
    scene.accept(other, value)
    transaction = Transaction(2, ((ENTRY + b"x", b"1"),), last.digest)
    scene.accept(other, MapValue(2, last.digest, 1, (transaction,)))
    assert scene.broken() == set()
    named = NamedTable(other, "hash", ALL.new, 1)
    scene.judge(CATALOGUE, scene.wish("add_table", b"o", *named))
    assert scene.broken() == {"held"}


async def test_an_undecided_base(scene):
    value, after = scene.follows(scene.judged(TABLE, scene.assign()))
    scene.accept(TABLE, value, disks=[0])
    scene.put(TABLE, after, disks=[0])
    assert scene.broken() == {"decided"}


async def test_a_base_with_another_content(scene):
    scene.put(TABLE, scene.top(), disks=[0])
    scene.sync([(MAP + TABLE + b"\0" + META, b"another")], disks=[0])
    assert "decided" in scene.broken()


async def test_a_value_calls_more_decided_than_is(scene):
    value, _ = scene.follows(scene.judged(TABLE, scene.assign()))
    scene.accept(TABLE, value._replace(decided=2), disks=[0])
    assert scene.broken() == {"decided"}


async def test_damage_is_excused_until_it_is_replaced(scene):
    disk = scene.disks[0]
    scene.judge(TABLE, scene.assign())
    disk.records[MAP + TABLE + b"\0" + META] = b"damaged"
    scene.witness.damages(disk, TABLE)
    scene.sync([(RECORD + CATALOGUE, disk.records[RECORD + CATALOGUE])], disks=[0])
    assert scene.witness.damaged == {(WHO[0], TABLE)}
    scene.put(TABLE, scene.top(), disks=[0])
    assert scene.witness.damaged == set()
    assert scene.broken() == set()


@pytest.mark.parametrize("plant", ["never committed", "another content"])
async def test_what_never_was_is_shown(scene, plant):
    value, after = scene.follows(scene.judged(TABLE, scene.assign()))
    scene.accept(TABLE, value, disks=[0])
    changed = {"entries": after.entries} if plant == "another content" else {}
    scene.show(scene.top() if changed else after, **changed)
    assert scene.broken() == {"committed"}


async def test_what_is_shown_falls(scene):
    """The shown map may not fall in memory or on disk; in a later generation it may."""
    first = scene.top()
    scene.judge(TABLE, scene.assign())
    second = scene.top()
    scene.show(second)
    scene.show(first, generation=1)
    assert scene.broken() == set()
    scene.show(second)
    assert scene.broken() == {"rising"}
    scene.witness.violations.clear()
    for base in (second, first):
        scene.put(TABLE, base, disks=[1])
    assert "rising" in scene.broken()


async def test_an_operation_happens_twice(scene):
    operation = scene.wish("unassign", KEY, 5, 9)
    scene.judge(TABLE, operation)
    scene.do(TABLE, [scene.recorded(operation, OperationOutcome.DONE)])
    assert scene.broken() == {"judged"}


@pytest.mark.parametrize("plant", ["re-based over a touched partition", "not applied", "dead", "without an operation"])
async def test_a_transaction_is_judged_otherwise(scene, plant):
    """The outcomes that a transaction records, and its map, must be those that the rules give."""
    scene.judge(TABLE, scene.assign())
    match plant:
        case "re-based over a touched partition":
            edits = [scene.recorded(scene.assign(base=1), OperationOutcome.DONE)]
        case "not applied":
            operation = scene.wish("advance", KEY, 5, 6, 9, base=2)
            edits = [(ENTRY + KEY, stamped(3, b"x")), scene.recorded(operation, OperationOutcome.REFUSED)]
        case "dead":
            operation = scene.wish("unassign", KEY, 5, 9, base=config_id(0, 70))
            edits = [scene.recorded(operation, OperationOutcome.DONE)]
        case "without an operation":
            edits = [(ENTRY + KEY, stamped(3, b"x"))]
    scene.do(TABLE, edits)
    assert scene.broken() == {"judged"}


async def test_an_outcome_is_deleted_too_early(scene):
    scene.judge(TABLE, scene.assign())
    edits = scene.judged(TABLE, scene.wish("unassign", KEY, 5, 9, base=2))
    scene.do(TABLE, [(OUTCOMES + (2).to_bytes(8, "big"), None), *edits])
    assert scene.broken() == {"judged"}


@pytest.mark.parametrize(("by", "told"), [
    ("answer", OperationOutcome.REFUSED), ("answer", OperationOutcome.CONFLICT), ("ask", OperationOutcome.REFUSED),
    ("create", OperationOutcome.REFUSED),
])  # fmt: skip
async def test_what_was_told_is_not_so(scene, by, told):
    """An answer must agree with the recorded outcome, and DONE must have happened."""
    operation = scene.assign()
    scene.judge(TABLE, operation)
    scene.witness.told.append(Answered(TABLE, operation.id, told, by))
    scene.witness.check_told()
    assert scene.broken() == {"judged"}
    scene.witness.violations.clear()
    scene.witness.told[:] = [Answered(TABLE, bytes(20), OperationOutcome.DONE, by)]
    scene.witness.check_told()
    assert scene.broken() == {"judged"}


async def test_what_must_be_so_after_healing(scene):
    """A node that shows other tables is reported, and so are records of a table that nothing names."""
    node = SimpleNamespace(
        uuid=WHO[0].node,
        disk=scene.disks[0],
        life=SimpleNamespace(catalogue=SimpleNamespace(tables=scene.witness.tables)),
    )
    world.check_right([node], scene.witness)
    assert world.left_over([node], scene.witness) == []
    assert scene.broken() == set()
    node.life.catalogue.tables = dict
    world.check_right([node], scene.witness)
    assert scene.broken() == {"live"}
    scene.disks[0].records[MAP + b"x" * 16 + b"\0" + META] = b""
    assert len(world.left_over([node], scene.witness)) == 1
