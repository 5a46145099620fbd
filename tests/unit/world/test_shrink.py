"""The shrinker finds a run with fewer faults that fails in the same way."""

from __future__ import annotations

from dataclasses import dataclass

from tests.world.promises import BrokenPromise
from tests.world.shrink import shrink
from tests.world.swarm import Outcome, Plan

ALL = frozenset({"crash", "cut", "loss", "pause", "starve"})


@dataclass(frozen=True)
class Two(Plan):
    """Two faults together break one promise; a third fault alone breaks another."""

    def run(self) -> Outcome:
        """Break a promise as the active faults alone determine."""
        on = ALL - self.without
        outcome = Outcome(self, faults=on)
        if {"cut", "pause"} <= on:
            outcome.violations.append(BrokenPromise("ranks_never_fall", 1, "m0", "fell"))
        elif "loss" in on:
            outcome.violations.append(BrokenPromise("healed_in_time", 1, "m0", "late"))
        return outcome


def test_what_does_not_matter_is_switched_off() -> None:
    """Only the two faults of the first promise stay, and the plan replays them."""
    told: list[str] = []
    found = shrink(Two(17).run(), told.append)
    assert found.faults == {"cut", "pause"}
    assert found.plan.command == "python -m tests.world --seed 17 --without crash,loss,starve"
    assert told == ["fails without crash", "fails without loss", "fails without starve"]
