"""Each scenario, on the code as it is, breaks no promise; and twice it is the same."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios import SCENARIOS

LONGEST = ("starved_together", "large_branches")  # At night.


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LONGEST])
def test_no_promise_is_broken(name):
    """What the scenario does harms nobody whom it should not."""
    assert SCENARIOS[name]() == {}
