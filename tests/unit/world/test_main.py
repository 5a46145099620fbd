"""`python -m tests.world`: a run replayed, a run that fails, and the same with fewer faults."""

from __future__ import annotations

import json

import pytest

from gossipkv.gossip.core import Gossip
from tests.world.faults import FAULTS, drawn
from tests.world.gossip.swarm import SwarmPlan
from tests.world.gossip.swarm import run as run_plan
from tests.world.shrink import shrink
from tests.world.streams import Streams

SEED = 1


@pytest.fixture
def wrong(monkeypatch):
    """Members that say to be isolated whatever they hear."""
    monkeypatch.setattr(Gossip, "isolated", lambda self, *, now_ms: True)


def test_a_run_is_replayed(run):
    """The same seed tells the same, as text and as JSON."""
    first, second = run("--seed", SEED), run("--seed", SEED)
    assert first.status == 0
    assert first.out == second.out
    document = json.loads(run("--seed", SEED, "--json").out)
    assert document["trace"] in first.out
    assert document["command"] == f"python -m tests.world --seed {SEED}"
    assert document["violations"] == []
    assert document["healed_s"] < 35
    assert document["transitions"]["UNKNOWN + ALIVE"] > 0


def test_several_seeds(run):
    """Each has its line."""
    told = run("--seed", SEED, "--runs", 2, "--members", 2).out
    assert f"seed {SEED}: 2 members" in told
    assert f"seed {SEED + 1}: 2 members" in told


def test_a_sealed_run(run):
    """It is another run, and its command says that it is sealed."""
    document = json.loads(run("--seed", SEED, "--sealed", "--json").out)
    assert document["command"] == f"python -m tests.world --seed {SEED} --sealed"
    assert document["struck"]["keys_changed"] > 0
    refused = run("--seed", SEED, "--whole", "join", "--sealed")
    assert refused.status == 2
    assert "--members, --cold and --json alone" in refused.err


def test_a_broken_promise(run, wrong):
    """The status says so, the violation is told, and the line that replays it with the same faults switched off."""
    told = run("--seed", SEED, "--members", 3, "--without", "loss,crash")
    assert told.status == 3
    assert "healed_in_time" in told.out
    assert f"BROKEN; to replay: python -m tests.world --seed {SEED} --members 3 --without crash,loss\n" in told.out


def test_faults_are_switched_off_while_it_fails(wrong):
    """What has nothing to do with the failure is gone from the plan, and it still fails."""
    seed = next(seed for seed in range(100) if 1 < len(run_plan(SwarmPlan(seed, members=2)).faults) < 6)
    failed = run_plan(SwarmPlan(seed, members=2))
    told = []
    smaller = shrink(failed, told.append)
    assert not smaller.is_right
    assert smaller.faults < failed.faults
    assert told
    assert smaller.plan.without


@pytest.mark.parametrize(("options", "told"), [
    (["--metadata", "--cold"], "--seed and --runs alone"), (["--metadata", "--stored"], "--seed and --runs alone"),
    (["--metadata", "--json"], "--seed and --runs alone"), (["--whole", "join", "--stored"], "--whole goes with"),
])  # fmt: skip
def test_options_that_would_be_passed_over(run, options, told):
    """Are refused: what was asked for is not what would run."""
    refused = run("--seed", SEED, *options)
    assert (refused.status, refused.out) == (2, "")
    assert told in refused.err


def test_an_unknown_fault(run):
    """A fault that there is not is named, with those that there are."""
    told = run("--seed", SEED, "--without", "sunshine")
    assert told.status == 2
    assert "sunshine" in told.err
    assert FAULTS[0] in told.err


def test_faults_are_drawn():
    """Some seeds have none, some many, and each fault is in some."""
    found = [drawn(Streams(seed)["scenario"]) for seed in range(200)]
    assert frozenset() in found
    assert frozenset().union(*found) == set(FAULTS)
