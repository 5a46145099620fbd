"""One run of whole nodes, by a name and two numbers, and the command that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gossipkv.testing.nodes.cluster import simulate
from gossipkv.testing.nodes.scenarios import SCENARIOS

if TYPE_CHECKING:
    from gossipkv.testing.nodes.cluster import WholeRun
    from gossipkv.testing.nodes.trace import Trace


class WholePlan(NamedTuple):
    """What makes a run."""

    scenario: str
    members: int
    seed: int

    @property
    def command(self) -> str:
        """Repeats it."""
        return f"gossipkv simulate --whole {self.scenario} --members {self.members} --seed {self.seed}"


def run(plan: WholePlan, trace: Trace | None = None) -> WholeRun:
    """Runs it; whatever it raises says how to repeat it.  `trace` gets what happens."""
    try:
        return simulate(SCENARIOS[plan.scenario], plan.seed, machines=plan.members, trace=trace)
    except Exception as error:
        error.add_note(f"to replay: {plan.command}")
        raise
