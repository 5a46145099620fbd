"""The children that a host continues with after a split, and the fate of the other parts."""

from types import SimpleNamespace

import pytest
import trio

from gossipkv.placement.partition import AssignmentState, ForcedEnd
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.shell import Replication
from gossipkv.table.controllers.reconciler import hosts_of, parts_of
from tests.unit.table.record_nodes import Records
from tests.unit.table.test_divided import MIDDLE

LOW, HIGH = 1000, 1001
OTHER = bytes([9]) * 16


class Held:
    """The reconciled replicas of a node for one table."""

    def __init__(self):
        self.records = Records(3)
        self.node = self.records.nodes[0]
        self.table = self.records.make("t", RANGE, firsts=[b""], holders=lambda _: self.records.nodes)
        (self.parent,) = self.node.replicas.by_partition.values()
        self.node.call("put", "t", b"a", b"1", {"level": "one"})
        self.aside, self.departed = [], self.node.departed
        self.node.departs, self.node.let_go = lambda copy: self.departed.update({copy: None}), self.let_go
        self.node.kept = lambda one: Replication.kept(SimpleNamespace(_store=self.node), one)
        self.node.size_bytes = lambda *_: 0

    def look(self):
        trio.run(self.node.holding().look)
        self.records.run()

    def let_go(self, copy, *, why=""):
        self.aside.append((copy.identity.partition, why))
        self.node.replicas.spaces.quarantine(copy, why)
        self.node.replicas.forget(copy, SimpleNamespace(drop_space=lambda _: None))

    @property
    def copies(self):
        """Return the held partitions, with True if they share the parent's space."""
        there = self.node.replicas.by_partition.values()
        return {copy.identity.partition: copy.space == self.parent.space for copy in there}

    @property
    def parts(self):
        """Return the partitions with a quarantined part."""
        return [one.identity.partition for one in self.node.replicas.spaces.all_quarantined()]


@pytest.fixture
def held():
    """Return a host of a range that has records."""
    return Held()


def but(high):
    """Return a change that applies only to the upper child."""
    return lambda child: high(child) if child.id == HIGH else child


def own(child, host, **changed):
    rows = [one._replace(**changed) if one.node == host.uuid else one for one in child.assignments]
    return child._replace(assignments=tuple(rows))


def test_both_children(held):
    held.records.divide("t", MIDDLE)
    held.look()
    assert (held.copies, held.parts, held.aside) == ({LOW: True, HIGH: True}, [], [])


def test_one_that_is_leaving_goes_on(held):
    """A LEAVING replica may have records that others lack."""
    held.records.divide("t", MIDDLE, but(lambda child: own(child, held.node, state=AssignmentState.LEAVING)))
    held.look()
    assert (held.copies, held.parts) == ({LOW: True, HIGH: True}, [])
    leaving = held.node.replicas.by_partition[held.table, HIGH]
    assert not leaving.originates
    assert not leaving.originates


@pytest.mark.parametrize(
    "high",
    [
        lambda child, _: child._replace(former=child.former[1:]),
        lambda child, node: own(child, node, state=AssignmentState.PROPOSED),
        lambda child, node: own(child, node, state=AssignmentState.INITIALIZING),
        lambda child, node: child._replace(
            assignments=tuple(one for one in child.assignments if one.node != node.uuid)
        ),
    ],
    ids=["it is not named as former", "PROPOSED", "INITIALIZING", "it holds no more of it"],
)
def test_a_child_without_an_heir_here(held, high):
    """Its records are quarantined, and a newly assigned replica starts empty in another space."""
    held.records.divide("t", MIDDLE, but(lambda child: high(child, held.node)))
    held.look()
    assert held.parts == [HIGH]
    assert {partition: there for partition, there in held.copies.items() if there} == {LOW: True}
    (aside,) = held.node.replicas.spaces.all_quarantined()
    assert (aside.identity.assignment, aside.identity.bounds) == (held.parent.assignment, (MIDDLE, None))
    assert aside.why.startswith("its range was divided, and this node has no slot of partition ")


def test_a_host_that_none_names(held):
    """Everything that the host has is quarantined."""
    held.records.divide("t", MIDDLE, lambda child: own(child, held.node, node=OTHER))
    held.look()
    assert held.copies == {}
    assert held.aside == [
        (held.parent.identity.partition, "its range was divided, and its children continued without this replica")
    ]


def test_one_that_was_to_go_before_goes(held):
    """Other replicas have all its records, as its next check finds."""
    held.parent.originates = False
    held.records.divide("t", MIDDLE, lambda child: own(child, held.node, node=OTHER))
    held.look()
    assert (held.aside, [*held.departed]) == ([], [held.parent])


def test_one_that_was_to_go_before_is_no_heir(held):
    """The node has meanwhile joined a child with a new, empty replica, which holds these keys."""
    held.parent.originates = False
    held.records.divide("t", MIDDLE, lambda child: child if child.id == HIGH else own(child, held.node, node=OTHER))
    part = next(part for part in parts_of(held.records.view(held.table)) if part.partition.id == HIGH)
    (assignment,) = [one.id for one in part.partition.assignments if one.node == held.node.uuid]
    identity = ReplicaIdentity(held.table, HIGH, assignment, part.bounds)
    held.node.replicas.place(identity, part.version, hosts_of(part.partition))
    held.records.run()
    held.look()
    assert held.copies == {held.parent.identity.partition: True, HIGH: False}
    assert (held.aside, held.parts, [*held.departed]) == ([], [], [held.parent])


def test_one_that_was_taken_by_force_is_set_aside(held):
    """The replica may have records that others lack."""
    held.parent.originates = False
    ends = (ForcedEnd(held.parent.assignment, 1),)
    held.records.divide("t", MIDDLE, lambda child: own(child, held.node, node=OTHER)._replace(ends=ends))
    held.look()
    assert held.aside == [(held.parent.identity.partition, "its assignment was removed by force")]


def test_one_that_had_gone_before_another_was_taken_by_force(held):
    """The ends of all former assignments are named then; the replica's earlier hand-over stays valid."""
    mine = held.parent.assignment
    held.parent.originates = False
    for ends in ((), (ForcedEnd(mine, None), ForcedEnd(OTHER[0], None))):
        held.records.change(
            "t",
            lambda one, ends=ends: one._replace(
                assignments=tuple(each for each in one.assignments if each.id != mine), former=(mine,), ends=ends
            ),
        )
        held.look()
        assert (held.aside, [*held.departed]) == ([], [held.parent])


def test_a_map_that_was_forced_back(held):
    """The map before the split names neither child."""
    before = held.records.divide("t", MIDDLE)
    held.look()
    held.records.forget("t", before)
    held.look()
    why = "the map was forced back to a state before the division of its range"
    assert sorted(held.aside) == [(LOW, why), (HIGH, why)]
    assert held.copies == {held.parent.identity.partition: False}
