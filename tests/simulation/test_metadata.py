"""Nodes that decide on tables, under drawn faults: nothing that they commit or tell is untrue, and soon all goes on.

A failure prints the command that replays its seed.  SIMULATED_SEEDS says how many seeds: a tenth as many as of gossip.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation import judges
from tests.world.metadata.world import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(max(10, int(os.environ.get("SIMULATED_SEEDS", "0")) // 10))

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {
    48: "a table that was dropped behind a force came back at acceptors whom the force had left out",
    66: "a force that came to nothing stopped its register for good, and could not be repeated",
}


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_drawn_faults_break_none(seed, note):
    """Whatever strikes, what is committed is one chain that a majority holds, and what is told of it is so."""
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
    note(judges.metadata, {"counts": outcome.counts})


def test_a_run_is_the_same_twice():
    """In two processes, which hash strings otherwise."""
    command = [sys.executable, "-m", "tests.world", "--metadata", "--seed", "3"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert "messages" in said[0]
