"""Membership under drawn faults: no promise is broken, and the series is worth something (`judges.members`).

A failure prints the command that replays it. SIMULATED_SEEDS sets the number of seeds.
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
    """No machine shows an untruth under faults, and all show the truth soon after."""
    outcome = run(SwarmPlan(seed))
    assert outcome.is_right, outcome.complaint
    note(judges.members, judges.record_of(outcome))
