"""Ranges that lose all their hosts and begin anew, under drawn faults: what was kept stays, what was replaced does not.

A failure prints the command that replays its seed.  SIMULATED_SEEDS says how many seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "0"))) or (1, 2, 13)  # Cheap ones.

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {}


@pytest.mark.parametrize("seed", [*SEEDS, *(seed for seed in FOUND if seed not in SEEDS)])
def test_drawn_faults_break_none(seed, note):
    """Of what is replaced nothing is merged, and a session that has seen what was lost is told."""
    outcome = run(seed, refounds=True)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.refounding, {"counts": outcome.counts})
