"""Runs in which every packet is sealed and the keys change under faults: no promise broken, the first one twice.

A failure prints the command that replays it.  SIMULATED_SEEDS says how many seeds: two in five of those of gossip.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.gossip.swarm import SwarmPlan, run

SEEDS = range(max(3, int(os.environ.get("SIMULATED_SEEDS", "0")) * 2 // 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed, note):
    """Keys that change in three steps harm nobody, and no nonce is used twice, whatever strikes."""
    outcome = run(SwarmPlan(seed, sealed=True))
    assert outcome.is_right, outcome.complaint
    note(judges.sealed_members, judges.record_of(outcome))
    if seed == 0:
        assert run(outcome.plan).trace == outcome.trace
