"""Whole nodes that share a database, with less memory than data, and repeated for determinism."""

from __future__ import annotations

import pytest

from tests.world.nodes.replay import WholePlan, run


@pytest.mark.parametrize("name", ["crashes", "disk_full", "laggard", "upgrade", "upgrade_restarts"])
def test_a_scenario_with_less_memory_than_data(name: str) -> None:
    """The scenario holds while pages are evicted and reloaded, and some reads of them fail."""
    run(WholePlan(name, 3, 1, cold=True))


@pytest.mark.parametrize("name", ["upgrade", "upgrade_restarts"])
def test_a_run_is_the_same_twice(name: str) -> None:
    plan = WholePlan(name, 3, 1)
    assert run(plan).trace == run(plan).trace, plan.command
