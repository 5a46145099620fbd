"""Build partitions for tests from the ids, slots and states of their assignments."""

from __future__ import annotations

from gossipkv.placement.partition import Assignment, AssignmentState, Partition

P, INIT, A, L = AssignmentState


def node(number):
    return b"%016d" % number


def hosted(id_, *assignments):
    """Return a partition; each assignment is its id, slot and state, and the id also numbers the node."""
    return Partition.of(id_, (Assignment(one, node(one), slot, state) for one, slot, state in assignments))


WHOLE = hosted(7, (1, 0, A), (2, 1, A), (3, 2, A))
