"""The moments of `test_divisions_aimed.py` that README's line leaves out."""

from __future__ import annotations

import pytest

from tests.simulation import test_divisions_aimed as aimed


@pytest.mark.parametrize("at", [2, 3, 5, 6, 8])
def test_power_is_lost_around_the_adopting_batch(at):
    aimed.test_power_is_lost_around_the_adopting_batch(at)
