"""Three hundred runs under drawn faults: no promise broken, each run twice, every fault struck, every transition taken.

A failure prints the command that replays it.  The second time is in a process of its own that hashes strings
otherwise, by that very command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from gossipkv.testing.faults import FAULTS
from gossipkv.testing.swarm import SwarmPlan, run
from gossipkv.testing.transitions import ALL, counted
from tests.simulation.scenarios import back_after_leaving, late_verdict, remembered

pytestmark = pytest.mark.timeout(1200)

SEEDS = 320
PIECE = 10
PIECES = range(0, SEEDS, PIECE)

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


def start_again(first, count):
    """The second run of some seeds, beginning now."""
    command = [sys.executable, "-m", "gossipkv", "simulate", "--seed", str(first), "--runs", str(count), "--json"]
    environment = os.environ | {"PYTHONHASHSEED": str(first + 1)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def documents(text):
    """JSON documents, one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        document, length = decoder.raw_decode(text[at:].lstrip())
        at += len(text[at:]) - len(text[at:].lstrip()) + length
        yield document


@cache
def ran(first):
    """The outcomes of a piece of the seeds, and of the same once more."""
    again = start_again(first, PIECE)
    outcomes = [run(SwarmPlan(seed)) for seed in range(first, first + PIECE)]
    said, _ = again.communicate()
    return outcomes, list(documents(said))


def check(outcomes):
    """Fail with what is wrong and how to see it."""
    told = [f"{one.plan.command}\n    {one.violations[0]}" for one in outcomes if not one.is_right]
    assert not told, "\n".join(["to replay:", *told])


@pytest.mark.parametrize("first", PIECES)
def test_no_promise_is_broken(first):
    """Whatever strikes, no machine ever shows what is not so, and soon after it ends all show the truth."""
    check(ran(first)[0])


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed):
    """Seeds that caught something."""
    check([run(SwarmPlan(seed))])


@pytest.mark.parametrize("first", PIECES)
def test_each_run_is_the_same_twice(first):
    """The same events, faults and transitions in another process, whatever its hashing of strings."""
    outcomes, again = ran(first)
    assert [document["seed"] for document in again] == list(range(first, first + PIECE))
    for one, document in zip(outcomes, again, strict=True):
        assert document["trace"] == one.trace, one.plan.command
        assert (document["struck"], document["transitions"]) == (one.struck, one.transitions), one.plan.command


def test_every_fault_struck():
    """Of all faults that can be drawn, none was without effect in all these runs."""
    struck = sum((outcome.struck for first in PIECES for outcome in ran(first)[0]), Counter())
    expected = {name for fault in FAULTS for name in STRUCK_AS.get(fault, {fault})}
    assert {name for name in expected if not struck[name]} == set()
    assert struck["ask_timeout"] > 0


def test_every_transition_was_taken():
    """Every entry of the table of membership was asked for."""
    # To hear of somebody's next life only when that is over takes an aim, and to be forgotten takes days.
    with counted() as aimed:
        assert back_after_leaving() == {}
        assert late_verdict() == {}
        assert remembered() == {}
    taken = sum((outcome.transitions for first in PIECES for outcome in ran(first)[0]), aimed)
    assert {name for name in ALL if not taken[name]} == set()


def test_the_runs_differ():
    """Seeds draw different faults and sizes; some have none."""
    outcomes = [outcome for first in PIECES for outcome in ran(first)[0]]
    assert {outcome.members for outcome in outcomes} >= {2, 3, 4, 5, 6, 8}
    assert {outcome.profile for outcome in outcomes} == {"lan", "local"}
    sizes = {len(outcome.faults) for outcome in outcomes}
    assert 0 in sizes
    assert max(sizes) > len(FAULTS) // 2
