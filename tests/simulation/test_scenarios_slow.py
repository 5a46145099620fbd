"""The scenarios that README's line leaves out."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios import SCENARIOS
from tests.simulation.test_scenarios import IN_LINE

LONGEST = ("starved_together", "large_branches")  # These run at night.


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in {*IN_LINE, *LONGEST}])
def test_no_promise_is_broken(name):
    assert SCENARIOS[name]() == {}
