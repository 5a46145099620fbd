"""Registers under drawn faults: no promise broken, on ideal disks and on production's store; some runs twice.

A failure prints the command that replays it.  SIMULATED_SEEDS says how many seeds; a fifth of them run on the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.simulation import judges
from tests.world.register.swarm import RegisterPlan

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "30")))

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {
    887: "the checkers did not know of what a crash had left on a disk, and took what was read there for not committed",
}


@pytest.mark.parametrize("seed", [*SEEDS, *(seed for seed in FOUND if seed not in SEEDS)])
def test_no_promise_is_broken(seed, note):
    """Whatever strikes, what clients are told has an order, and what is committed is one chain; and it heals."""
    outcome = RegisterPlan(seed).run()
    assert outcome.is_right, outcome.complaint
    note(judges.registers, judges.record_of(outcome))


@pytest.mark.parametrize("seed", SEEDS[:: 5 if len(SEEDS) > 100 else 1][:200])
def test_no_promise_is_broken_on_the_store(seed, note):
    """The same over production's store, on files that forget what was not synced."""
    outcome = RegisterPlan(seed, stored=True).run()
    assert outcome.is_right, outcome.complaint
    note(judges.registers_on_the_store, judges.record_of(outcome))


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_is_the_same_twice(stored):
    """The same events and faults in another process, whatever its hashing of strings."""
    plan = RegisterPlan(7, stored=stored)
    one = plan.run()
    environment = os.environ | {"PYTHONHASHSEED": "8"}
    told = subprocess.run(
        [sys.executable, *plan.command.split()[1:], "--json"], env=environment, capture_output=True, check=True
    )
    other = json.loads(told.stdout)
    assert (other["trace"], other["struck"], other["transitions"]) == (one.trace, one.struck, one.transitions)
