"""A small register stays correct under random faults in every order."""

from __future__ import annotations

import os

import pytest

from tests.unit.register.test_small_world import ODDS, STEPS, world_of

RUNS = int(os.environ.get("SMALL_WORLDS", "100"))

FIRST = int(os.environ.get("SMALL_WORLDS_FIRST", "0"))


@pytest.mark.parametrize("name", ODDS)
def test_nothing_that_was_told_is_untrue(name):
    """No fork, no lost acknowledgement and no refused change appears, and after healing the register goes on."""
    for seed in range(FIRST, FIRST + RUNS):
        try:
            world_of(name, seed).run(STEPS)
        except Exception as error:
            error.add_note(f'again: SMALL_WORLDS_FIRST={seed} SMALL_WORLDS=1 pytest {__file__} -k "{name}"')
            raise
