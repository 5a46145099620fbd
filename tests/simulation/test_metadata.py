"""Nodes that decide on tables, under drawn faults: nothing that they commit or tell is untrue, and soon all goes on.

A failure prints the command that replays its seed.  SIMULATED_SEEDS says how many seeds: a tenth as many as of gossip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from gossipkv.testing.metadata.world import run

pytestmark = pytest.mark.timeout(1200)

PIECE = 10
SEEDS = int(os.environ.get("SIMULATED_SEEDS", "100")) // 10

# Seeds beyond those that found something, each with what it caught.
FOUND: dict[int, str] = {
    66: "a force that came to nothing stopped its register for good, and could not be repeated",
}


def check(outcomes):
    """Fail with what is wrong and how to see it."""
    told = [f"{one.command}\n    {one.violations[0]}" for one in outcomes if one.violations]
    assert not told, "\n".join(["to replay:", *told])


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed):
    """Seeds that caught something."""
    check([run(seed)])


@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_drawn_faults_break_none(first):
    """Whatever strikes, what is committed is one chain that a majority holds, and what is told of it is so."""
    outcomes = [run(seed) for seed in range(first, min(first + PIECE, SEEDS))]
    check(outcomes)
    # And they are worth something: operations were judged in all ways, and most transactions by the model, too.
    counts = sum((outcome.counts for outcome in outcomes), Counter())
    assert min(counts[name] for name in ("DONE", "CONFLICT", "REFUSED")) > 5 * len(outcomes)
    assert counts["replayed"] > counts["heads"] / 2
    assert counts["create DONE"] > len(outcomes)
    assert counts["collections"] > len(outcomes)
    assert sum(name.startswith("strikes") for name in counts) > PIECE


def test_a_run_is_the_same_twice():
    """In two processes, which hash strings otherwise."""
    command = [sys.executable, "-m", "gossipkv.testing.metadata", "3"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert "messages" in said[0]
