"""The serving loop and Python give the same bytes for 100,000 drawn requests."""

from __future__ import annotations

import pytest

from tests.unit.table.test_calm import REQUESTS, drawn

PARTS = 20
STATES = 100_000 // PARTS // REQUESTS + 1


@pytest.mark.parametrize("part", range(PARTS))
def test_many_drawn_requests_get_the_same_bytes_from_both(part):
    answered = [drawn(100_000 + part * STATES + number, REQUESTS) for number in range(STATES)]
    assert sum(answered) > STATES * REQUESTS // 4, "the loop answers a good part"
