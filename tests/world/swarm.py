"""One run of a simulated world under drawn faults, for any kind of machines: first safety, then liveness.

A *plan* describes the run; its seed decides everything else.  A plan makes a *subject*: a world, users, faults,
checkers. During the faults, the checkers look again and again.  Then the world heals, the users rest, and within a
bound all promises must hold; and continue to hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.world.scheduler import SECOND

if TYPE_CHECKING:
    from tests.world.faults import Faults
    from tests.world.promises import BrokenPromise, Promises
    from tests.world.world import World


@dataclass(frozen=True)
class Plan(ABC):
    """A description of a run; each kind of world has its own."""

    seed: int
    without: frozenset[str] = frozenset()  # Faults that are switched off.
    members: int | None = None  # The number of members; None: the seed decides.

    @property
    def options(self) -> list[str]:
        return []

    @property
    def command(self) -> str:
        words = [f"python -m tests.world --seed {self.seed}"]
        if self.members is not None:
            words.append(f"--members {self.members}")
        if self.without:
            words.append(f"--without {','.join(sorted(self.without))}")
        return " ".join([*words, *self.options])

    @abstractmethod
    def run(self) -> Outcome:
        """Run the plan."""


@dataclass
class Outcome:
    plan: Plan
    profile: str = ""  # A word for the drawn profile.
    members: int = 0
    faults: frozenset[str] = frozenset()
    trace: str = ""
    struck: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    violations: list[BrokenPromise] = field(default_factory=list)
    healed_s: float | None = None  # The seconds from the end of the faults until all was right.
    virtual_s: float = 0.0

    @property
    def is_right(self) -> bool:
        return not self.violations

    @property
    def complaint(self) -> str:
        """The first violation, and the command that replays it."""
        return "\n    ".join([f"to replay: {self.plan.command}", *map(str, self.violations[:1])])


class Subject(Protocol):
    """The world, users, faults and checkers that a plan makes."""

    world: World
    faults: Faults
    promises: Promises
    safety_us: int  # The duration of the faults.
    healed_us: int  # The bound for healing.
    look_us: int  # The time between two looks.

    def begin(self) -> None:
        """Start everything; the faults follow later."""

    def look(self) -> None:
        """Run the checkers."""

    def rest(self) -> None:
        """Stop the users: the faults are over."""

    def wrong(self) -> str | None:
        """Return the first condition that does not hold yet; None: all hold."""

    def settle(self) -> None:
        """Check the promises that must hold once all is right."""


def run_phases(subject: Subject, outcome: Outcome) -> Outcome:
    world = subject.world
    subject.begin()
    look_for(subject, subject.safety_us)
    subject.faults.end()
    subject.rest()
    outcome.healed_s = _heal(subject)
    if outcome.healed_s is not None:
        subject.settle()
    outcome.trace, outcome.struck = world.trace, world.struck
    outcome.violations, outcome.virtual_s = subject.promises.violations, world.now_us / SECOND
    return outcome


def look_for(subject: Subject, time_us: int) -> None:
    world = subject.world
    end_us = world.now_us + time_us
    while world.now_us < end_us:
        world.run(subject.look_us)
        subject.look()


def _heal(subject: Subject) -> float | None:
    """Run until all is right; return the seconds that took, or None if the bound was exceeded."""
    world = subject.world
    began_us = world.now_us
    wrong: str | None = "nobody looked"
    while wrong is not None:
        if world.now_us > began_us + subject.healed_us:
            subject.promises.found("healed_in_time", None, wrong)
            return None
        look_for(subject, subject.look_us)
        wrong = subject.wrong()
    return (world.now_us - began_us) / SECOND
