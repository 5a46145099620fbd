"""Change functions are found by name and version."""

from __future__ import annotations

import pytest

from gossipkv.errors import BadRequest
from gossipkv.register.changes import READ, READING, Applied, RegisterChange, function_of
from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.scripted import Scripted


def test_a_read_leaves_all_as_it_is():
    assert function_of(READING, READ)(b"what is there", b"", 3) == Applied(b"what is there")


@pytest.mark.parametrize("change", [RegisterChange("append", 1), RegisterChange("read", 2)])
def test_what_is_not_known_is_refused_by_name(change):
    """The error lists the known functions, and nothing is proposed."""
    with pytest.raises(BadRequest, match="it has read 1"):
        function_of(READING, change)


def test_an_unknown_change_is_not_queued():
    """A proposer refuses the change at once, and goes on with other changes."""
    world = Scripted()
    party = world.party()
    with pytest.raises(BadRequest, match="no change 'no such'"):
        party.core.submit(1000, RegisterChange("no such", 1), now_ms=0, deadline_ms=100)
    ticket = world.append(party)
    world.carry()
    assert world.history.ends == {ticket: ChangeEnd.DONE}


def test_changes_that_wait_share_a_round():
    """Each change applies to the result of those before it and returns the value committed with it."""
    world = Scripted()
    party = world.party()
    first = world.append(party)
    rest = [world.append(party) for _ in range(3)]
    odd = world.append_to_even(party)
    even = world.append(party)
    world.carry()
    assert [world.history.ends[ticket] for ticket in (first, *rest, odd, even)] == [ChangeEnd.DONE] * 6
    assert len({world.outcomes[ticket].ballot for ticket in (*rest, odd, even)}) == 1
    assert world.outcomes[first].ballot < world.outcomes[even].ballot


def test_what_a_function_refuses_is_refused_by_a_whole_round():
    """The current value is written anew, and the refusal has the function's code and words."""
    world = Scripted()
    party = world.party()
    world.append(party)
    world.carry()
    before = world.record(world.nodes[0]).accepted
    odd = world.append_to_even(party)
    world.carry()
    outcome = world.outcomes[odd]
    assert (outcome.end, outcome.code, outcome.message) == (ChangeEnd.REFUSED, "CONFLICT", "odd")
    assert world.record(world.nodes[0]).accepted == outcome.ballot > before
