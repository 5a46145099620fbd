"""Gathered writes get the same answers and records as others for 100,000 drawn requests."""

from __future__ import annotations

import pytest

from tests.unit.table.test_gathered import BURSTS, drawn

PARTS = 20
STATES = 100_000 // PARTS // (4 * BURSTS) + 1  # A burst has four requests or more, on average.


@pytest.mark.parametrize("part", range(PARTS))
def test_many_drawn_writes_get_the_same_answers_both_ways(part):
    gathered = [drawn(100_000 + part * STATES + number, BURSTS) for number in range(STATES)]
    assert sum(gathered) > STATES * BURSTS // 2, "the loop gathers a good part"
