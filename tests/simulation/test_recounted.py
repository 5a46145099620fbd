"""The incremental counts of membership equal a full recount of the tables, under faults."""

from __future__ import annotations

import pytest

from tests.unit.gossip.membership.recounted import recount_core
from tests.world.gossip.checkers import Checkers
from tests.world.gossip.history import core_of
from tests.world.gossip.swarm import SwarmPlan, run

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_is_as_counted_anew(seed, monkeypatch):
    """Recount at every look: several times a second and after each change of membership."""
    look, recounted = Checkers.look, []

    def look_and_recount(self, machine):
        look(self, machine)
        core = core_of(machine)
        if core is not None:
            recount_core(core)
            recounted.append(machine.name)

    monkeypatch.setattr(Checkers, "look", look_and_recount)
    assert run(SwarmPlan(seed)).is_right
    assert len(recounted) > 100
