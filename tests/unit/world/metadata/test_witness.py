"""Each checker of METADATA reports the violation that is planted for it, and nothing else."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.ballot import Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors, Value
from gossipkv.register.messages import AcceptorRecord, encode_record
from gossipkv.register.metadata import tables
from gossipkv.register.metadata.head import MapHead
from gossipkv.register.metadata.known import KNOWN, KnownMap
from gossipkv.register.metadata.operations import Operation, judge
from gossipkv.register.metadata.pages import OperationOutcome, config_id
from gossipkv.register.metadata.partitions import OPERATIONS, TableMeta, first_body, shard_key
from gossipkv.register.metadata.tables import NamedTable
from gossipkv.register.metadata.tree import MapTree
from gossipkv.register.space import MAP, RECORD
from tests.world.metadata import world
from tests.world.metadata.deciding_node import CATALOGUE
from tests.world.metadata.store import Disk
from tests.world.metadata.witness import PAGE, PIN, Answered, Witness

TABLE = b"a table's id ..."
WHO = [AcceptorId(16 * letter, 7) for letter in (b"a", b"b", b"c")]
ALL = Acceptors.of(WHO)
KEY = shard_key(0)


class Scene:
    """Three disks that a test fills; the catalogue names one table, whose head is the first."""

    def __init__(self):
        self.random = Random(1)
        self.witness = Witness(CATALOGUE)
        self.disks = [Disk(who.node, who.store) for who in WHO]
        self.witness.disks = dict(zip(WHO, self.disks, strict=True))
        self.pages = {}
        self.counter = 0
        empty = MapTree.empty(tables.CATALOGUE.name).edit(1).finish()
        self.tops = {}
        self.put(CATALOGUE, empty)
        self.commit(CATALOGUE, MapHead(1, self.random.randbytes(16), empty.root))
        partition = Partition.of(5, [Assignment(6, WHO[0].node, 0, AssignmentState.AVAILABLE)])
        first = first_body(TableMeta(TABLE, "t", "hash", 1, 1), {KEY: partition}, 1)
        self.put(TABLE, first)
        self.commit(TABLE, MapHead(1, self.random.randbytes(16), first.root))
        self.do(
            CATALOGUE, self.wish("add_table", b"t", *NamedTable(TABLE, "hash", ALL.new, 1)), functions=tables.OPERATIONS
        )
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

    def put(self, register, changed, disks=(0, 1, 2)):
        self.pages |= changed.pages
        pages = [(MAP + register + PAGE + name, page) for name, page in changed.pages.items()]
        self.sync([(MAP + register + PIN + changed.root, bytes(8)), *pages], disks)

    def commit(self, register, head, disks=(0, 1, 2), ballot=None):
        self.counter += 1
        at = ballot or Ballot(0, 0, self.counter, 1)
        self.tops[register] = head
        self.sync([(RECORD + register, encode_record(AcceptorRecord(at, at, Value(ALL, head.encode()))))], disks)

    def wish(self, name, *argument, base=1):
        operation = Operation(self.random.randbytes(20), base, name, 1, argument)
        self.witness.wanted[operation.id] = [operation]
        return operation

    def judged(self, register, *operations, functions=OPERATIONS, config=None):
        top = self.tops[register]
        kind = tables.CATALOGUE.name if register == CATALOGUE else "partitions"
        tree = MapTree.opened(self.pages.__getitem__, top.root, kind)
        return judge(tree, operations, config or top.config + 1, functions).changed

    def do(self, register, *operations, functions=OPERATIONS):
        changed = self.judged(register, *operations, functions=functions)
        self.put(register, changed)
        self.commit(register, self.next_head(register, changed.root))

    def next_head(self, register, root):
        top = self.tops[register]
        return top.followed_by(top.config + 1, self.random.randbytes(16), root)

    def assign(self, base=1):
        """Return an operation that assigns the partition to the second node."""
        return self.wish("assign", KEY, 5, self.random.getrandbits(60), WHO[1].node, 0, base=base)

    def show(self, head, who=0, generation=0):
        metadata = SimpleNamespace(
            known={TABLE: KnownMap(head, ALL, generation)}, tree=lambda register: MapTree.empty("x")
        )
        self.witness.shown(self.disks[who], metadata)


@pytest.fixture
async def scene():
    return Scene()


async def test_what_is_right_is_right(scene):
    """A transaction, a refusal, a conflict, their answers and the end of the table break nothing."""
    moved, late = scene.assign(), scene.assign()
    refused = scene.wish("advance", KEY, 5, 1, 2, base=2)
    first = scene.tops[TABLE]
    scene.show(first)
    scene.do(TABLE, moved, late)
    scene.do(TABLE, refused)
    scene.show(scene.tops[TABLE])
    for operation, outcome in (
        (moved, OperationOutcome.DONE),
        (late, OperationOutcome.CONFLICT),
        (refused, OperationOutcome.REFUSED),
    ):
        scene.witness.told.append(Answered(TABLE, operation.id, outcome, "answer"))
    scene.witness.told.append(Answered(TABLE, bytes(20), OperationOutcome.REFUSED, "ask"))
    assert scene.witness.counts["replayed"] == 3
    scene.commit(TABLE, scene.tops[TABLE]._replace(ended=True))
    scene.sync([(MAP + TABLE + PAGE + first.root, None), (MAP + TABLE + PIN + first.root, None)])
    scene.witness.check_told()
    assert scene.witness.violations == []


async def test_two_values_in_a_ballot(scene):
    head = scene.tops[TABLE]
    ballot = Ballot(0, 0, 90, 1)
    scene.commit(TABLE, head, disks=[0, 1], ballot=ballot)
    scene.commit(TABLE, head._replace(ended=True), disks=[2], ballot=ballot)
    assert scene.broken() == {"one_value"}


@pytest.mark.parametrize("fork", ["from another", "a sequence left out", "after the end", "the end taken back"])
async def test_a_fork(scene, fork):
    first = scene.tops[TABLE]
    changed = scene.judged(TABLE, scene.assign())
    scene.put(TABLE, changed)
    follows = scene.next_head(TABLE, changed.root)
    match fork:
        case "from another":
            scene.commit(TABLE, first._replace(transaction=bytes(16)).followed_by(2, b"x" * 16, changed.root))
        case "a sequence left out":
            scene.commit(TABLE, follows._replace(config=3))
        case "after the end":
            scene.commit(TABLE, first._replace(ended=True))
            scene.commit(TABLE, follows)
        case "the end taken back":
            scene.commit(TABLE, first._replace(ended=True))
            scene.commit(TABLE, first)
    assert "one_chain" in scene.broken()


async def test_a_commit_below_the_top(scene):
    changed, other = scene.judged(TABLE, scene.assign()), scene.judged(TABLE, scene.assign())
    scene.put(TABLE, changed)
    scene.put(TABLE, other)
    follows, beside = scene.next_head(TABLE, changed.root), scene.next_head(TABLE, other.root)
    scene.commit(TABLE, follows, ballot=Ballot(0, 0, 92, 1))
    scene.commit(TABLE, follows, ballot=Ballot(0, 0, 91, 1))
    assert scene.broken() == set()
    scene.commit(TABLE, beside, ballot=Ballot(0, 0, 90, 1))
    assert scene.broken() == {"one_chain"}


async def test_a_body_that_no_majority_holds(scene):
    changed = scene.judged(TABLE, scene.assign())
    scene.put(TABLE, changed, disks=[0])
    scene.commit(TABLE, scene.next_head(TABLE, changed.root), disks=[0, 1])
    assert scene.broken() == {"held"}
    assert any("is held by 1 of 3" in violation.what for violation in scene.witness.violations)


async def test_an_acceptor_without_the_pages(scene):
    changed = scene.judged(TABLE, scene.assign())
    scene.put(TABLE, changed, disks=[0, 1])
    scene.commit(TABLE, scene.next_head(TABLE, changed.root))
    (violation,) = scene.witness.violations
    assert "accepted 0/2" in violation.what


@pytest.mark.parametrize("tag", [PAGE, PIN])
async def test_what_is_needed_is_collected(scene, tag):
    """A page of the top, or its pin, must stay on two of three acceptors."""
    scene.sync([(MAP + TABLE + tag + scene.tops[TABLE].root, None)], disks=[0, 1])
    assert scene.broken() == {"held"}


async def test_a_table_is_named_before_it_is_held(scene):
    """The catalogue may name a table only when a majority holds its first map."""
    changed = first_body(
        TableMeta(b"o" * 16, "o", "hash", 1, 1),
        {KEY: Partition.of(5, [Assignment(6, WHO[0].node, 0, AssignmentState.AVAILABLE)])}, 1,
    )  # fmt: skip
    scene.put(b"o" * 16, changed, disks=[0])
    scene.commit(b"o" * 16, MapHead(1, bytes(16), changed.root))
    assert scene.broken() == set()
    named = NamedTable(b"o" * 16, "hash", ALL.new, 1)
    scene.do(CATALOGUE, scene.wish("add_table", b"o", *named), functions=tables.OPERATIONS)
    assert scene.broken() == {"held"}


async def test_a_page_under_another_name(scene):
    page = next(iter(scene.pages.values()))
    scene.sync([(MAP + TABLE + PAGE + bytes(32), page)], disks=[2])
    assert scene.broken() == {"names"}


async def test_what_was_never_committed_is_shown(scene):
    changed = scene.judged(TABLE, scene.assign())
    scene.put(TABLE, changed)
    head = scene.next_head(TABLE, changed.root)
    scene.commit(TABLE, head, disks=[0])
    scene.show(head)
    assert scene.broken() == {"committed"}


async def test_what_is_shown_falls(scene):
    """The shown head may not fall in memory or on disk; heads of different generations are independent."""
    first = scene.tops[TABLE]
    scene.do(TABLE, scene.assign())
    second = scene.tops[TABLE]
    scene.show(second)
    scene.show(first, generation=1)
    assert scene.broken() == set()
    scene.show(second)
    assert scene.broken() == {"rising"}
    scene.witness.violations.clear()
    for head in (second, first):
        scene.sync([(KNOWN + TABLE, KnownMap(head, ALL, 0).encode())], disks=[1])
    assert scene.broken() == {"rising"}


async def test_an_operation_happens_twice(scene):
    operation = scene.wish("unassign", KEY, 5, 9)
    scene.do(TABLE, operation)
    top = scene.tops[TABLE]
    edit = MapTree.opened(scene.pages.__getitem__, top.root, "partitions").edit(top.config + 1)
    edit.record(operation.id, OperationOutcome.DONE, operation.digest)
    changed = edit.finish()
    scene.put(TABLE, changed)
    scene.commit(TABLE, scene.next_head(TABLE, changed.root))
    assert scene.broken() == {"judged"}


@pytest.mark.parametrize("plant", ["re-based over a touched partition", "not applied", "dead"])
async def test_a_transaction_is_judged_otherwise(scene, plant):
    """The outcomes that a transaction records, and its map, must be those that the rules give."""
    scene.do(TABLE, scene.assign())
    top = scene.tops[TABLE]
    edit = MapTree.opened(scene.pages.__getitem__, top.root, "partitions").edit(top.config + 1)
    match plant:
        case "re-based over a touched partition":
            operation = scene.assign(base=1)
            edit.record(operation.id, OperationOutcome.DONE, operation.digest)
        case "not applied":
            operation = scene.wish("advance", KEY, 5, 6, 9, base=2)
            edit.record(operation.id, OperationOutcome.REFUSED, operation.digest)
            edit.put(KEY, b"something")
        case "dead":
            operation = scene.wish("unassign", KEY, 5, 9, base=config_id(0, 70))
            edit.record(operation.id, OperationOutcome.DONE, operation.digest)
    changed = edit.finish()
    scene.put(TABLE, changed)
    scene.commit(TABLE, scene.next_head(TABLE, changed.root))
    assert scene.broken() == {"judged"}


@pytest.mark.parametrize(("by", "told"), [
    ("answer", OperationOutcome.REFUSED), ("answer", OperationOutcome.CONFLICT), ("ask", OperationOutcome.REFUSED),
    ("create", OperationOutcome.REFUSED),
])  # fmt: skip
async def test_what_was_told_is_not_so(scene, by, told):
    """An answer must agree with the recorded outcome, and DONE must have happened."""
    operation = scene.assign()
    scene.do(TABLE, operation)
    scene.witness.told.append(Answered(TABLE, operation.id, told, by))
    scene.witness.check_told()
    assert scene.broken() == {"judged"}
    scene.witness.violations.clear()
    scene.witness.told[:] = [Answered(TABLE, bytes(20), OperationOutcome.DONE, by)]
    scene.witness.check_told()
    assert scene.broken() == {"judged"}


async def test_what_must_be_so_after_healing(scene):
    """A node that shows other tables is reported, and so are pages of a table that nothing names."""
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
    scene.disks[0].records[MAP + b"x" * 16 + PAGE + bytes(32)] = b""
    assert len(world.left_over([node], scene.witness)) == 1
