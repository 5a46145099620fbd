"""Whole nodes that share the partitions of a database while clients read: each scenario with several seeds.

SIMULATED_SEEDS says how many seeds, in proportion: a scenario has two of three nodes for a hundred, and every second
one has one of five; with more seeds every one has.
"""

from __future__ import annotations

import os

import pytest

from gossipkv.testing.nodes.replay import WholePlan, run
from gossipkv.testing.nodes.scenarios import SHARING

USUAL = 100
HUNDREDS = int(os.environ.get("SIMULATED_SEEDS", USUAL)) / USUAL
SEEDS = {3: max(1, int(2 * HUNDREDS)), 5: int(HUNDREDS)}
OF_FIVE = sorted(SHARING)[:: 2 if HUNDREDS <= 1 else 1]
MEMBERS = {name: SEEDS if name in OF_FIVE else {3: SEEDS[3]} for name in SHARING}
MEMBERS |= {"one_empty_node": {2: SEEDS[3]}, "views_that_differ": {3: SEEDS[3]}}
PLANS = [
    WholePlan(name, members, seed)
    for name in sorted(SHARING)
    for members, seeds in MEMBERS[name].items()
    for seed in range(seeds)
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """It comes to a good end: each value is right, none is older than one before, and no read fails that need not."""
    run(plan)


@pytest.mark.parametrize("name", ["crashes", "disk_full", "laggard", "upgrade", "upgrade_restarts"])
def test_a_scenario_with_less_memory_than_data(name: str) -> None:
    """The same, when pages of what is served come and go, and reads of them fail now and then."""
    run(WholePlan(name, 3, 1, cold=True))


@pytest.mark.parametrize("name", ["upgrade", "upgrade_restarts"])
def test_a_run_is_the_same_twice(name: str) -> None:
    """The same number, the same run."""
    plan = WholePlan(name, 3, 1)
    assert run(plan).trace == run(plan).trace, plan.command
