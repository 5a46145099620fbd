"""Datasets on machines that share them: scenarios with an aim, and runs under drawn faults.

SIMULATED_SEEDS says how many seeds of drawn faults.
"""

from __future__ import annotations

import os

import pytest

from gossipkv.testing.datasets.swarm import run
from tests.simulation.scenarios_of_datasets import SCENARIOS, empty_cluster

pytestmark = pytest.mark.timeout(1200)

PIECE = 100
SEEDS = int(os.environ.get("SIMULATED_SEEDS", PIECE))


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_promise_is_broken(name):
    """What the scenario does breaks none."""
    assert SCENARIOS[name]() == {}


def test_thirty_nodes():
    """They share out what comes as three do."""
    assert empty_cluster(30) == {}


@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_drawn_faults_break_none(first):
    """Whatever strikes, nobody answers what is not so; and soon after it ends all have the newest version."""
    outcomes = [run(seed) for seed in range(first, min(first + PIECE, SEEDS))]
    assert {outcome.seed: outcome.violations for outcome in outcomes if outcome.violations} == {}
    # And they are worth something: there were faults, switches, and reads that others answered.
    assert sum(not outcome.faults for outcome in outcomes) < len(outcomes) // 2
    assert sum(outcome.switches > outcome.machines for outcome in outcomes) > len(outcomes) // 2
    assert sum(outcome.forwarded for outcome in outcomes) > 100 * len(outcomes)


def test_a_run_is_the_same_twice():
    """The same number, the same run."""
    first, second = run(3), run(3)
    assert (first.trace, first.answers, first.switches) == (second.trace, second.answers, second.switches)
