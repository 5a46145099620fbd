"""How a published change spreads: how long until everybody has it, and how many never get it by rumour alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import HEADER_BYTES
from tests.world.gossip.members import formed, gossip
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from gossipkv.gossip.profile import Profile
    from tests.world.machine import Machine
    from tests.world.world import World


@dataclass
class Spread:
    """Of each change."""

    everywhere_s: list[float] = field(default_factory=list)  # Only of those that got everywhere in time.
    pairs: int = 0  # (change, member) pairs, the publisher's aside,
    missing: int = 0  # and those of them that were still missing at the end of the time.


def is_exchange(packet: bytes) -> bool:
    """Whether it belongs to anti-entropy."""
    return len(packet) > HEADER_BYTES and packet[HEADER_BYTES] == messages.SYNC


def changes(
    seed: int,
    members: int,
    profile: Profile,
    count: int,
    *,
    loss: float = 0.0,
    rumours_alone: bool = False,
    wait_us: int = 5 * SECOND,
) -> Spread:
    """Random members publish one key each, one after the other."""
    world = formed(seed, members, profile)
    world.network.usual.loss = loss
    world.network.changed()
    if rumours_alone:
        world.network.refuse(is_exchange)
    arrivals = Arrivals(world)
    chance = world.streams["bench"]
    spread = Spread()
    for number in range(count):
        world.run(int(chance.random() * profile.gossip_interval_ms * MS))
        publisher = chance.choice(world.machines)
        began_us = world.now_us
        arrivals.wait_for(publisher, b"%d" % number)
        gossip(publisher).tree.publish(f"changes/{number % 8}", arrivals.value)
        publisher.after_input()
        world.run(wait_us)
        spread.pairs += members - 1
        spread.missing += len(arrivals.waiting)
        if not arrivals.waiting:
            spread.everywhere_s.append((arrivals.last_us - began_us) / SECOND)
    return spread


class Arrivals:
    """Who does not have the last change yet, and when the last one got it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.value = b""
        self.waiting: set[str] = set()
        self.last_us = 0
        for machine in world.machines:
            self._watch(machine)

    def wait_for(self, publisher: Machine, value: bytes) -> None:
        """Look for this value from now on, everywhere but where it comes from."""
        self.value = value
        self.waiting = {machine.name for machine in self._world.machines if machine is not publisher}

    def _watch(self, machine: Machine) -> None:
        """Look at what a member has whenever it has something new; a suspect's keys are there as well."""

        def woken() -> None:
            watch.look()
            if machine.name in self.waiting:
                entries = gossip(machine).tree.entries("changes", now_ms=machine.now_ms, all=True)
                if any(entry.value == self.value for entry in entries):
                    self.waiting.discard(machine.name)
                    self.last_us = self._world.now_us

        watch = gossip(machine).tree.watch("changes", woken)
