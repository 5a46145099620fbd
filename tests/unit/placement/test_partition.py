"""The invariants of a table's partition, each by itself."""

from __future__ import annotations

import pytest

from gossipkv.placement.partition import Assignment, ForcedEnd, Partition, ends_of_move, fault_of
from tests.unit.placement.hosted import INIT, WHOLE, A, L, P, hosted, node


@pytest.mark.parametrize(
    ("words", "partition"),
    [
        ("not in order", Partition(7, WHOLE.assignments[::-1])),
        ("have the same id", Partition.of(7, [*WHOLE.assignments[:2], Assignment(1, node(9), 2, A)])),
        ("assigned twice", Partition.of(7, [*WHOLE.assignments, Assignment(4, node(1), 2, P)])),
        ("must be 0 to", hosted(7, (1, 0, A), (2, 3, A))),
        ("the states in a slot", hosted(7, (1, 0, A), (2, 0, P), (3, 0, L))),
        ("the states in a slot", hosted(7, (1, 0, A), (2, 0, A))),
        ("the states in a slot", hosted(7, (1, 0, INIT), (2, 0, INIT), (3, 1, A))),
        ("the states in a slot", hosted(7, (1, 0, L), (2, 0, L), (3, 1, A))),
        ("the states in a slot", hosted(7, (1, 0, P), (2, 0, INIT), (3, 1, A))),
        ("the states in a slot", hosted(7, (1, 0, L), (2, 0, P), (3, 1, A))),
        ("the states in a slot", hosted(7, (1, 0, L), (2, 0, INIT), (3, 1, A))),
        ("the states in a slot", hosted(7, (1, 0, L), (2, 1, A))),
        ("must be 0 to", hosted(7, (1, -1, A), (2, 0, A))),
        ("two ends", hosted(7, (1, 0, A))._replace(ends=(ForcedEnd(5, 1), ForcedEnd(5, 2)))),
        ("has an end", hosted(7, (1, 0, A))._replace(ends=(ForcedEnd(1, 1),))),
        ("no assignment is AVAILABLE", hosted(7, (1, 0, P))),
        ("no assignment is AVAILABLE", hosted(7)),
        ("more than one slot moves", hosted(7, (1, 0, A), (2, 0, P), (3, 1, L), (4, 1, A))),
        ("more than one slot moves", hosted(7, (1, 0, A), (2, 1, P), (3, 2, INIT))),
        ("not in order", WHOLE._replace(former=(5, 4))),
        ("also a present one", WHOLE._replace(former=(3, 4))),
        ("too many", WHOLE._replace(former=tuple(range(100, 168)))),
    ],
)
def test_each_invariant_of_a_partition(words, partition):
    assert words in fault_of(partition, 3)


def test_what_breaks_no_invariant():
    """A move in each state, a new slot and an empty slot are all legal."""
    for moving in ((4, 2, P), (4, 2, INIT)):
        assert not fault_of(hosted(7, (1, 0, A), (2, 1, A), (3, 2, A), moving), 3)
    assert not fault_of(hosted(7, (1, 0, A), (2, 1, A), (3, 2, L), (4, 2, A)), 3)
    assert not fault_of(hosted(7, (1, 0, A), (2, 1, P)), 3)
    assert not fault_of(WHOLE._replace(former=tuple(range(100, 167))), 3)  # 64, and one for each slot removed by force.


@pytest.mark.parametrize(
    ("source", "target", "moving"),
    [
        (None, None, [(3, 2, A)]), (3, 4, [(3, 2, A), (4, 2, P)]), (3, 4, [(3, 2, A), (4, 2, INIT)]),
        (3, 4, [(3, 2, L), (4, 2, A)]), (4, 3, [(3, 2, A), (4, 2, L)]), (None, 4, [(4, 2, P)]),
    ],
)  # fmt: skip
def test_the_ends_of_a_move(source, target, moving):
    """A move has one end where the source was removed by force or never existed."""
    ends = tuple(one and node(one) for one in (source, target))
    assert ends_of_move(hosted(7, (1, 0, A), (2, 1, A), *moving)) == ends
