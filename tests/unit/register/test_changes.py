"""Changes are judged in turn, by the round that carries them."""

from __future__ import annotations

from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.scripted import Scripted


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


def test_a_refusal_takes_a_whole_round():
    """The current value is written anew, and the refusal has the change's code and words."""
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


def test_a_change_that_cannot_be_judged_waits_for_another_round():
    """The round fails before it asks for anything to be accepted, and other changes of it wait as well."""
    world = Scripted()
    party = world.party()
    can = []
    first = world.append(party)
    world.carry()
    before = world.record(world.nodes[0]).accepted
    second = world.append_when(can, party)
    third = world.append(party)
    world.carry()
    assert {second, third}.isdisjoint(world.history.ends)
    assert world.record(world.nodes[0]).accepted == before
    can.append(True)
    world.settle()
    assert [world.history.ends[ticket] for ticket in (first, second, third)] == [ChangeEnd.DONE] * 3
