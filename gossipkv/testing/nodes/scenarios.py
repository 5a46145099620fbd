"""What whole nodes go through, by name; each scenario draws its details from the seed, and ends when all is well again.

A scenario that fails raises `Violation`, or an `AssertionError` when something did not come about in time.  The bounds
are those of the LAN profile with some room: what is measured exactly is measured in the heap simulation.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.address import DEFAULT_PORT, Address
from gossipkv.testing.faulty_files import CHANGING, Action, Fault
from gossipkv.testing.nodes import views
from gossipkv.testing.nodes.cluster import Violation
from gossipkv.testing.nodes.views import Looks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gossipkv.testing.nodes.cluster import Cluster
    from gossipkv.testing.nodes.machine import Machine

JOINED_S: Final = 20.0
DETECTED_S: Final = 45.0
BACK_S: Final = 20.0
HEALED_S: Final = 35.0  # What is promised after any partition.
LEFT_S: Final = 1.5  # Likewise, after SIGTERM.

_NAME: Final = "cluster.example"
_WAYS: Final = ((False, False), (False, False), (True, False), (False, True))  # Of a cut: one way; of datagrams only.


async def begin(cluster: Cluster) -> None:
    """All start at about the same time, and join each other by addresses or by a name."""
    chance, machines = cluster.chance, cluster.machines
    cluster.network.names[_NAME] = tuple(machine.host for machine in machines)
    by_name = chance.choice((True, False))
    for number, machine in enumerate(machines[1:], start=1):
        seed = Address(_NAME, DEFAULT_PORT) if by_name else chance.choice(machines[:number]).address
        machine.config = replace(machine.config, join=(seed,))
    spread_s = chance.choice((0.0, 0.1, 3.0))
    async with trio.open_nursery() as nursery:
        for machine in machines:
            nursery.start_soon(_start_later, machine, chance.uniform(0, spread_s))
    await settle(cluster, JOINED_S)


async def settle(cluster: Cluster, within_s: float) -> float:
    """Returns when all nodes that run show the same, which is the truth: after how many seconds."""

    async def holds() -> bool:
        """All show the truth."""
        return await views.agree(cluster)

    return await cluster.until(holds, within_s=within_s)


async def shown(cluster: Cluster, who: Machine, state: str, within_s: float) -> float:
    """Returns when all others that run show a member in this state."""

    async def holds() -> bool:
        """Everybody shows it so."""
        for machine in cluster.machines:
            if machine.runs and machine is not who:
                seen = (await views.members(cluster, machine)).get(who.name)
                if seen is None or seen.state != state:
                    return False
        return True

    return await cluster.until(holds, within_s=within_s, every_s=0.1)


async def _start_later(machine: Machine, delay_s: float) -> None:
    await trio.sleep(delay_s)
    await machine.start()


async def join(cluster: Cluster) -> None:
    """All find each other, claim places that differ, and nobody who runs is ever called dead."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster, calm=True).run)
        await begin(cluster)
        await trio.sleep(60)
        if not await views.agree(cluster):
            raise Violation("they agreed, and do not any more although nothing happened")
        nursery.cancel_scope.cancel()


async def restarts(cluster: Cluster) -> None:
    """Some crash, or lose power and what was not synced, or their disk; they are missed and come back."""
    chance = cluster.chance
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster).run)
        await begin(cluster)
        for _ in range(3):
            victim = chance.choice(cluster.machines)
            before = await views.epoch(cluster, victim)
            how = chance.choice(("kill", "power", "disk"))
            cluster.struck[how] += 1
            if how == "power":
                victim.lose_power()
            else:
                victim.kill()
            if how == "disk":
                victim.lose_disk()
            if chance.choice((True, False)):
                await shown(cluster, victim, "dead", DETECTED_S)
                await settle(cluster, BACK_S)
            else:
                await trio.sleep(chance.uniform(0, 5))
            if len(victim.config.join) == 0:  # The first one has others to join now.
                victim.config = replace(victim.config, join=(cluster.machines[-1].address,))
            await victim.start()
            await settle(cluster, BACK_S)
            after = await views.epoch(cluster, victim)
            if after <= before:
                raise Violation(f"{victim.name} came back with epoch {after} after {before}")
        nursery.cancel_scope.cancel()


async def crashes(cluster: Cluster) -> None:
    """A node crashes around the steps of its disk, as it starts; it starts again, in the end as itself."""
    chance = cluster.chance
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster).run)
        await begin(cluster)
        victim = chance.choice(cluster.machines[1:])
        epochs = [await views.epoch(cluster, victim)]
        for _ in range(4):
            victim.kill()
            action = chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
            victim.strike(Fault(chance.randrange(25), action, kinds=CHANGING), power=chance.choice((True, False)))
            await victim.start()
            victim.strike()
            if not victim.runs:
                cluster.struck["crash"] += 1
                await victim.start()
            await settle(cluster, BACK_S)
            epochs.append(await views.epoch(cluster, victim))
        if epochs != sorted(set(epochs)):
            raise Violation(f"the epochs of {victim.name} were {epochs}")
        nursery.cancel_scope.cancel()


