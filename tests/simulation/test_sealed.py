"""Runs with sealed packets and changing keys under faults; the first run is repeated.

A failure prints the command that replays it. SIMULATED_SEEDS sets the number of seeds: two fifths of gossip's.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.gossip.swarm import SwarmPlan, run

SEEDS = range(max(3, int(os.environ.get("SIMULATED_SEEDS", "0")) * 2 // 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed, note):
    """A key change in three steps harms no member, and no nonce is reused."""
    outcome = run(SwarmPlan(seed, sealed=True))
    assert outcome.is_right, outcome.complaint
    note(judges.sealed_members, judges.record_of(outcome))
    if seed == 0:
        assert run(outcome.plan).trace == outcome.trace
