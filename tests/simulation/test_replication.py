"""Copies of partitions under drawn faults: no promise broken, and soon after all has healed they are equal and quiet.

A failure prints the command that replays its seed.  SIMULATED_SEEDS says how many seeds: twice as many as of gossip.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation import judges
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(max(15, 2 * int(os.environ.get("SIMULATED_SEEDS", "0"))))

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {}


@pytest.mark.parametrize("seed", [*SEEDS, *(seed for seed in FOUND if seed not in SEEDS)])
def test_drawn_faults_break_none(seed, note):
    """Whatever strikes, what is acknowledged stays, dots are given out once, and equal clocks are equal records."""
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.replication, {"counts": outcome.counts, "travelled": outcome.travelled})


def test_a_run_is_the_same_twice():
    """In two processes, which hash strings otherwise, and place what they make elsewhere."""
    command = [sys.executable, "-m", "tests.world", "--replication", "--seed", "78", "--runs", "1"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert {"records sent", "advance DONE", "joined"} <= {line[9:] for line in said[0].splitlines()}
