"""Runs of registers find each fault that is planted in the core within a few seeds."""

from __future__ import annotations

from gossipkv.register import proposer
from tests.world.register.swarm import RegisterPlan

MAX_SEEDS = 60


def found():
    """Return the checkers that complain in the first failing run."""
    for seed in range(MAX_SEEDS):
        outcome = RegisterPlan(seed).run()
        if not outcome.is_right:
            assert f"python -m tests.world --seed {seed} --registers" in outcome.plan.command
            return {violation.checker for violation in outcome.violations}
    return set()


def test_what_cannot_heal_is_found(monkeypatch):
    """A proposer that never takes another ballot makes no progress after its first failure."""
    monkeypatch.setattr(proposer, "MIN_PAUSE_MS", 1 << 40)
    monkeypatch.setattr(proposer, "MAX_PAUSE_MS", 1 << 40)
    assert "healed_in_time" in found()
