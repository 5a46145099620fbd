"""Runs under drawn faults: no promise broken, some runs twice, every fault struck, every transition taken.

A failure prints the command that replays it.  The second time is in a process of its own that hashes strings
otherwise, by that very command.  SIMULATED_SEEDS says how many seeds; beyond the usual number each runs twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from gossipkv.testing.faults import FAULTS
from gossipkv.testing.gossip.swarm import SwarmPlan, run
from gossipkv.testing.transitions import ALL, counted
from tests.simulation.scenarios import back_after_leaving, late_verdict, remembered, suspected_again

pytestmark = pytest.mark.timeout(1200)

USUAL = 100
SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", str(USUAL))))
TWICE = SEEDS[:: 8 if len(SEEDS) <= USUAL else 1]

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {
    1001: "a disk lost: the same epoch with a new branch",
    1028: "two clusters that formed at once and never met",
    2051: "lone members under two ids of one name",
}

# What struck is counted under these names where one fault strikes in several ways, or where its effect is what counts.
STRUCK_AS = {
    "partition": {"partition", "partition_one_way"},
    "refused_write": {"disk_error", "disk_full"},
    "crash_at_sync": {"crash_at_sync", "power_at_sync", "disk_forgot", "write_torn"},
}


def check(outcomes):
    """Fail with what is wrong and how to see it."""
    told = [f"{one.plan.command}\n    {one.violations[0]}" for one in outcomes if not one.is_right]
    assert not told, "\n".join(["to replay:", *told])


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed):
    """Seeds that caught something."""
    check([run(SwarmPlan(seed))])


@pytest.mark.parametrize("seed", TWICE)
def test_a_run_is_the_same_twice(seed):
    """The same events, faults and transitions in another process, whatever its hashing of strings."""
    one = run(SwarmPlan(seed))
    command = [sys.executable, "-m", "gossipkv", "simulate", "--seed", str(seed), "--json"]
    environment = os.environ | {"PYTHONHASHSEED": str(seed + 1)}
    document = json.loads(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)
    assert document["seed"] == seed
    assert document["trace"] == one.trace, one.plan.command
    assert (document["struck"], document["transitions"]) == (one.struck, one.transitions), one.plan.command


def struck_is_complete(outcomes):
    """Fail unless each fault has struck."""
    struck = sum((outcome.struck for outcome in outcomes), Counter())
    expected = {name for fault in FAULTS for name in STRUCK_AS.get(fault, {fault})}
    assert {name for name in expected if not struck[name]} == set()
    assert struck["ask_timeout"] > 0
    assert struck["publish_refused"] > 0


def transitions_are_complete(outcomes):
    """Fail unless each entry of the table was asked for."""
    # To hear of somebody's next life only when that is over takes an aim, and to be forgotten takes days.
    with counted() as aimed:
        assert back_after_leaving() == {}
        assert late_verdict() == {}
        assert suspected_again() == {}
        assert remembered() == {}
    taken = sum((outcome.transitions for outcome in outcomes), aimed)
    assert {name for name in ALL if not taken[name]} == set()


def runs_differ(outcomes):
    """Fail unless seeds draw different faults and sizes, some none."""
    assert {outcome.members for outcome in outcomes} >= {2, 3, 4, 5, 6, 8}
    assert {outcome.profile for outcome in outcomes} == {"lan", "local"}
    sizes = {len(outcome.faults) for outcome in outcomes}
    assert 0 in sizes
    assert max(sizes) > len(FAULTS) // 2


def test_no_promise_is_broken():
    """Whatever strikes, no machine ever shows what is not so, and soon after it ends all show the truth."""
    found = [run(SwarmPlan(seed)) for seed in SEEDS]
    check(found)
    # And they are worth something: no fault was without effect, and every entry of the table of membership was taken.
    struck_is_complete(found)
    transitions_are_complete(found)
    runs_differ(found)
