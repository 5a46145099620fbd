"""Stores go back to older copies under every order of messages, syncs and crashes."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.unit.register.test_older_copies import ODDS, STEPS, world_of

RUNS = int(os.environ.get("SMALL_WORLDS", "100"))


@pytest.mark.parametrize("name", ODDS)
def test_what_was_told_stays_true(name):
    """No fork and no loss of acknowledged changes; nearly every store that went back detects it."""
    struck = Counter()
    for seed in range(RUNS):
        world = world_of(name, seed)
        world.run(STEPS)
        struck += world.struck
    assert struck["found behind"] >= 0.8 * struck["went back"] >= 0.3 * RUNS
