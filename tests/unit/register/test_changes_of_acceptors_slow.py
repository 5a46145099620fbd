"""Slow tests of changes of acceptors; the fast ones are in `test_changes_of_acceptors.py`."""

from __future__ import annotations

import pytest

from gossipkv.register.proposal import ChangeEnd
from tests.unit.register import test_changes_of_acceptors as line
from tests.unit.register.scripted import Scripted


def lose_life(world, node):
    node.is_up = False


def lose_disk(world, node):
    node.become({})


def lag(world, node):
    """Make the node lack the bodies of values."""
    node.holds = False


@pytest.mark.parametrize("strike", [lose_life, lose_disk, lag])
@pytest.mark.parametrize("moment", range(12))
def test_a_newcomer_is_struck(strike, moment):
    """Before its promise no proposer waits for it; afterwards the rest of the new set suffices."""
    world = Scripted()
    a, b, c, d, _ = world.nodes
    party = world.party()
    ticket = world.reconfigure(party, a, b, c, d, patience_ms=3000)
    for _ in range(moment):
        if world.bag:
            world.carry_one(world.bag.pop(0))
    strike(world, d)
    after = world.append(party)
    world.settle(ms=4000)
    assert world.history.ends[after] is ChangeEnd.DONE
    assert ticket in world.history.ends
    entered = world.record(a).value.acceptors
    assert entered.joint == 0
    assert (len(entered.new) == 4) == (world.history.ends[ticket] is ChangeEnd.DONE)


@pytest.mark.parametrize("victim", range(5))
@pytest.mark.parametrize("moment", [moment for moment in range(0, 40, 3) if moment % 12])
@pytest.mark.parametrize("is_synced", [False, True])
def test_a_crash_at_each_send_and_sync(victim, moment, is_synced):
    """The moments that the fast test leaves out."""
    line.test_a_crash_at_each_send_and_sync(victim, moment, is_synced)
