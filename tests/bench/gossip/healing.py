"""How long after a partition of any length everybody shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.testing.checkers import shows_the_truth
from gossipkv.testing.history import History
from gossipkv.testing.members import formed
from gossipkv.testing.scheduler import MS, SECOND

if TYPE_CHECKING:
    from gossipkv.gossip.profile import Profile

PATIENCE_US = 600 * SECOND


def healed_s(seed: int, members: int, profile: Profile, time_us: int) -> float:
    """Two halves, each of which publishes and withdraws meanwhile."""
    world = formed(seed, members, profile)
    history = History(world)
    chance = world.streams["bench"]
    for machine in world.machines:
        history.publish(machine, "keys/before", machine.name.encode())
    world.run(5 * SECOND)
    sides = chance.sample(world.machines, members)
    world.network.partition(sides[: members // 2], sides[members // 2 :])
    world.run(time_us // 2)
    for machine in chance.sample(world.machines, members // 2):
        history.withdraw(machine, "keys/before")
        history.publish(machine, "keys/during", b"")
    world.run(time_us - time_us // 2)
    world.network.heal()
    began_us = world.now_us
    while shows_the_truth(world, history) is not None:
        assert world.now_us < began_us + PATIENCE_US, shows_the_truth(world, history)
        world.run(250 * MS)
    return (world.now_us - began_us) / SECOND
