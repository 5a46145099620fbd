"""Members to whom nothing happens: what they send, what a simulated hour costs, whom they wrongly call dead."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.gossip.effects import Changed
from gossipkv.gossip.member import State
from tests.bench.gossip.changes import is_exchange
from tests.world.gossip.members import formed
from tests.world.network import UDP_HEADER_BYTES
from tests.world.scheduler import HOUR, SECOND

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.profile import Profile
    from tests.world.machine import Machine
    from tests.world.world import World


@dataclass(frozen=True)
class Sent:
    """Bytes a member and second, headers included."""

    membership: float
    exchange: float

    @property
    def all(self) -> float:
        """Both."""
        return self.membership + self.exchange


def sent(seed: int, members: int, profile: Profile, time_us: int) -> Sent:
    """What each member sends at rest."""
    world = formed(seed, members, profile, settle_us=30 * SECOND)
    exchange = [0]

    def heard(_source: Machine, _to: Address, packet: bytes) -> None:
        if is_exchange(packet):
            exchange[0] += len(packet) + UDP_HEADER_BYTES

    world.network.tap(heard)
    before, calls = world.network.sent_bytes, world.network.call_bytes
    world.run(time_us)
    per = members * time_us / SECOND
    calls = world.network.call_bytes - calls
    return Sent((world.network.sent_bytes - before - exchange[0]) / per, (exchange[0] + calls) / per)


def node_hours(seed: int, members: int, profile: Profile, time_us: int, *, rounds: int) -> list[float]:
    """How many are simulated in a second of this processor, in each round."""
    world = formed(seed, members, profile)
    found = []
    for _ in range(rounds):
        before = time.process_time()
        world.run(time_us)
        found.append(members * time_us / HOUR / (time.process_time() - before))
    return found


class _Wrong:
    """Counts DEAD verdicts of healthy members about healthy ones; nobody crashes."""

    def __init__(self, world: World, ill: set[str]) -> None:
        self.ill = ill
        self.count = 0
        world.on_told[Changed].append(self.changed)

    def changed(self, machine: Machine, effect: Changed) -> None:
        if effect.member.state is State.DEAD and not {machine.name, effect.member.name} & self.ill:
            self.count += 1


def wrong_at_rest(seed: int, members: int, profile: Profile, time_us: int, *, loss: float) -> int:
    """DEAD verdicts of a long time in which only packets were lost."""
    world = formed(seed, members, profile)
    world.network.usual.loss = loss
    world.network.changed()
    wrong = _Wrong(world, set())
    world.run(time_us)
    return wrong.count


def wrong_when_starved(
    seed: int, members: int, profile: Profile, starved: int, *, starved_s: int, lifeguard: bool, time_s: int = 120
) -> int:
    """DEAD verdicts of healthy members about healthy ones while the I/O of some is starved all but one second."""
    world = formed(seed, members, replace(profile, lifeguard=lifeguard))
    chance = world.streams["bench"]
    ill = chance.sample(world.machines, starved)
    wrong = _Wrong(world, {machine.name for machine in ill})
    for machine in ill:
        _starve_again(world, machine, int(chance.random() * SECOND), starved_s)
    world.run(time_s * SECOND)
    return wrong.count


def _starve_again(world: World, machine: Machine, after_us: int, starved_s: int) -> None:
    def begin() -> None:
        end = machine.starve()
        world.scheduler.after(starved_s * SECOND, lambda: (end(), _starve_again(world, machine, SECOND, starved_s)))

    world.scheduler.after(after_us, begin)
