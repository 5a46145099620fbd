"""Whole nodes that share the partitions of a database while clients read.

SIMULATED_SEEDS sets the seeds of each scenario: per hundred, two with three nodes and one with five. Without it, three
scenarios have one seed; `test_whole_nodes_sharing_slow.py` has the others.
"""

from __future__ import annotations

import os

import pytest

from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.scenarios import SHARING

HUNDREDS = int(os.environ.get("SIMULATED_SEEDS", "0")) / 100
SEEDS = {3: max(1, int(2 * HUNDREDS)), 5: int(HUNDREDS)}
MEMBERS = dict.fromkeys(SHARING, SEEDS)
MEMBERS |= {"one_empty_node": {2: SEEDS[3]}, "views_that_differ": {3: SEEDS[3]}}
PLANS = [
    WholePlan(name, members, seed)
    for name in sorted(SHARING)
    for members, seeds in MEMBERS[name].items()
    for seed in range(seeds)
]
IN_LINE = (
    PLANS
    if HUNDREDS
    else [plan for plan in PLANS if plan.scenario in {"one_version", "late_source", "death_at_the_gate"}]
)


@pytest.mark.parametrize("plan", IN_LINE, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """Each value is right, answers never get older, and no read fails without need."""
    run(plan)
