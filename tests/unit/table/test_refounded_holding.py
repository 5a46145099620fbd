"""A re-created range continues with exactly the kept replica that the map names, or empty."""

from types import SimpleNamespace

import msgpack
import pytest

from gossipkv.errors import NotReady
from gossipkv.placement.partition import Assignment, AssignmentState, ForcedEnd, Partition
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import JOINING, RECORD, WHOLE
from gossipkv.replication.replica.spaces import Spaces
from gossipkv.replication.shell import Replication
from gossipkv.table.rpc.force_join import kept_here
from tests.unit.table.test_divided import MIDDLE
from tests.unit.table.test_divided_holding import HIGH, LOW, OTHER, Held

GONE, NEW = 2000, 3000
OLD, YOUNG = b"a", b"z"  # Keys before and after the middle.


class Lost(Held):
    """A node with a replica that was quarantined by a force."""

    def __init__(self, ended=()):
        super().__init__()
        self.records.change("t", lambda partition: partition._replace(ends=ended))
        self.look()
        self.node.call("put", "t", YOUNG, b"2", {"level": "one"})
        self.ends = tuple(ForcedEnd(*one) for one in clock.entries(self.parent.synced))
        self.lose()
        ((_, why),) = self.aside
        assert why.endswith("was force-joined without this replica")

    def lose(self):
        self.records.change("t", lambda _: Partition(GONE, (self.seat(90, OTHER),), (), self.ends))
        self.look()

    def seat(self, assignment, node=None):
        """Return an AVAILABLE assignment, by default of this node."""
        return Assignment(assignment, node or self.node.uuid, 0, AssignmentState.AVAILABLE)

    def anew(self, kept=None):
        kept = self.parent.assignment if kept is None else kept
        self.records.change("t", lambda _: Partition(NEW, (self.seat(91),), (), self.ends, kept))
        self.look()

    def get(self, key):
        return self.node.call("get", "t", key, {"local": True})[0]

    @property
    def reach(self):
        """Return the clock up to which the quarantined replica is complete."""
        ((_, _, _, packed, *_),) = msgpack.unpackb(kept_here(self.node, self.table, WHOLE))
        return {one: count for one, count in clock.entries(packed) if count}

    @property
    def beside(self):
        return [tuple(one.identity.bounds) for one in self.node.replicas.spaces.all_quarantined()]


@pytest.fixture
def lost():
    return Lost()


def test_it_goes_on_where_it_lies(lost):
    """The kept replica stays in its space, with a clock of new origins and a time later than kept records."""
    lost.anew()
    assert (lost.copies, lost.beside) == ({NEW: True}, [])
    (copy,) = lost.node.replicas.by_partition.values()
    assert (clock.entries(copy.synced), copy.bounds) == ([(91, 0)], (b"", None))
    assert copy.time >= lost.parent.time > 0
    assert [lost.get(OLD), lost.get(YOUNG)] == [b"1", b"2"]
    lost.node.call("put", "t", OLD, b"3", {"level": "one"})
    assert lost.get(OLD) == b"3"
    stands = [row for row in lost.node.spaces[copy.space].items() if row[0][:1] == b"\0"]
    (found,) = Spaces().found(copy.space, stands, 1)  # The replica as found in the next life.
    assert (found.identity, found.synced) == (copy.identity, copy.synced)


@pytest.mark.parametrize("kept", [0, 77])
def test_what_was_not_kept_is_never_merged(lost, kept):
    """The range starts empty, and the quarantined replica stays."""
    lost.anew(kept)
    assert (lost.copies, lost.beside) == ({NEW: False}, [(b"", None)])
    assert lost.get(OLD) is None


def test_of_who_has_ended_it_has_all():
    """The kept replica is complete for settled origins, which its clock omits, even after it was kept once."""
    lost = Lost(ended=(ForcedEnd(55, 7), ForcedEnd(56, 0)))
    has = {**{one: count for one, count in lost.ends if count}, 55: 7}
    assert lost.reach == has
    lost.ends += (ForcedEnd(55, 7),)
    lost.anew()
    assert lost.copies == {NEW: True}
    lost.lose()
    assert lost.reach == has


def test_what_was_not_whole_is_not_kept(lost):
    """An incomplete replica is not kept, since its sources had more records."""
    (one,) = lost.node.replicas.spaces.all_quarantined()
    lost.node.spaces[one.space][JOINING + one.suffix] = b""
    lost.anew()
    assert (lost.copies, lost.beside) == ({NEW: False}, [(b"", None)])


def divided(lost, low, high):
    """Split the re-created range before its node has heard of it; some children begin elsewhere."""
    nodes = {LOW: low, HIGH: high}
    kept = lost.parent.assignment
    lost.records.divide(
        "t", MIDDLE, lambda one: Partition(one.id, (lost.seat(one.id, nodes[one.id]),), (), lost.ends, kept)
    )  # fmt: skip
    lost.look()


def test_children_go_on_with_it(lost):
    """Each child has its own keys."""
    with pytest.raises(NotReady):
        divided(lost, None, None)
    lost.records.run()
    lost.look()
    assert (lost.copies, lost.beside) == ({LOW: True, HIGH: True}, [])
    assert [lost.get(OLD), lost.get(YOUNG)] == [b"1", b"2"]


@pytest.mark.parametrize(("low", "high", "left"), [(None, OTHER, (MIDDLE, None)), (OTHER, None, (b"", MIDDLE))])
def test_the_rest_stays_set_aside(lost, low, high, left):
    """The rest may be kept later, with its former clock."""
    divided(lost, low, high)
    assert (lost.copies, lost.beside) == ({HIGH if high is None else LOW: True}, [left])
    (rest,) = lost.node.replicas.spaces.all_quarantined()
    was = Replication.kept(SimpleNamespace(_store=lost.node), rest)
    assert clock.entries(was.synced) == [tuple(end) for end in lost.ends]
    key = YOUNG if high else OLD
    assert RECORD + key in lost.node.spaces[rest.space]
    stands = [row for row in lost.node.spaces[rest.space].items() if row[0][:1] == b"\0"]
    spaces = Spaces()
    assert len(spaces.found(rest.space, stands, 1)) == 1
    assert [*spaces.all_quarantined()] == [rest]
