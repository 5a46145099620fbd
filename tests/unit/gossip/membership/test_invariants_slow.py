"""More seeds of `test_invariants.py`."""

from __future__ import annotations

import pytest

from tests.unit.gossip.membership import test_invariants as line


@pytest.mark.parametrize("first", range(20, 200, 20))
def test_nothing_that_peers_say_breaks_the_table(first: int) -> None:
    for seed in range(first, first + 20):
        line.test_nothing_that_peers_say_breaks_the_table(seed)


@pytest.mark.parametrize("first", range(20, 200, 20))
def test_no_meeting_breaks_what_joining_holds(first: int) -> None:
    for seed in range(first, first + 20):
        line.test_no_meeting_breaks_what_joining_holds(seed)
