"""Whole nodes that find, miss and find each other again: some of the scenarios, once.

If SIMULATED_SEEDS is set, each scenario has more seeds and nodes, and the first seed runs twice.
"""

from __future__ import annotations

import os

import pytest

from tests.world.nodes.replay import WholePlan, run
from tests.world.nodes.scenarios import MEMBERSHIP
from tests.world.nodes.whole_cluster import SimulatedCluster, Violation, simulate

MANY = "SIMULATED_SEEDS" in os.environ
SEEDS = {3: range(4), 5: range(2), 9: range(1)} if MANY else {3: range(1)}
PLANS = [
    WholePlan(name, members, seed) for name in sorted(MEMBERSHIP) for members, seeds in SEEDS.items() for seed in seeds
]
IN_LINE = PLANS if MANY else [plan for plan in PLANS if plan.scenario in {"leave", "strangers", "crashes", "death"}]


@pytest.mark.parametrize("plan", IN_LINE, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """The scenario succeeds; a repeated run has the same trace."""
    first = run(plan)
    if MANY and plan.seed == 0:
        assert run(plan).trace == first.trace, plan.command


def test_a_failure_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(cluster: SimulatedCluster) -> None:
        await cluster.machines[0].start()
        raise Violation("as planted")

    monkeypatch.setattr("tests.world.nodes.replay.SCENARIOS", {"join": broken})
    with pytest.raises(Violation, match="as planted") as caught:
        run(WholePlan("join", 3, 5))
    assert caught.value.__notes__ == ["to replay: python -m tests.world --whole join --members 3 --seed 5"]
    assert simulate(MEMBERSHIP["join"], 5, machines=3).virtual_s > 60
