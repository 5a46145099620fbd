"""Tests that cost seconds; `test_plan.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.table.controllers.plan import ASK_S
from tests.unit.table.controllers.test_plan import MIB, Planner, Ranges, during


@pytest.mark.parametrize("movers", [1, 2])
def test_ranges_are_levelled_and_then_nothing_is_done(movers):
    """Ranges are levelled, then moves stop, also with two rebalancers that both see themselves as first.

    A node is dead for a while, and sizes vary.
    """
    world = Ranges([(1, 2)] * 24)
    some = [Planner(world, one, alive=range(one, 5), sizes=[MIB] * 24) for one in range(1, movers + 1)]
    at_rest = []

    def look(at):
        for number, one in enumerate(some, 1):
            one.alive = [each for each in range(number, 5) if each < 4 or at < 60 or at > 600]
            one.sizes = [world.random.randint(MIB * 98 // 100, MIB) for _ in range(24)]
        if at >= 3000:
            at_rest.append(len(world.asked))

    during(*some, then=look)
    assert max(world.held.values()) - min(world.held.values()) <= 2, world.held
    assert len(set(at_rest)) == 1
    assert len(world.asked) - world.refused <= 48
    assert 0.9 * 3600 / ASK_S <= some[0].asked <= 1.1 * 3600 / ASK_S
