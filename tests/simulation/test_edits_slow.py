"""More seeds of the world of edits; `test_edits.py` has the first ones."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import aimed_at_edits
from tests.simulation.planted_in_edits import BUGS, planted
from tests.world.edits.chain import BrokenError
from tests.world.edits.world import World

pytestmark = pytest.mark.timeout(1200)

# The seeds within which a bug is found; all other bugs have an aimed schedule.
ENOUGH = {
    "baddigest": 150,
    "inplace": 60,
    "since": 20,
    "applyacc": 3,
    "nopromise": 20,
    "quorum": 20,
    "decprep": 10,
    "reuse": 20,
    "sameid": 3,
    "refuse": 60,
    "stale": 60,
    "nogeneration": 20,
    "notagain": 20,
    "shorttail": 60,
    "rejudge": 60,
    "noid": 20,
    "short": 80,
    "nover": 3,
    "fuzzy": 120,
    "nonotice": 20,
    "noend": 60,
    "unsyncedseen": 3,
}


def test_each_bug_is_rejected_somewhere():
    assert {*BUGS} == {*ENOUGH, *aimed_at_edits.AIMED}


def test_the_rules_name_planted_bugs():
    page = (Path(__file__).parents[2] / "docs" / "development" / "metadata.md").read_text(encoding="utf-8")
    named = re.findall(
        r"`([a-z]+)`", " ".join(re.findall(r"\((`[a-z]+`(?:, `[a-z]+`)*)\)", page.partition("## Records")[0]))
    )
    assert len(named) > 30
    assert {*named} <= {*BUGS}


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_no_promise_is_broken(start):
    struck = Counter()
    for seed in range(start, start + 100):
        world = World(seed)
        world.run()
        struck += world.struck
    assert struck["found behind"] > 0.4 * struck["put back"] > 4, "most stores that were put back are found"


@pytest.mark.parametrize("name", ENOUGH)
def test_a_planted_bug_is_found(name):
    with planted(name):
        for seed in range(ENOUGH[name]):
            try:
                World(seed).run()
            except BrokenError:
                return
    pytest.fail(f"{ENOUGH[name]} seeds have not found it")
