"""Registers under drawn faults, on ideal disks and on production's store.

A failure prints the command that replays it. SIMULATED_SEEDS sets the number of seeds; a fifth of them run on the
store.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.world.register.swarm import RegisterPlan

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "8")))

# Seeds beyond the usual range that found a defect, each with the defect.
FOUND: dict[int, str] = {
    887: "the checkers did not know of what a crash had left on a disk, and took what was read there for not committed",
}


@pytest.mark.parametrize("seed", [*SEEDS, *(seed for seed in FOUND if seed not in SEEDS)])
def test_no_promise_is_broken(seed, note):
    """Answers to clients are linearizable, commits form one chain, and the registers heal."""
    outcome = RegisterPlan(seed).run()
    assert outcome.is_right, outcome.complaint
    note(judges.registers, judges.record_of(outcome))


@pytest.mark.parametrize("seed", SEEDS[:: 5 if len(SEEDS) > 100 else 1][:200])
def test_no_promise_is_broken_on_the_store(seed, note):
    """The files under production's store forget unsynced data."""
    outcome = RegisterPlan(seed, stored=True).run()
    assert outcome.is_right, outcome.complaint
    note(judges.registers_on_the_store, judges.record_of(outcome))
