"""Stores that are put back to older copies, in every order of messages, syncs and crashes."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.unit.register.test_older_copies import ODDS, STEPS, world_of

RUNS = int(os.environ.get("SMALL_WORLDS", "100"))


@pytest.mark.parametrize("name", ODDS)
def test_what_was_told_stays_true(name):
    """No fork, and nothing shown or acknowledged is lost; nearly every store that went back has found it itself."""
    struck = Counter()
    for seed in range(RUNS):
        world = world_of(name, seed)
        world.run(STEPS)
        struck += world.struck
    assert struck["found behind"] >= 0.8 * struck["went back"] >= 0.3 * RUNS
