"""Whole nodes that find, miss and find each other again: each scenario with many seeds, the first one twice."""

from __future__ import annotations

import pytest

from gossipkv.testing.nodes.cluster import SimulatedCluster, Violation, simulate
from gossipkv.testing.nodes.replay import WholePlan, run
from gossipkv.testing.nodes.scenarios import MEMBERSHIP

SEEDS = {3: range(4), 5: range(2), 9: range(1)}
PLANS = [
    WholePlan(name, members, seed) for name in sorted(MEMBERSHIP) for members, seeds in SEEDS.items() for seed in seeds
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.scenario}-{plan.members}-{plan.seed}")
def test_a_scenario(plan: WholePlan) -> None:
    """It comes to a good end, and with the first seed of each size twice to the same."""
    first = run(plan)
    if plan.seed == 0:
        assert run(plan).trace == first.trace, plan.command


def test_every_fault_strikes() -> None:
    """In the storms of this file, of which twelve are enough; a fault that never strikes is tested by nobody."""
    missing = {"kill", "power", "crash", "cut", "clog", "heal", "leave", "loss", "duplicate", "reorder", "corrupt"}
    seeds = iter(range(12))
    while missing and (seed := next(seeds, None)) is not None:
        missing -= {fault for fault, times in run(WholePlan("storm", 3, seed)).struck.items() if times}
    assert missing == set()


def test_a_failure_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names the scenario, how many nodes, and the seed."""

    async def broken(cluster: SimulatedCluster) -> None:
        await cluster.machines[0].start()
        raise Violation("as planted")

    monkeypatch.setattr("gossipkv.testing.nodes.replay.SCENARIOS", {"join": broken})
    with pytest.raises(Violation, match="as planted") as caught:
        run(WholePlan("join", 3, 5))
    assert caught.value.__notes__ == ["to replay: gossipkv simulate --whole join --members 3 --seed 5"]
    assert simulate(MEMBERSHIP["join"], 5, machines=3).virtual_s > 60
