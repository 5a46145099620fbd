"""Runs under drawn faults: no promise broken, some runs twice, and all of them worth something (`judges.members`).

A failure prints the command that replays it.  The second time is in a process of its own that hashes strings
otherwise, by that very command.  SIMULATED_SEEDS says how many seeds; beyond the usual number each runs twice.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.gossip.swarm import SwarmPlan, run

pytestmark = pytest.mark.timeout(1200)

USUAL = 3
SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", str(USUAL))))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed, note):
    """Whatever strikes, no machine ever shows what is not so, and soon after it ends all show the truth."""
    outcome = run(SwarmPlan(seed))
    assert outcome.is_right, outcome.complaint
    note(judges.members, judges.record_of(outcome))
