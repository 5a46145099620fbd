"""Slow tests of `python -m tests.world`; the fast ones are in `test_main.py`."""

from __future__ import annotations

import json

import pytest

from gossipkv.gossip.core import Gossip
from tests.world.gossip.swarm import SwarmPlan
from tests.world.gossip.swarm import run as run_plan
from tests.world.shrink import shrink

SEED = 1


@pytest.fixture
def wrong(monkeypatch):
    """Make members claim to be isolated whatever they hear."""
    monkeypatch.setattr(Gossip, "isolated", lambda self, *, now_ms: True)


def test_a_run_is_replayed(run):
    """The same seed prints the same run, as text and as JSON."""
    first, second = run("--seed", SEED), run("--seed", SEED)
    assert first.status == 0
    assert first.out == second.out
    document = json.loads(run("--seed", SEED, "--json").out)
    assert document["trace"] in first.out
    assert document["command"] == f"python -m tests.world --seed {SEED}"
    assert document["violations"] == []
    assert document["healed_s"] < 35
    assert document["transitions"]["UNKNOWN + ALIVE"] > 0


def test_a_sealed_run(run):
    """The replay command has `--sealed`; options that a sealed run does not take are refused."""
    document = json.loads(run("--seed", SEED, "--sealed", "--json").out)
    assert document["command"] == f"python -m tests.world --seed {SEED} --sealed"
    assert document["struck"]["keys_changed"] > 0
    refused = run("--seed", SEED, "--whole", "join", "--sealed")
    assert refused.status == 2
    assert "--members, --cold and --json alone" in refused.err


def test_faults_are_switched_off_while_it_fails(wrong):
    """Faults that do not matter for the failure are removed from the plan, and the run still fails."""
    seed = next(seed for seed in range(100) if 1 < len(run_plan(SwarmPlan(seed, members=2)).faults) < 6)
    failed = run_plan(SwarmPlan(seed, members=2))
    told = []
    smaller = shrink(failed, told.append)
    assert not smaller.is_right
    assert smaller.faults < failed.faults
    assert told
    assert smaller.plan.without
