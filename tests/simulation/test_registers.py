"""Registers under drawn faults: no promise broken, on ideal disks and on production's store; some runs twice.

A failure prints the command that replays it.  SIMULATED_SEEDS says how many seeds; a fifth of them run on the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from gossipkv.testing.register.swarm import FAULTS, RegisterPlan

pytestmark = pytest.mark.timeout(1200)

PIECE = 100
SEEDS = int(os.environ.get("SIMULATED_SEEDS", PIECE))

# What struck is counted under these names where one fault strikes in several ways, or where its effect is what counts.
STRUCK_AS = {
    "partition": {"partition", "partition_one_way"},
    "crash_at_sync": {"crash_at_sync", "power_at_sync", "disk_forgot"},
    "strike_sync": {"crash_at_sync", "power_at_sync"},
    "refused_write": {"disk_error"},
    "go_back": {"went_back", "refused_life"},
}
# What changes nothing on an ordered connection, and is not counted where it strikes.
SILENT = {"duplicate", "reorder", "corrupt", "cut", "clog"}


def check(outcomes):
    """Fail with what is wrong and how to see it."""
    told = [f"{one.plan.command}\n    {one.violations[0]}" for one in outcomes if not one.is_right]
    assert not told, "\n".join(["to replay:", *told])


def worth_something(outcomes):
    """Fail unless clients were told much, most of it that it is done, and the checkers came to a verdict."""
    counts = sum((outcome.transitions for outcome in outcomes), Counter())
    assert counts["operations"] > 9 * len(outcomes)
    assert counts["done"] > 0.4 * counts["operations"]
    assert counts["unknown"] > 0 < counts["refused"]
    assert counts["inconclusive"] < 0.05 * (counts["linearizable"] + counts["inconclusive"])
    assert counts["recoverable"] > 2 * counts["unrecoverable"]
    assert counts["pairs"] > len(outcomes)
    return counts


@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_no_promise_is_broken(first):
    """Whatever strikes, what clients are told has an order, and what is committed is one chain; and it heals."""
    outcomes = [RegisterPlan(seed).run() for seed in range(first, first + PIECE)]
    check(outcomes)
    worth_something(outcomes)
    struck = sum((outcome.struck for outcome in outcomes), Counter())
    expected = {name for fault in set(FAULTS) - SILENT for name in STRUCK_AS.get(fault, {fault})}
    if first == 0:  # Another hundred may be without what is rare.
        assert {name for name in expected if not struck[name]} == set()


@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_no_promise_is_broken_on_the_store(first):
    """The same over production's store, on files that forget what was not synced."""
    outcomes = [RegisterPlan(seed, stored=True).run() for seed in range(first, first + PIECE, 5)]
    check(outcomes)
    worth_something(outcomes)


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_is_the_same_twice(stored):
    """The same events and faults in another process, whatever its hashing of strings."""
    plan = RegisterPlan(7, stored=stored)
    one = plan.run()
    environment = os.environ | {"PYTHONHASHSEED": "8"}
    told = subprocess.run(
        [sys.executable, "-m", *plan.command.split(), "--json"], env=environment, capture_output=True, check=True
    )
    other = json.loads(told.stdout)
    assert (other["trace"], other["struck"], other["transitions"]) == (one.trace, one.struck, one.transitions)
