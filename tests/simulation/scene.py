"""Tools of aimed scenarios: some members, checkers, and the demands on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.effects import MemberChanged
from gossipkv.gossip.member import MemberState
from gossipkv.gossip.profile import LOCAL
from tests.world.gossip.checkers import Checkers, shows_the_truth
from tests.world.gossip.history import History
from tests.world.gossip.members import formed
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from tests.world.machine import Machine

LOOK_US = 250 * MS


class Scene:
    """Members, with checkers that look at them, and a list of DEAD verdicts about members that were up."""

    def __init__(self, members, profile=LOCAL, *, limits=None, seed=1):
        self.world = formed(seed, members, profile, limits=limits, settle_us=2 * SECOND)
        self.machines = self.world.machines
        self.chance = self.world.streams["scenario"]
        self.profile = profile
        self.history = History(self.world)
        self.checkers = Checkers(self.world, self.history, profile)
        self.wrong_dead = []
        self.world.on_told[MemberChanged].append(self._changed)

    def _changed(self, machine: Machine, effect: MemberChanged):
        member = effect.member
        up = {each.name: each.is_up and not each.is_leaving for each in self.machines}
        ended = self.history.epoch(member.name) > member.epoch
        if member.state is MemberState.DEAD and up.get(member.name) and not ended:
            self.wrong_dead.append(f"{machine.name} holds {member.name} for dead")

    def broken(self, checker, what):
        self.checkers.found(checker, None, what)

    def look_for(self, time_us, *, every_us=LOOK_US):
        end_us = self.world.now_us + time_us
        while self.world.now_us < end_us:
            self.world.run(min(every_us, end_us - self.world.now_us))
            self.checkers.look_at_all()

    def must_heal(self, within_us, checker="healed_in_time"):
        """Wait until all members show the truth, and return the duration in microseconds."""
        began_us = self.world.now_us
        wrong = "nobody looked"
        while wrong is not None and self.world.now_us <= began_us + within_us:
            self.look_for(LOOK_US)
            wrong = shows_the_truth(self.world, self.history)
        if wrong is not None:
            self.broken(checker, wrong)
        return self.world.now_us - began_us

    def must_not_kill(self):
        """Record a violation if a running member was called dead since the last call."""
        if self.wrong_dead:
            self.broken("the_healthy_live", "; ".join(self.wrong_dead[:3]))
        self.wrong_dead.clear()

    def publish_all(self, keys=3, size=0, place="keys"):
        for machine in self.machines:
            for key in range(keys):
                value = b"%s:%d:%d" % (machine.name.encode(), key, self.world.now_us)
                self.history.publish(machine, f"{place}/{key}", value + bytes(size))

    def result(self):
        """Return the broken promises, each with its first complaint."""
        told = {}
        for violation in self.checkers.violations:
            told.setdefault(violation.checker, str(violation))
        return told
