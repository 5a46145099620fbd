"""Quorums of acceptor sets intersect, and only legal sets follow each other."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import BadRequest
from gossipkv.register.configuration import MAX_ACCEPTORS, AcceptorId, Acceptors, value_of
from tests.unit.register.values import VALUES

IDS = [AcceptorId(bytes([number]) * 16, 1) for number in range(6)]


def subsets(of):
    return chain.from_iterable(combinations(of, count) for count in range(len(of) + 1))


def majorities(members):
    return [set(subset) for subset in subsets(members) if len(subset) > len(members) // 2]


SETS = [one for one in subsets(IDS[:4]) if one]


@pytest.mark.parametrize("old", SETS)
def test_a_quorum_is_a_majority_of_both(old):
    """A quorum contains a majority of the old and one of the new set."""
    for new in SETS:
        both = Acceptors.of(old) if old == new else Acceptors.of(old).joint_with(new, 3)
        for of in subsets(IDS[:5]):
            expected = any(one <= set(of) for one in majorities(old)) and any(one <= set(of) for one in majorities(new))
            assert both.is_quorum(set(of)) == expected


def test_an_empty_quorum_is_none():
    assert not Acceptors.of(IDS[:1]).is_quorum(set())


@pytest.mark.parametrize("old", SETS)
def test_a_quorum_of_a_joint_configuration_meets_those_before_and_after(old):
    """Some member of each joint quorum knows every decision of either set."""
    for new in SETS:
        if new != old:
            joint = Acceptors.of(old).joint_with(new, 3)
            for of in subsets(IDS[:4]):
                if joint.is_quorum(set(of)):
                    assert all(set(of) & majority for majority in (*majorities(old), *majorities(new)))


def test_what_follows_what():
    """A set stays or enters a joint configuration; a joint configuration stays or ends in its new set."""
    one = Acceptors.of(IDS[:3])
    joint = one.joint_with(IDS[2:5], 7)
    new = Acceptors.of(IDS[2:5])
    assert joint.new_alone() == new
    assert [then.follows(one) for then in (one, joint, new)] == [True, True, False]
    assert [then.follows(joint) for then in (one, joint, new, one.joint_with(IDS[2:5], 8))] == [
        False,
        True,
        True,
        False,
    ]
    assert [then.follows(new) for then in (one, joint, new)] == [False, False, True]


def test_sets_are_sorted_and_have_each_once():
    assert Acceptors.of([IDS[2], IDS[0], IDS[2]]) == Acceptors((IDS[0], IDS[2]), (IDS[0], IDS[2]))


@pytest.mark.parametrize("members", [[], [AcceptorId(bytes([n]) * 16, 1) for n in range(MAX_ACCEPTORS + 1)]])
def test_a_set_has_one_to_nine(members):
    """The operator may have named others."""
    with pytest.raises(BadRequest):
        Acceptors.of(members)


@given(VALUES)
def test_a_value_is_read_as_it_was(value):
    """Two equal sets are read as one tuple."""
    read = value_of(
        [
            [list(map(list, value.acceptors.old)), list(map(list, value.acceptors.new)), value.acceptors.joint],
            value.payload,
            [[*force[:2], list(map(list, force.left_out))] for force in value.forces],
        ]
    )
    assert read == value
    assert bool(read.acceptors.joint) or read.acceptors.new is read.acceptors.old


@given(st.sampled_from(IDS))
def test_an_acceptor_is_told_by_node_and_store(acceptor):
    assert str(acceptor) == f"{acceptor.node.hex()[:8]}/{1:016x}"
