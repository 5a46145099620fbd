"""One run of members under faults, from one seed: first safety, then liveness.

The seed draws the number of members, their profile, the joins, the publications and the faults.  During the faults,
checkers look at every machine several times a second and after each change of a membership.  Then the world heals;
within `HEALED_US` every member must show the truth, and after that nothing may change.

    python -m tests.world --seed 17

replays seed 17; `--without loss,crash` switches faults off and leaves the others at their times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import TooLarge
from gossipkv.gossip.core import GossipLimits
from gossipkv.gossip.profile import LAN, LOCAL, TimingProfile
from gossipkv.gossip.tree.limits import TreeLimits
from tests.world import faults, transitions
from tests.world.gossip.checkers import Checkers, shows_the_truth
from tests.world.gossip.history import PLACES, History
from tests.world.gossip.keys import Keys
from tests.world.gossip.members import SETTLE_MS, claim, program
from tests.world.gossip.rig import rig_of
from tests.world.promises import Promises
from tests.world.scheduler import MS, SECOND
from tests.world.swarm import Outcome, Plan, look_for, run_phases
from tests.world.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.world.machine import Machine


KEYS = 12  # Few, so that keys are withdrawn and published again, and several owners share a key.
BURST = 40  # More than rumours carry one by one.
LARGE_BYTES = 700  # Two values of this size do not fit one packet.


@final
class Workload:
    def __init__(self, world: World, history: History, chance: Random) -> None:
        self._world = world
        self._history = history
        self._chance = chance
        self._period_s = chance.choice((0.2, 1.0, 5.0))
        self._serial = 0
        self.is_over = False

    def begin(self) -> None:
        self._again()

    def _again(self) -> None:
        def act() -> None:
            if not self.is_over:
                self.act()
                self._again()

        self._world.scheduler.after(int(self._chance.expovariate(1 / self._period_s) * SECOND), act)

    def act(self) -> None:
        chance = self._chance
        machine = chance.choice(self._world.machines)
        what = chance.choices(("burst", "clear", "withdraw", "publish"), (1, 1, 6, 12))[0]
        path = f"{chance.choice(PLACES)}/{chance.randrange(KEYS)}"
        value = chance.choices((b"", bytes(LARGE_BYTES)), (9, 1))[0]
        if not machine.is_up or machine.is_paused or machine.is_leaving:
            return
        if what == "burst":
            for number in range(BURST):
                self._publish(machine, f"{PLACES[0]}/burst{number}", b"")
        elif what == "clear":
            for old in self._history.published(machine):
                self._history.withdraw(machine, old)
        elif what == "withdraw":
            self._history.withdraw(machine, path)
        else:
            self._publish(machine, path, value)

    def _publish(self, machine: Machine, path: str, value: bytes) -> None:
        """Publish a value that was never used before, so that a view reveals its state."""
        self._serial += 1
        try:
            self._history.publish(machine, path, b"%d:" % self._serial + value)
        except TooLarge:
            self._world.struck["publish_refused"] += 1


LOOK_US = 400 * MS
SETTLED_US = 15 * SECOND  # The time in which nothing may change after all members showed the truth.
HEALED_US: Final[Mapping[str, int]] = {"lan": 35 * SECOND, "local": 35 * SECOND}
PROFILES: Final[Mapping[str, TimingProfile]] = {"lan": LAN, "local": LOCAL}
SMALL_BRANCH_BYTES = 8 << 10  # Replaces the protocol's limit in half of the runs; the workload exceeds it.
SMALLER_BYTES = (2 << 10, 6 << 10, 8 << 10)  # An owner's limits in those runs; each machine draws its own.
MAX_STEADY_BYTES_S = 1000  # Sent by each idle member; a storm would send far more.


@final
@dataclass(frozen=True)
class SwarmPlan(Plan):
    sealed: bool = False

    @property
    def options(self) -> list[str]:
        return ["--sealed"] if self.sealed else []

    def run(self) -> Outcome:
        return run(self)


def run(plan: SwarmPlan) -> Outcome:
    with transitions.counted() as taken:
        members = _Members(plan)
        outcome = run_phases(members, members.outcome)
    outcome.transitions = taken
    return outcome


@final
class _Members:
    look_us = LOOK_US

    def __init__(self, plan: SwarmPlan) -> None:
        self.world = world = World(plan.seed)
        chance = world.streams["scenario"]
        members = chance.choice((2, 3, 3, 4, 5, 6, 8))
        name = chance.choice(("lan", "local", "local"))
        on = faults.drawn(chance)
        self.safety_us = int(chance.uniform(30, 90) * SECOND)
        self.has_small_branches = world.streams["limits"].choice((True, False))
        self.outcome = Outcome(plan, name, plan.members or members, on - plan.without)
        self.profile, self.healed_us = PROFILES[name], HEALED_US[name]
        self.promises = Promises(world)
        self.history = History(world)
        self.checkers = Checkers(world, self.history, self.profile, self.promises)
        self.workload = Workload(world, self.history, world.streams["workload"])
        self.faults = faults.Faults(world, self.outcome.faults)
        self.keys = Keys(world, self.promises) if plan.sealed else None

    def begin(self) -> None:
        """Start all members within seconds; each later one is told one or two of the earlier ones."""
        chance = self.world.streams["joins"]
        sealing = None if self.keys is None else self.keys.sealing
        for number in range(self.outcome.members):
            start = program(self.profile, limits=self._limits(), sealing=sealing)
            machine = self.world.add(f"m{number}", start)
            rig_of(machine).claim = claim
            others = self.world.machines[:-1]
            told = chance.sample(others, min(len(others), chance.choice((1, 1, 2))))
            machine.joins += [other.address for other in told]
            at_us = int(chance.random() * 3 * SECOND) * (number > 0)
            self.world.scheduler.at(at_us, machine.start)
        self.workload.begin()
        if self.keys is not None:
            self.keys.begin()
        self.world.scheduler.after(int(chance.random() * 5 * SECOND), self.faults.begin)

    def _limits(self) -> GossipLimits:
        if not self.has_small_branches:
            return GossipLimits()
        most_bytes = self.world.streams["limits"].choice(SMALLER_BYTES)
        return GossipLimits(tree=TreeLimits(max_branch_bytes=most_bytes, protocol_branch_bytes=SMALL_BRANCH_BYTES))

    def look(self) -> None:
        self.checkers.look_at_all()

    def rest(self) -> None:
        self.workload.is_over = True

    def wrong(self) -> str | None:
        return shows_the_truth(self.world, self.history)

    def settle(self) -> None:
        """Check that nothing changes and little is sent once every member shows the truth."""
        look_for(self, 2 * SETTLE_MS * MS)  # The members still confirm their claims of places, which sends news.
        sent_bytes = self.world.network.sent_bytes
        settled_us = self.world.now_us
        look_for(self, SETTLED_US)
        wrong = self.wrong()
        if wrong is not None:
            self.promises.found("stays_healed", None, wrong)
        seconds = (self.world.now_us - settled_us) / SECOND
        rate = (self.world.network.sent_bytes - sent_bytes) / seconds / self.outcome.members
        if rate > MAX_STEADY_BYTES_S:
            self.promises.found("is_quiet_at_rest", None, f"each member sends {rate:.0f} B/s")
