"""Whole nodes that share a database once more: with less memory than data, and twice."""

from __future__ import annotations

import pytest

from tests.world.nodes.replay import WholePlan, run


@pytest.mark.parametrize("name", ["crashes", "disk_full", "laggard", "upgrade", "upgrade_restarts"])
def test_a_scenario_with_less_memory_than_data(name: str) -> None:
    """The same, when pages of what is served come and go, and reads of them fail now and then."""
    run(WholePlan(name, 3, 1, cold=True))


@pytest.mark.parametrize("name", ["upgrade", "upgrade_restarts"])
def test_a_run_is_the_same_twice(name: str) -> None:
    """The same number, the same run."""
    plan = WholePlan(name, 3, 1)
    assert run(plan).trace == run(plan).trace, plan.command