async def partition(cluster: Cluster) -> None:
    """The network falls apart for a while; both sides go on alone, and are one again soon after it heals."""
    chance, machines = cluster.chance, list(cluster.machines)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster).run)
        await begin(cluster)
        chance.shuffle(machines)
        here = machines[: chance.randrange(1, len(machines))]
        there = [machine for machine in machines if machine not in here]
        one_way, datagrams_only = chance.choice(_WAYS)
        cluster.network.partition(
            [machine.host for machine in here],
            [machine.host for machine in there],
            one_way=one_way,
            datagrams_only=datagrams_only,
        )
        await trio.sleep(chance.choice((5.0, 60.0, 300.0)))
        if not one_way and not datagrams_only and trio.current_time() > 60 + JOINED_S:
            await _sides_go_on(cluster, here, there)
        cluster.network.heal()
        await settle(cluster, HEALED_S)
        nursery.cancel_scope.cancel()


async def _sides_go_on(cluster: Cluster, *sides: list[Machine]) -> None:
    """Each side shows itself alive and the other dead; whoever is alone says so."""
    for side in sides:
        names = {machine.name for machine in side}
        for machine in side:
            alive = {name for name, seen in (await views.members(cluster, machine)).items() if seen.state == "alive"}
            if alive != names:
                raise Violation(f"{machine.name} shows {sorted(alive)} alive, on the side {sorted(names)}")
            if await views.is_isolated(cluster, machine) != (len(side) == 1):
                raise Violation(f"{machine.name} is wrong about being isolated, with {len(side)} on its side")


async def leave(cluster: Cluster) -> None:
    """Some say good-bye at SIGTERM: everybody knows at once, what they published is gone; they may come back."""
    chance = cluster.chance
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster, calm=True).run)
        await begin(cluster)
        for leaver in chance.sample(cluster.machines, len(cluster.machines) // 2):
            nursery.start_soon(leaver.stop)
            await shown(cluster, leaver, "left", LEFT_S)
            await leaver.ended()
            await settle(cluster, LEFT_S)
            if chance.choice((True, False)):
                await leaver.start()
                await settle(cluster, BACK_S)
        nursery.cancel_scope.cancel()


async def storm(cluster: Cluster) -> None:
    """Faults of every kind at random moments for two minutes; then all is well again within the bound."""
    chance, network = cluster.chance, cluster.network
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Looks(cluster).run)
        await begin(cluster)
        for name in ("loss", "duplicate", "reorder", "corrupt", "heavy_delay"):
            if chance.choice((True, False)):
                setattr(network.usual, name, chance.uniform(0, 0.2))
        until_s = trio.current_time() + 120
        while trio.current_time() < until_s:
            await trio.sleep(chance.expovariate(0.2))
            await _strike(cluster)
        network.heal()
        for machine in cluster.machines:
            machine.strike()
            if not machine.runs:
                await machine.start()
        await settle(cluster, HEALED_S)
        nursery.cancel_scope.cancel()


async def _strike(cluster: Cluster) -> None:
    """One fault."""
    chance, machine = cluster.chance, cluster.chance.choice(cluster.machines)
    fault = chance.choice(("kill", "power", "crash", "cut", "clog", "heal", "leave"))
    cluster.struck[fault] += 1
    if fault == "heal":
        faults = replace(cluster.network.usual)
        cluster.network.heal()
        cluster.network.usual = faults
    elif fault == "cut":
        others = [other.host for other in cluster.machines if other is not machine]
        cluster.network.partition([machine.host], chance.sample(others, chance.randrange(1, len(others) + 1)))
    elif fault == "clog":
        until_us = int((trio.current_time() + chance.uniform(0, 20)) * 1e6)
        for other in cluster.machines:
            cluster.network.link(machine.host, other.host).clogged_until_us = until_us
    elif not machine.runs:
        await machine.start()
    elif fault == "kill":
        machine.kill()
    elif fault == "power":
        machine.lose_power()
    elif fault == "crash":
        action = chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
        machine.strike(Fault(chance.randrange(10), action, kinds=CHANGING), power=chance.choice((True, False)))
    else:
        await machine.stop()


SCENARIOS: Final[Mapping[str, Callable[[Cluster], Awaitable[None]]]] = MappingProxyType(
    {
        "join": join,
        "restarts": restarts,
        "crashes": crashes,
        "partition": partition,
        "leave": leave,
        "storm": storm,
    }
)
