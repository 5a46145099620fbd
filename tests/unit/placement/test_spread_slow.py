"""More seeds of `test_spread.py`."""

from __future__ import annotations

import pytest

from tests.unit.placement import test_spread as line


@pytest.mark.parametrize("seed", range(2, 12))
def test_a_node_more_or_less_moves_its_share(seed: int) -> None:
    line.test_a_node_more_or_less_moves_its_share(seed)
