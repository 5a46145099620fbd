"""`python -m tests.world`: a replayed run, a failing run, and the failing run with fewer faults."""

from __future__ import annotations

import pytest

from gossipkv.gossip.core import Gossip
from tests.world.faults import FAULTS, drawn
from tests.world.streams import Streams

SEED = 1


@pytest.fixture
def wrong(monkeypatch):
    """Make members claim to be isolated whatever they hear."""
    monkeypatch.setattr(Gossip, "isolated", lambda self, *, now_ms: True)


def test_several_seeds(run):
    told = run("--seed", SEED, "--runs", 2, "--members", 2).out
    assert f"seed {SEED}: 2 members" in told
    assert f"seed {SEED + 1}: 2 members" in told
    assert told.endswith("\nPASS: all promises held; runs: 2\n")


def test_a_broken_promise(run, wrong):
    """The status, the violation and the replay command with the same faults switched off are reported."""
    told = run("--seed", SEED, "--members", 3, "--without", "loss,crash")
    assert told.status == 3
    assert told.out.endswith("\nFAIL: 1 of 1 failed\n")
    assert "healed_in_time" in told.out
    assert f"BROKEN; to replay: python -m tests.world --seed {SEED} --members 3 --without crash,loss\n" in told.out


@pytest.mark.parametrize(("options", "told"), [
    (["--metadata", "--cold"], "--seed and --runs alone"), (["--metadata", "--sealed"], "--seed and --runs alone"),
    (["--metadata", "--json"], "--seed and --runs alone"), (["--whole", "join", "--sealed"], "--whole goes with"),
])  # fmt: skip
def test_options_that_would_be_passed_over(run, options, told):
    """Options that would be ignored are refused."""
    refused = run("--seed", SEED, *options)
    assert (refused.status, refused.out) == (2, "")
    assert told in refused.err


def test_an_unknown_fault(run):
    """The error lists the known faults."""
    told = run("--seed", SEED, "--without", "sunshine")
    assert told.status == 2
    assert "sunshine" in told.err
    assert FAULTS[0] in told.err


def test_faults_are_drawn():
    """Some seeds draw no fault, and each fault is drawn by a seed."""
    found = [drawn(Streams(seed)["scenario"]) for seed in range(200)]
    assert frozenset() in found
    assert frozenset().union(*found) == set(FAULTS)
