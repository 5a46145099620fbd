"""The shrinker: of a run that fails, one with fewer faults that fails in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.testing import shrink
from gossipkv.testing.checkers import BrokenPromise
from gossipkv.testing.swarm import SwarmOutcome, SwarmPlan

if TYPE_CHECKING:
    import pytest

ALL = frozenset({"crash", "cut", "loss", "pause", "starve"})


def test_what_does_not_matter_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two faults together break one promise, a third alone another one: only the two stay, and the plan replays it."""

    def run(plan: SwarmPlan) -> SwarmOutcome:
        on = ALL - plan.without
        outcome = SwarmOutcome(plan, faults=on)
        if {"cut", "pause"} <= on:
            outcome.violations.append(BrokenPromise("ranks_never_fall", 1, "m0", "fell"))
        elif "loss" in on:
            outcome.violations.append(BrokenPromise("healed_in_time", 1, "m0", "late"))
        return outcome

    monkeypatch.setattr(shrink, "run", run)
    told: list[str] = []
    found = shrink.shrink(run(SwarmPlan(17)), told.append)
    assert found.faults == {"cut", "pause"}
    assert found.plan.command == "gossipkv simulate --seed 17 --without crash,loss,starve"
    assert told == ["fails without crash", "fails without loss", "fails without starve"]
