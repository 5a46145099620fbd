"""More seeds of `test_invariants.py`."""

from __future__ import annotations

import pytest

from tests.unit.gossip.tree import test_invariants as line


@pytest.mark.parametrize("first", range(20, 100, 20))
def test_no_bytes_break_the_sums_of_a_tree(first: int) -> None:
    for seed in range(first, first + 20):
        line.test_no_bytes_break_the_sums_of_a_tree(seed)
