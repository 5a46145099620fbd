"""The scenarios of shared datasets that README's line leaves out."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios_of_datasets import SCENARIOS
from tests.simulation.test_datasets import IN_LINE


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in IN_LINE])
def test_no_promise_is_broken(name):
    assert SCENARIOS[name]() == {}
