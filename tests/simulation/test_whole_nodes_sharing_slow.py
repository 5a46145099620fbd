"""The scenarios of shared partitions that README's line leaves out."""

from __future__ import annotations

import pytest

from tests.simulation.test_whole_nodes_sharing import IN_LINE, PLANS
from tests.world.nodes.replay import WholePlan, run


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan not in IN_LINE], ids=lambda plan: plan.scenario)
def test_a_scenario(plan: WholePlan) -> None:
    run(plan)
