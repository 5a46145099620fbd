"""What each of the processes is to do, as a line between parent and child, and how they share the work."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from gossipkv.loadtest.plan import Distribution, Plan, Step, TlsFiles, TruthFile
from gossipkv.loadtest.plan_text import parse_target

SEEDS_APART: Final = 0x9E3779B97F4A7C15  # Of the processes, so that no two ask for the same keys.


@dataclass(frozen=True)
class Task:
    """A plan, the number of the process, the leash that it wears, and the token that it shows, here alone."""

    plan: Plan
    turn: int
    worn: int
    token: str | None = field(default=None, repr=False)

    def line(self) -> bytes:
        """The first line of a child's input."""
        said = {"plan": self.plan.to_json(), "turn": self.turn, "worn": self.worn, "token": self.token}
        return json.dumps(said).encode() + b"\n"


def task_of(line: bytes) -> Task:
    """What a line says."""
    document = json.loads(line)
    plan = document["plan"]
    plan["targets"] = tuple(parse_target(target) for target in plan["targets"])
    plan["truth"] = tuple(TruthFile(**truth) for truth in plan["truth"])
    plan["steps"] = tuple(Step(**step) for step in plan["steps"])
    plan["distribution"] = Distribution(**plan["distribution"])
    plan["tls"] = None if plan["tls"] is None else TlsFiles(**plan["tls"])
    return Task(Plan(**plan), document["turn"], document["worn"], document["token"])


def targets_of(plan: Plan, turn: int) -> list[int]:
    """Number of the target of each connection of a process: the processes take turns."""
    every = [number for number in range(len(plan.targets)) for _ in range(plan.connections)]
    return every[turn :: plan.processes]
