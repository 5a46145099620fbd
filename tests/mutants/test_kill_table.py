"""The kill table: each wrong member is given away by what it shows, in a drawn run or in an aimed scene.

Only a checker or a property counts.  What the wrong code raises, or asserts, ends the test as a failure.
"""

import pytest

from gossipkv.testing.swarm import Plan, run
from tests.mutants import aimed, planted

# By chance: the first of these seeds have given it away, and if the protocol has changed the next ones may.
BY_SEEDS = {
    planted.never_refutes: 3,
    planted.refutes_in_the_same_incarnation: 3,
    planted.never_gives_up: 3,
    planted.believes_older_epochs: 3,
    planted.forgets_the_dead_at_once: 1,
    planted.never_isolated: 6,
    planted.sees_no_difference: 10,
    planted.hashes_members_alone: 10,
    planted.hashes_nothing: 10,
    planted.closes_gaps: 10,
    planted.tells_no_tombstones: 0,
    planted.keeps_branches_of_the_past: 0,
    planted.shows_the_dead: 0,
    planted.wakes_for_the_first_only: 0,
    planted.sleeps_through_deaths: 0,
}
MOST_SEEDS = 40

BY_AIM = {
    planted.kills_without_suspicion: aimed.a_short_pause,
    planted.kills_on_hearsay: aimed.one_who_took_all_for_dead,
    planted.goes_without_a_word: aimed.a_farewell,
    planted.overloads_packets: aimed.much_to_tell,
    planted.keeps_its_epoch: aimed.a_lost_disk,
    planted.shows_halves: aimed.branches_alone,
    planted.lays_resets_over: aimed.behind_the_floor,
    planted.skips_what_was_collected: aimed.behind_the_floor,
    planted.goes_on_with_any_transfer: aimed.branches_alone,
}


def test_every_mutant_is_in_the_table():
    """Once, and there are more than a dozen."""
    functions = {one for name, one in vars(planted).items() if callable(one) and one.__module__ == planted.__name__}
    assert functions - {planted.table} == {*BY_SEEDS, *BY_AIM}
    assert not BY_SEEDS.keys() & BY_AIM.keys()
    assert len(BY_SEEDS) + len(BY_AIM) >= 20


@pytest.mark.parametrize("scene", aimed.SCENES)
def test_right_members_pass(scene):
    """Nothing is found wrong where nothing is; of the seeds `tests/simulation` says so."""
    assert scene() == []


@pytest.mark.parametrize("wrong", BY_SEEDS, ids=lambda wrong: wrong.__name__)
def test_a_drawn_run_kills(wrong, monkeypatch):
    """Some run breaks a promise."""
    wrong(monkeypatch)
    first = BY_SEEDS[wrong]
    seeds = [first, *(seed for seed in range(MOST_SEEDS) if seed != first)]
    killer = next((outcome for outcome in map(run, map(Plan, seeds)) if not outcome.is_right), None)
    assert killer is not None, f"{wrong.__name__} passes for right in seeds 0 to {MOST_SEEDS - 1}"


@pytest.mark.parametrize("wrong", BY_AIM, ids=lambda wrong: wrong.__name__)
def test_an_aimed_scene_kills(wrong, monkeypatch):
    """The scene made for it finds something."""
    wrong(monkeypatch)
    found = BY_AIM[wrong]()
    assert found
