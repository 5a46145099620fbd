"""Parts of the scenarios of whole nodes: begin, wait until all is well, strike, mend.

The bounds are those of the LAN profile with some room; the heap simulation measures them exactly.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.address import DEFAULT_PORT, Address
from gossipkv.errors import GossipKVError
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes import views

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

JOINED_S: Final = 20.0
DETECTED_S: Final = 45.0
BACK_S: Final = 20.0
BLACKOUT_S: Final = 30.0
TWINS_S: Final = 30.0
HEALED_S: Final = 35.0  # The promise after any partition.
LEFT_S: Final = 1.5  # The promise after SIGTERM.
REFUSED_S: Final = 60.0
SHOWN_S: Final = 2.0  # The time until all show a change; it includes the reader's own.

CRASHES: Final = (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER)
EVEN: Final = (True, False)

_NAME: Final = "cluster.example"


@contextlib.asynccontextmanager
async def watched(
    cluster: SimulatedCluster, *, but: NodeMachine | None = None, calm: bool = False
) -> AsyncIterator[trio.Nursery]:
    """Start all nodes except `but`; until the block ends, a task checks their views.

    `calm`: no node has a reason to call another dead.
    """
    async with trio.open_nursery() as nursery:
        looks = views.Observer(cluster)
        nursery.start_soon(looks.run)
        await begin(cluster, but)
        looks.calm = calm
        yield nursery
        nursery.cancel_scope.cancel()


async def begin(cluster: SimulatedCluster, but: NodeMachine | None = None) -> None:
    """Start all nodes except `but` at about the same time; they join by addresses or by a name."""
    chance = cluster.chance
    machines = [machine for machine in cluster.machines if machine is not but]
    cluster.network.names[_NAME] = tuple(machine.host for machine in machines)
    by_name = chance.choice(EVEN)
    for number, machine in enumerate(machines[1:], start=1):
        seed = Address(_NAME, DEFAULT_PORT) if by_name else chance.choice(machines[:number]).address
        machine.config = replace(machine.config, join=(seed,))
    spread_s = chance.choice((0.0, 0.1, 3.0))
    async with trio.open_nursery() as nursery:
        for machine in machines:
            nursery.start_soon(start_later, machine, chance.uniform(0, spread_s))
    await settle(cluster, JOINED_S)


async def refused(cluster: SimulatedCluster, machine: NodeMachine, method: str, *params: Value) -> GossipKVError:
    """Return the error of a question that must fail.  Raises AssertionError if it succeeds."""
    try:
        told = await cluster.ask(machine, method, *params, timeout_s=REFUSED_S)
    except GossipKVError as error:
        return error
    raise AssertionError(f"{method}{params} was answered with {told!r}")


async def settle(cluster: SimulatedCluster, within_s: float) -> float:
    """Wait until all running nodes show the truth; return the seconds that took."""

    async def holds() -> bool:
        return await views.agree(cluster)

    return await cluster.until(holds, within_s=within_s)


async def shown(cluster: SimulatedCluster, who: NodeMachine, state: str, within_s: float) -> float:
    """Wait until all other running nodes show a member in this state; return the seconds that took."""

    async def holds() -> bool:
        for machine in cluster.machines:
            if machine.runs and machine is not who:
                seen = (await views.members(cluster, machine)).get(who.name)
                if seen is None or seen.state != state:
                    return False
        return True

    return await cluster.until(holds, within_s=within_s, every_s=0.1)


async def start_later(machine: NodeMachine, delay_s: float) -> None:
    await trio.sleep(delay_s)
    await machine.start()


async def mend(cluster: SimulatedCluster) -> None:
    """End all faults, and wait until the cluster has settled."""
    cluster.network.heal()
    for machine in cluster.machines:
        machine.strike()
        if not machine.runs:
            await machine.start()
    await settle(cluster, HEALED_S)


async def strike_one(cluster: SimulatedCluster) -> None:
    """Strike one random fault; a machine that has no process to suffer is started instead."""
    chance, machine = cluster.chance, cluster.chance.choice(cluster.machines)
    fault = chance.choice(("kill", "power", "crash", "cut", "clog", "heal", "leave"))
    if fault in {"heal", "cut", "clog"} or (machine.runs and fault != "crash"):  # A crash is counted when it comes.
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
        action = chance.choice(CRASHES)
        machine.strike(Fault(chance.randrange(10), action, kinds=CHANGING), power=chance.choice(EVEN))
    else:
        await machine.stop()
