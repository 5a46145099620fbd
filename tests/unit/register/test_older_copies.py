"""A disk goes back to an older copy in a small world, where a knowing acceptor is in every quorum with it."""

from __future__ import annotations

import pytest

from tests.unit.register.older_copies import OlderCopies
from tests.unit.register.small_world import Odds

STEPS = 400

ODDS = {
    "the same acceptors": Odds(reconfigure=0, lag=0, go_back=40),
    "others now and then": Odds(go_back=40),
    "others all the time": Odds(reconfigure=20, restart=5, crash=15, go_back=40, dropped=0.1),
    "a bad net": Odds(dropped=0.2, doubled=0.2, crash=10, go_back=40),
}


def world_of(name: str, seed: int) -> OlderCopies:
    least = 3 if name == "the same acceptors" else 4
    return OlderCopies(seed, ODDS[name], nodes=(least, 5)[seed % 2], founders=3)


@pytest.mark.parametrize("name", ODDS)
def test_what_was_told_stays_true(name):
    """A few runs; the night tests run hundreds."""
    for seed in range(2):
        world_of(name, seed).run(STEPS)
