"""Ballots are ordered by generation, force, counter and proposer, and implausible ones are refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import (
    BELOW,
    MAX_COUNTER,
    MAX_GENERATION,
    MAX_GENERATION_LEAP,
    MAX_LEAP,
    ZERO,
    Ballot,
    are_conflicting,
    ballot_of,
    draw_id,
)
from tests.unit.register.values import ballots


@given(ballots(), ballots())
def test_a_generation_is_above_all_of_lower_ones(one, other):
    """Neither counter nor force nor proposer makes up for a generation."""
    if one.generation < other.generation:
        assert one < other
        assert not are_conflicting(one, other)


@given(ballots())
def test_every_ballot_is_above_none_and_below_its_next(ballot):
    """The next ballot has the same proposer, and no ballot of that proposer lies between."""
    assert BELOW < ZERO <= ballot < ballot.next()
    assert ballot.next() == ballot._replace(counter=ballot.counter + 1)
    assert ballot_of(list(ballot)) == ballot


@given(ballots(), ballots())
def test_two_forces_of_one_generation_conflict(one, other):
    """The conflict is symmetric, and no ballot conflicts with itself."""
    assert are_conflicting(one, other) == are_conflicting(other, one)
    assert not are_conflicting(one, one)
    assert are_conflicting(one, other._replace(generation=one.generation, force=one.force + 1))


@pytest.mark.parametrize(
    ("ballot", "is_plausible"),
    [
        (Ballot(1, 7, 5 + MAX_LEAP, 3), True),
        (Ballot(1, 7, 6 + MAX_LEAP, 3), False),
        (Ballot(2, 7, MAX_LEAP, 3), True),  # In another generation the counter begins anew.
        (Ballot(2, 7, 1 + MAX_LEAP, 3), False),
        (Ballot(1 + MAX_GENERATION_LEAP, 7, 1, 3), True),
        (Ballot(2 + MAX_GENERATION_LEAP, 7, 1, 3), False),
    ],
)
def test_what_is_made_up(ballot, is_plausible):
    """A ballot may leap by the limit, and no further."""
    assert ballot.is_plausible_after(Ballot(1, 7, 5, 9)) is is_plausible


def test_the_last_counter_is_never_used():
    """Every ballot in use has a next one."""
    near = Ballot(0, 0, MAX_COUNTER - 2, 1)
    assert near.next().is_plausible_after(near)
    assert not near.next().next().is_plausible_after(near)


@pytest.mark.parametrize(
    "value",
    [None, [], [0, 0, 0], [0, 0, 0, 0, 0], [-1, 0, 0, 0], [MAX_GENERATION + 1, 1, 0, 0], [0, 0, 0, 1 << 64], "abcd"],
)
def test_what_is_no_ballot(value):
    """The error shows the value."""
    with pytest.raises(ProtocolError, match="ballot"):
        ballot_of(value)


def test_drawn_ids_are_not_zero():
    random = Random(1)
    drawn = {draw_id(random) for _ in range(1000)}
    assert len(drawn) == 1000
    assert 0 not in drawn


def test_an_id_that_is_drawn_as_zero_is_another():
    """Zero stands for none."""

    class Zero(Random):
        def getrandbits(self, k):
            return 0

    assert draw_id(Zero()) == 1
