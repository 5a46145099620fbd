"""How a published change spreads: how long until everybody has it, and how many never get it by rumour alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.gossip import packets
from gossipkv.gossip.envelope import HEADER_BYTES
from gossipkv.testing.members import formed, gossip
from gossipkv.testing.scheduler import MS, SECOND

if TYPE_CHECKING:
    from gossipkv.gossip.profile import Profile
    from gossipkv.testing.machine import Machine
    from gossipkv.testing.world import World


@dataclass
class Spread:
    """Of each change."""

    everywhere_s: list[float] = field(default_factory=list)  # Only of those that got everywhere in time.
    pairs: int = 0  # (change, member) pairs, the publisher's aside,
    missing: int = 0  # and those of them that were still missing at the end of the time.


def is_exchange(packet: bytes) -> bool:
    """Whether it belongs to anti-entropy."""
    return len(packet) > HEADER_BYTES and packet[HEADER_BYTES] == packets.SYNC


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
    got: set[str] = set()
    last_us = [0]
    for machine in world.machines:
        _watch(world, machine, got, last_us)
    chance = world.streams["bench"]
    spread = Spread()
    for number in range(count):
        world.run(int(chance.random() * profile.gossip_interval_ms * MS))
        publisher = chance.choice(world.machines)
        got.clear()
        began_us = world.now_us
        gossip(publisher).tree.publish(f"changes/{number % 8}", b"%d" % number)
        publisher.after_input()
        world.run(wait_us)
        missing = members - len(got | {publisher.name})
        spread.pairs += members - 1
        spread.missing += missing
        if not missing:
            spread.everywhere_s.append((last_us[0] - began_us) / SECOND)
    return spread


def _watch(world: World, machine: Machine, got: set[str], last_us: list[int]) -> None:
    def woken() -> None:
        got.add(machine.name)
        last_us[0] = world.now_us
        watch.look()

    watch = gossip(machine).tree.watch("changes", woken)
