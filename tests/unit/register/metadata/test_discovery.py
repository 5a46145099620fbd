"""A map determines a node's duties for partitions."""

from __future__ import annotations

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata.discovery import Duty, PushTarget, discover
from gossipkv.register.metadata.partitions import encode_partition
from gossipkv.register.metadata.tree import MapTree
from tests.unit.register.metadata.maps import new_store, put_all

ME, B, C = b"m" * 16, b"b" * 16, b"c" * 16


def a_map():
    """Return three ranges: one on two nodes, one that moves to this node, one that has left it."""
    partitions = {
        b"": Partition.of(
            1, [Assignment(10, ME, 0, AssignmentState.AVAILABLE), Assignment(11, B, 1, AssignmentState.AVAILABLE)]
        ),
        b"g": Partition.of(
            2, [Assignment(20, B, 0, AssignmentState.AVAILABLE), Assignment(21, ME, 0, AssignmentState.PROPOSED)]
        ),
        b"p": Partition.of(
            3, [Assignment(30, ME, 0, AssignmentState.LEAVING), Assignment(31, C, 0, AssignmentState.AVAILABLE)]
        ),
    }
    store = new_store()
    changed = put_all(MapTree.empty("partitions"), 1, {key: encode_partition(each) for key, each in partitions.items()})
    return MapTree.opened(store.read, store.take(changed), "partitions")


def test_what_the_map_names():
    """Each duty comes with its push targets, for partitions without a store as well."""
    found = {one.partition: one for one in discover(a_map(), ME, {})}
    assert {id_: (one.key, one.assignment, one.duty) for id_, one in found.items()} == {
        1: (b"", 10, Duty.SERVE), 2: (b"g", 21, Duty.LOAD), 3: (b"p", 30, Duty.UNLOAD),
    }  # fmt: skip
    assert found[1].targets == (PushTarget(B, 1, 11),)
    assert found[3].targets == (PushTarget(C, 3, 31),)


def test_nobody_pushes_to_who_leaves():
    """The node that takes over has no push targets."""
    (found,) = discover(a_map(), C, {3: (b"p", None)})
    assert (found.duty, found.targets) == (Duty.SERVE, ())


def test_what_the_map_does_not_name():
    """A divided or reassigned partition is pushed to the owners of its keys."""
    lost = [one for one in discover(a_map(), C, {9: (b"a", b"h")}) if one.partition == 9]
    (found,) = lost
    assert (found.key, found.assignment, found.duty) == (b"a", 0, Duty.UNLOAD)
    assert PushTarget(B, 2, 20) in found.targets
    assert PushTarget(ME, 2, 21) in found.targets
    assert not any(target.partition == 3 for target in found.targets)


def test_a_stranger():
    """A node that the map does not name, and that stores nothing, has no duties."""
    assert discover(a_map(), b"x" * 16, {}) == []
