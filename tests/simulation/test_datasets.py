"""Shared datasets: aimed scenarios, and runs under drawn faults.

`test_datasets_slow.py` has the other scenarios. SIMULATED_SEEDS sets the number of seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import judges
from tests.simulation.scenarios_of_datasets import SCENARIOS
from tests.world.datasets.swarm import run

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "3")))
IN_LINE = ("one_empty_node", "two_contents", "late_joiner", "death_at_the_gate", "upgrade", "rolling_restart", "stray")


@pytest.mark.parametrize("name", IN_LINE)
def test_no_promise_is_broken(name):
    assert SCENARIOS[name]() == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_faults_break_none(seed, note):
    """No node gives a wrong answer under faults, and all have the newest version soon after."""
    outcome = run(seed)
    assert outcome.violations == {}
    counted = {name: getattr(outcome, name) for name in ("machines", "switches", "forwarded")}
    note(judges.datasets, {"faults": sorted(outcome.faults), **counted})


def test_a_run_is_the_same_twice():
    first, second = run(0), run(0)
    assert (first.trace, first.answers, first.switches) == (second.trace, second.answers, second.switches)
