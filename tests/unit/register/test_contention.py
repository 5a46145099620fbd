"""Contending proposers all get their turn, and so does a change of acceptors."""

from __future__ import annotations

from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.scripted import Scripted


def test_who_is_always_behind_outbids_who_stays():
    """A proposer that always lags gets ahead after a few rounds."""
    world = Scripted()
    staying, behind = world.party(), world.party()
    world.append(staying)
    world.carry()
    ticket = world.append(behind)
    for _ in range(8):
        for _ in range(20):
            world.append(staying)
            world.carry(which=lambda message: message.party is staying)
        world.carry()
        world.wait(200)
    assert ticket in world.outcomes
    assert world.outcomes[ticket].end is ChangeEnd.DONE


def test_a_change_of_acceptors_that_lost_is_not_put_off():
    """Only newcomers without an answer make the change wait for those behind it."""
    world = Scripted()
    a, b, c, d, _ = world.nodes
    first, second = world.party(), world.party()
    for newcomers_answer in (True, False):
        world.append(first)
        world.carry()
        entering = world.reconfigure(second, a, b, d) if newcomers_answer else world.reconfigure(second, a, b, c)
        change = world.append(second)
        if newcomers_answer:  # Another proposer is faster.
            world.append(first)
            world.carry(which=lambda message: message.party is first)
            world.settle()
        else:
            world.settle(a, b, d)
            assert change in world.outcomes
            world.settle()
        told = [ticket for ticket in world.outcomes if ticket in {entering, change}]
        assert told == ([entering, change] if newcomers_answer else [change, entering])
        assert {world.outcomes[ticket].end for ticket in told} == {ChangeEnd.DONE}
