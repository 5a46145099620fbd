"""More seeds of `tests/simulation/test_replication.py`: replicas of partitions under drawn faults."""

from __future__ import annotations

import pytest

from tests.simulation import judges
from tests.world.replication.world import run


@pytest.mark.parametrize("seed", range(15, 60))
def test_drawn_faults_break_none(seed, note):
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.replication, {"counts": outcome.counts, "travelled": outcome.travelled})
