"""How long after a partition of any length everybody shows the same, also of who crashed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.member import State
from tests.world.gossip.checkers import own, view
from tests.world.gossip.history import History
from tests.world.gossip.members import formed, gossip
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.profile import Profile
    from tests.world.machine import Machine
    from tests.world.world import World

PATIENCE_US = 600 * SECOND


def healed_s(seed: int, members: int, profile: Profile, time_us: int, *, crash: bool = False) -> float:
    """Two halves, each of which publishes and withdraws meanwhile; a member may crash at any moment of it, for good."""
    world = formed(seed, members, profile)
    history = History(world)
    chance = world.streams["bench"]
    for machine in world.machines:
        history.publish(machine, "keys/before", machine.name.encode())
    world.run(5 * SECOND)
    sides = chance.sample(world.machines, members)
    world.network.partition(sides[: members // 2], sides[members // 2 :])
    if crash:
        world.scheduler.after(int(chance.random() * time_us), chance.choice(sides).crash)
    world.run(time_us // 2)
    up = [machine for machine in world.machines if machine.is_up]
    for machine in chance.sample(up, members // 2):
        history.withdraw(machine, "keys/before")
        history.publish(machine, "keys/during", b"")
    world.run(time_us - time_us // 2)
    world.network.heal()
    began_us = world.now_us
    while (wrong := _wrong(world, history)) is not None:
        assert world.now_us < began_us + PATIENCE_US, f"seed {seed}: {wrong}"
        world.run(250 * MS)
    return (world.now_us - began_us) / SECOND


def _wrong(world: World, history: History) -> str | None:
    """What somebody shows that is not so; who is down is to be dead to all."""
    for machine in world.machines:
        if machine.is_up:
            shown = {member.name: member for member in gossip(machine).members.list()}
            entries = view(machine, everything=False)
            for other in world.machines:
                if not _is_true(shown.get(other.name), other):
                    return f"{machine.name} shows {shown.get(other.name)}"
                if entries.get(other.name, {}) != (history.published(other) if other.is_up else {}):
                    return f"{machine.name} does not show what {other.name} publishes"
    return None


def _is_true(member: Member | None, machine: Machine) -> bool:
    if machine.is_up:
        return member == own(machine)
    return member is not None and member.state is State.DEAD
