"""Nodes that decide on tables, under drawn faults: nothing that they commit or tell is untrue, and soon all goes on.

A failure prints the command that replays its seed.  SIMULATED_SEEDS says how many seeds: a tenth as many as of gossip.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.metadata.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "0")) // 10) or (3, 5, 8)  # Cheap ones.


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_faults_break_none(seed, note):
    """Whatever strikes, what is committed is one chain that a majority holds, and what is told of it is so."""
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.metadata, {"counts": outcome.counts})
