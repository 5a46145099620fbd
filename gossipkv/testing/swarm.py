"""One run of members under faults, all of it from one seed: first safety, then liveness.

The seed draws how many members there are, their profile, how they come together, what they publish, and which faults
strike.  While they do, checkers look at every machine several times a second and after each change of a membership.
Then the world heals, and within `HEALED_MS` everybody must show the truth; and after that nothing more may change.

    gossipkv simulate --seed 17

replays seed 17; `--without loss,crash` switches faults off and leaves the others at their times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gossipkv.gossip.core import Limits
from gossipkv.gossip.profile import LAN, LOCAL, Profile
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.testing import faults, transitions
from gossipkv.testing.checkers import Checkers, shows_the_truth
from gossipkv.testing.history import History
from gossipkv.testing.keys import Keys
from gossipkv.testing.members import SETTLE_MS, claim, program
from gossipkv.testing.scheduler import MS, SECOND
from gossipkv.testing.workload import Workload
from gossipkv.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.testing.checkers import BrokenPromise

LOOK_US = 400 * MS
SETTLED_US = 15 * SECOND  # How long nothing may change once everybody showed the truth.
HEALED_US: Final[Mapping[str, int]] = {"lan": 35 * SECOND, "local": 35 * SECOND}
PROFILES: Final[Mapping[str, Profile]] = {"lan": LAN, "local": LOCAL}
SMALL_BRANCH_BYTES = 8 << 10  # In half of the runs, in place of the protocol's: the workload goes beyond it.
SMALLER_BYTES = (2 << 10, 6 << 10, 8 << 10)  # What an owner may publish then, each machine its own.
MOST_STEADY_BYTES_S = 1000  # Sent by each member when nothing happens: a storm would be far more.


@dataclass(frozen=True)
class SwarmPlan:
    """What is run; everything that is not here comes from the seed."""

    seed: int
    without: frozenset[str] = frozenset()
    members: int | None = None
    sealed: bool = False

    @property
    def command(self) -> str:
        """What replays it."""
        words = [f"gossipkv simulate --seed {self.seed}"]
        if self.members is not None:
            words.append(f"--members {self.members}")
        if self.without:
            words.append(f"--without {','.join(sorted(self.without))}")
        if self.sealed:
            words.append("--sealed")
        return " ".join(words)


@dataclass
class SwarmOutcome:
    """What came of it."""

    plan: SwarmPlan
    profile: str = ""
    members: int = 0
    faults: frozenset[str] = frozenset()
    trace: str = ""
    struck: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    violations: list[BrokenPromise] = field(default_factory=list)
    healed_s: float | None = None  # How long after the end of the faults everybody showed the truth.
    virtual_s: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether no promise was broken."""
        return not self.violations


def run(plan: SwarmPlan) -> SwarmOutcome:
    """One run, from its beginning to its end."""
    with transitions.counted() as taken:
        outcome = _Run(plan).run()
    outcome.transitions = taken
    return outcome


class _Run:
    def __init__(self, plan: SwarmPlan) -> None:
        self.world = world = World(plan.seed)
        chance = world.streams["scenario"]
        members = chance.choice((2, 3, 3, 4, 5, 6, 8))
        name = chance.choice(("lan", "local", "local"))
        on = faults.drawn(chance)
        self.safety_us = int(chance.uniform(30, 90) * SECOND)
        self.has_small_branches = world.streams["limits"].choice((True, False))
        self.outcome = SwarmOutcome(plan, name, plan.members or members, on - plan.without)
        self.profile = PROFILES[name]
        self.history = History(world)
        self.checkers = Checkers(world, self.history, self.profile)
        self.workload = Workload(world, self.history, world.streams["workload"])
        self.faults = faults.Faults(world, self.outcome.faults)
        self.keys = Keys(world, self.checkers) if plan.sealed else None

    def run(self) -> SwarmOutcome:
        """Safety, healing, liveness."""
        self._begin()
        self._look_for(self.safety_us)
        self.faults.end()
        self.workload.is_over = True
        self._heal()
        outcome = self.outcome
        outcome.trace, outcome.struck = self.world.trace, self.world.struck
        outcome.violations, outcome.virtual_s = self.checkers.violations, self.world.now_us / SECOND
        return outcome

    def _begin(self) -> None:
        """Start everybody within seconds; who comes later is told one or two of those before."""
        chance = self.world.streams["joins"]
        sealing = None if self.keys is None else self.keys.sealing
        for number in range(self.outcome.members):
            start = program(self.profile, limits=self._limits(), sealing=sealing)
            machine = self.world.add(f"m{number}", start)
            machine.claim = claim
            others = self.world.machines[:-1]
            told = chance.sample(others, min(len(others), chance.choice((1, 1, 2))))
            machine.joins += [other.address for other in told]
            at_us = int(chance.random() * 3 * SECOND) * (number > 0)
            self.world.scheduler.at(at_us, machine.start)
        self.workload.begin()
        if self.keys is not None:
            self.keys.begin()
        self.world.scheduler.after(int(chance.random() * 5 * SECOND), self.faults.begin)

    def _limits(self) -> Limits:
        if not self.has_small_branches:
            return Limits()
        most_bytes = self.world.streams["limits"].choice(SMALLER_BYTES)
        return Limits(tree=TreeLimits(max_branch_bytes=most_bytes, protocol_branch_bytes=SMALL_BRANCH_BYTES))

    def _look_for(self, time_us: int) -> None:
        end_us = self.world.now_us + time_us
        while self.world.now_us < end_us:
            self.world.run(LOOK_US)
            self.checkers.look_at_all()

    def _heal(self) -> None:
        """Everybody shows the truth within the bound, and then nothing changes."""
        began_us = self.world.now_us
        wrong: str | None = "nobody looked"
        while wrong is not None:
            if self.world.now_us > began_us + HEALED_US[self.outcome.profile]:
                self.checkers.found("healed_in_time", None, wrong)
                return
            self._look_for(LOOK_US)
            wrong = shows_the_truth(self.world, self.history)
        self.outcome.healed_s = (self.world.now_us - began_us) / SECOND
        self._settle()

    def _settle(self) -> None:
        self._look_for(2 * SETTLE_MS * MS)  # Claims of places are confirmed, which is news.
        sent_bytes = self.world.network.sent_bytes
        settled_us = self.world.now_us
        self._look_for(SETTLED_US)
        wrong = shows_the_truth(self.world, self.history)
        if wrong is not None:
            self.checkers.found("stays_healed", None, wrong)
        seconds = (self.world.now_us - settled_us) / SECOND
        rate = (self.world.network.sent_bytes - sent_bytes) / seconds / self.outcome.members
        if rate > MOST_STEADY_BYTES_S:
            self.checkers.found("is_quiet_at_rest", None, f"each member sends {rate:.0f} B/s")


def without(plan: SwarmPlan, name: str) -> SwarmPlan:
    """A plan with one fault less."""
    return replace(plan, without=plan.without | {name})
