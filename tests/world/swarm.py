"""One run of a simulated world under drawn faults, whatever runs on its machines: first safety, then liveness.

A *plan* says what is run; everything that it does not say comes from its seed.  A *subject* is what it makes: a world,
users, faults, checkers.  While the faults strike, the checkers look again and again.  Then the world heals, the users
rest, and within a bound all must be right; and stay so.
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
    """What is run; each kind of world has its own."""

    seed: int
    without: frozenset[str] = frozenset()  # Faults that are switched off.
    members: int | None = None  # How many; None: the seed says.

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
        """One run, from its beginning to its end."""


@dataclass
class Outcome:
    """What came of a plan."""

    plan: Plan
    profile: str = ""  # A word for what the seed has drawn.
    members: int = 0
    faults: frozenset[str] = frozenset()
    trace: str = ""
    struck: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    violations: list[BrokenPromise] = field(default_factory=list)
    healed_s: float | None = None  # How long after the end of the faults all was right.
    virtual_s: float = 0.0

    @property
    def is_right(self) -> bool:
        return not self.violations

    @property
    def complaint(self) -> str:
        """What was broken first, and how to see it again."""
        return "\n    ".join([f"to replay: {self.plan.command}", *map(str, self.violations[:1])])


class Subject(Protocol):
    """What a plan makes."""

    world: World
    faults: Faults
    promises: Promises
    safety_us: int  # How long anything may strike.
    healed_us: int  # Within which all must be right again.
    look_us: int  # Between two looks.

    def begin(self) -> None:
        """Set everything going; the faults as well, by and by."""

    def look(self) -> None:
        """Have the checkers look."""

    def rest(self) -> None:
        """Have the users do nothing any more: the faults are over."""

    def wrong(self) -> str | None:
        """Say what is not right yet; None: nothing."""

    def settle(self) -> None:
        """All is right: demand what must hold from now on."""


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
    """Let time pass until all is right; how many seconds that took, None: more than it may."""
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
