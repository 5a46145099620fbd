"""One run of whole nodes, by a name and two numbers, and the command that repeats it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from tests.world.cold_pages import pages_come_and_go
from tests.world.nodes.scenarios import SCENARIOS
from tests.world.nodes.whole_cluster import simulate

if TYPE_CHECKING:
    from tests.world.nodes.trace import Trace
    from tests.world.nodes.whole_cluster import WholeRun


class WholePlan(NamedTuple):
    scenario: str
    members: int
    seed: int
    cold: bool = False  # Pages of the served files come and go.

    @property
    def command(self) -> str:
        return (
            f"python -m tests.world --whole {self.scenario} --members {self.members} --seed {self.seed}"
            f"{' --cold' if self.cold else ''}"
        )


def run(plan: WholePlan, trace: Trace | None = None) -> WholeRun:
    """Run a plan; errors carry a note with the command that repeats it.  `trace` records the events."""
    try:
        with pages_come_and_go(plan.seed) if plan.cold else nullcontext():
            return simulate(SCENARIOS[plan.scenario], plan.seed, machines=plan.members, trace=trace)
    except Exception as error:
        error.add_note(f"to replay: {plan.command}")
        raise
