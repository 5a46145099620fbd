"""More seeds of `test_joining.py`."""

from __future__ import annotations

import pytest

from tests.unit.gossip.membership import test_joining as line


@pytest.mark.parametrize("seed", range(4, 20))
def test_started_together(seed: int) -> None:
    line.test_started_together(seed)
