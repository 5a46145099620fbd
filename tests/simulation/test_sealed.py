"""Forty runs in which every packet is sealed and the keys change under faults: no promise broken, each run twice.

A failure prints the command that replays it.
"""

from __future__ import annotations

from functools import cache

import pytest

from gossipkv.testing.gossip.swarm import SwarmPlan, run

SEEDS = 40
PIECE = 10
PIECES = range(0, SEEDS, PIECE)


@cache
def ran(first):
    """The outcomes of a piece of the seeds."""
    return [run(SwarmPlan(seed, sealed=True)) for seed in range(first, first + PIECE)]


@pytest.mark.parametrize("first", PIECES)
def test_no_promise_is_broken(first):
    """Keys that change in three steps harm nobody, and no nonce is used twice, whatever strikes."""
    told = [f"{one.plan.command}\n    {one.violations[0]}" for one in ran(first) if not one.is_right]
    assert not told, "\n".join(["to replay:", *told])


@pytest.mark.parametrize("first", PIECES)
def test_keys_were_changed_under_faults(first):
    """Keys change in each run, and in each piece processes crash and stand still."""
    struck = [outcome.struck for outcome in ran(first)]
    assert all(each["keys_changed"] for each in struck)
    assert any(each["crash"] for each in struck)
    assert any(each["pause"] for each in struck)


def test_each_run_is_the_same_twice():
    """The same packets to the last byte."""
    assert [run(one.plan).trace for one in ran(0)] == [one.trace for one in ran(0)]
