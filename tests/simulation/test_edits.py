"""A map in a register, by edits, over production's cores in a discrete world.

A failure names its seed: `World(seed).run()` replays it. SIMULATED_SEEDS sets the number of seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import aimed_at_edits
from tests.simulation.planted_in_edits import planted
from tests.world.edits.chain import BrokenError
from tests.world.edits.world import World

pytestmark = pytest.mark.timeout(1200)

SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "25")))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed):
    """One chain in each generation, operations as told, and a decision shows everywhere within a second."""
    World(seed).run()


@pytest.mark.parametrize("seed", SEEDS[::5][:200])
def test_no_promise_is_broken_on_the_store(seed):
    """The files under production's store forget unsynced data."""
    World(seed, stored=True).run()


@pytest.mark.parametrize("name", aimed_at_edits.AIMED)
def test_an_aimed_schedule_breaks_a_promise_only_with_its_bug(name):
    aimed_at_edits.run(name)
    with planted(name), pytest.raises(BrokenError):
        aimed_at_edits.run(name)
