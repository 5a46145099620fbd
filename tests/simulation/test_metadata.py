"""Nodes that decide on tables under drawn faults: commits and answers are true, and progress resumes soon.

A failure prints the command that replays its seed. SIMULATED_SEEDS sets the number of seeds: a tenth of gossip's.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.metadata.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "0")) // 10) or (3, 5, 8)  # These seeds are cheap.


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_faults_break_none(seed, note):
    """Commits form one chain that a majority holds, and answers agree with the chain."""
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.metadata, {"counts": outcome.counts})
