"""Replicas under drawn faults: no promise is broken, and soon after healing all are equal and quiet.

A failure prints the command that replays its seed. SIMULATED_SEEDS sets the number of seeds: twice as many as of
gossip.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(2 * int(os.environ.get("SIMULATED_SEEDS", "0"))) or (4, 11, 12)  # These seeds are cheap.


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_faults_break_none(seed, note):
    """Acknowledged writes stay, dots are unique, and equal clocks mean equal records."""
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.replication, {"counts": outcome.counts, "travelled": outcome.travelled})
