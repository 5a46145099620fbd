"""How long a crash goes unnoticed: to the first DEAD verdict, from there to everyone and until its keys are gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.gossip.effects import Changed
from gossipkv.gossip.member import State
from tests.world.gossip.members import formed, gossip, knows
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from gossipkv.gossip.profile import Profile
    from tests.world.machine import Machine
    from tests.world.world import World

PATIENCE_US = 120 * SECOND
SETTLE_US = 3 * SECOND


@dataclass
class Times:
    """Of each crash or departure, in seconds."""

    first: list[float] = field(default_factory=list)  # From the crash to the first verdict.
    spread: list[float] = field(default_factory=list)  # From there to the last one.
    gone: list[float] = field(default_factory=list)  # Likewise, until nobody shows its keys.


class _Watch:
    """Who knows of one end, since when."""

    def __init__(self, world: World, victim: Machine, state: State) -> None:
        self.world, self.victim, self.state = world, victim.name, state
        self.waiting = {machine.name for machine in world.machines if machine is not victim}
        self.showing = set(self.waiting)
        self.began_us = world.now_us
        self.first_us = self.last_us = self.gone_us = 0
        world.on_told[Changed].append(self.changed)

    def changed(self, machine: Machine, effect: Changed) -> None:
        if effect.member.name != self.victim or effect.member.state is not self.state:
            return
        now_us = self.world.now_us
        self.first_us = self.first_us or now_us
        self.last_us = now_us
        self.waiting.discard(machine.name)
        if not gossip(machine).tree.children(f"at/{self.victim}"):
            self.showing.discard(machine.name)
            self.gone_us = now_us

    def wait(self, times: Times) -> None:
        """Until everybody knows."""
        while self.waiting or self.showing:
            assert self.world.now_us < self.began_us + PATIENCE_US, f"{len(self.waiting)} never heard of it"
            self.world.run(100 * MS)
        self.world.on_told[Changed].remove(self.changed)
        times.first.append((self.first_us - self.began_us) / SECOND)
        times.spread.append((self.last_us - self.first_us) / SECOND)
        times.gone.append((self.gone_us - self.first_us) / SECOND)


def _published(machine: Machine) -> None:
    gossip(machine).tree.publish(f"at/{machine.name}/key", b"")
    machine.after_input()


def _come_back(world: World, victim: Machine) -> None:
    if victim.is_up:
        victim.crash()
    victim.start()
    world.run(SECOND)
    _published(victim)
    members = len(world.machines)
    while not all(knows(machine, members) for machine in world.machines):
        world.run(SECOND)
    world.run(SETTLE_US)


def ends(seed: int, members: int, profile: Profile, count: int, *, leave: bool = False) -> Times:
    """One member after the other crashes or leaves at a random moment, and comes back."""
    world = formed(seed, members, profile)
    for machine in world.machines:
        _published(machine)
    world.run(10 * SECOND)
    chance = world.streams["bench"]
    times = Times()
    for _ in range(count):
        world.run(int(chance.random() * profile.probe_interval_ms * MS))
        victim = chance.choice(world.machines)
        watch = _Watch(world, victim, State.LEFT if leave else State.DEAD)
        if leave:
            victim.leave()
        else:
            victim.crash()
        watch.wait(times)
        _come_back(world, victim)
    return times
