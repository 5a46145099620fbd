"""Tests over real processes, sockets, threads or time; `test_seeds.py` has the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.world.gossip.swarm import SwarmPlan, run

pytestmark = pytest.mark.timeout(1200)

USUAL = 3
SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", str(USUAL))))
TWICE = SEEDS[:: 6 if len(SEEDS) <= USUAL else 1]

# Seeds beyond the usual range that found a defect, each with the defect.
FOUND: dict[int, str] = {
    1001: "a disk lost: the same epoch with a new branch",
    1028: "two clusters that formed at once and never met",
    2051: "lone members under two ids of one name",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed):
    outcome = run(SwarmPlan(seed))
    assert outcome.is_right, outcome.complaint


@pytest.mark.parametrize("seed", TWICE)
def test_a_run_is_the_same_twice(seed):
    """Another process with other string hashes gives the same events, faults and transitions."""
    one = run(SwarmPlan(seed))
    command = [sys.executable, "-m", "tests.world", "--seed", str(seed), "--json"]
    environment = os.environ | {"PYTHONHASHSEED": str(seed + 1)}
    document = json.loads(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)
    assert document["seed"] == seed
    assert document["trace"] == one.trace, one.plan.command
    assert (document["struck"], document["transitions"]) == (one.struck, one.transitions), one.plan.command
