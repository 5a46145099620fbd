"""Re-creation of partitions that lost all hosts, under drawn faults: kept records stay, replaced ones do not return.

A failure prints the command that replays its seed. SIMULATED_SEEDS sets the number of seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "0"))) or (
    1,
    2,
    13,
    33,
    127,
)  # These seeds are cheap; 33 and 127 have shards.


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_faults_break_none(seed, note):
    """Replaced records are never merged, and a session that saw lost records is told so."""
    outcome = run(seed, refounds=True)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.refounding, {"counts": outcome.counts})
