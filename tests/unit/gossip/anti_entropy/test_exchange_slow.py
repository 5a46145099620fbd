"""More seeds of `test_exchange.py`."""

from __future__ import annotations

import pytest

from tests.unit.gossip.anti_entropy import test_exchange as line


@pytest.mark.parametrize("seed", range(5, 30))
def test_equal_views_whatever_the_link_does(seed: int) -> None:
    line.test_equal_views_whatever_the_link_does(seed)
