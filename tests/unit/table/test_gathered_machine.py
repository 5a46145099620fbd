"""Drawn steps of gathered writes keep the promises of `gathered_machine`."""

from __future__ import annotations

import os

import pytest

from tests.unit.table.gathered_machine import Machine

SEEDS = 30
PARTS = max(2, int(os.environ.get("SIMULATED_SEEDS", "0")) // SEEDS)


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_steps_keep_the_promises(part):
    """The loop gathers a good part of the writes."""
    gathered = [Machine(part * SEEDS + number).run() for number in range(SEEDS)]
    assert sum(gathered) > 3 * SEEDS
