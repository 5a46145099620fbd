"""The scenarios break no promise of the unpatched code; `test_scenarios_slow.py` has the others."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios import SCENARIOS

IN_LINE = ("two_clusters", "silent_change", "told_of_a_death", "partitioned", "power_losses")


@pytest.mark.parametrize("name", IN_LINE)
def test_no_promise_is_broken(name):
    assert SCENARIOS[name]() == {}
