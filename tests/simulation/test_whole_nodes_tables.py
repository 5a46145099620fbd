"""Whole nodes that decide on tables, with real stores: some seeds of each scenario, one of them twice."""

from __future__ import annotations

import os

import pytest

from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.scenarios import DECIDING, RECORDS

MANY = "SIMULATED_SEEDS" in os.environ
SEEDS = ((3, 0), (5, 1)) if MANY else ((3, 0),)
KEEPING = range(30 if MANY else 3)
PLANS = [WholePlan(name, members, seed) for name in sorted(DECIDING) for members, seed in SEEDS] + [
    WholePlan(name, 3, seed) for name in sorted(RECORDS) for seed in KEEPING
]
PLANS.append(WholePlan("acceptor_lost", 4, 0))  # One of the four is no acceptor, and can take the lost one's place.
CHEAP = {"two_lone", "founder_lost", "tables", "records"}
IN_LINE = PLANS if MANY else [plan for plan in PLANS if plan.scenario in CHEAP and plan.seed == 0]


@pytest.mark.parametrize("plan", IN_LINE, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """The scenario succeeds; a repeated run has the same trace."""
    first = run(plan)
    if plan in (WholePlan("records", 3, 0), WholePlan("remade", 3, 0)):  # In some others no node is calm in time.
        assert first.struck["gathered"] > 0, plan.command
    if MANY and plan.seed == 0:
        assert run(plan).trace == first.trace, plan.command
