"""Whole nodes that come and go: they join, leave, crash, lose power or disks, one by one or all at once."""

from __future__ import annotations

import contextlib
import errno
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.errors import NotReady, Unavailable
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes import views
from tests.world.nodes.phases import (
    BACK_S,
    BLACKOUT_S,
    CRASHES,
    DETECTED_S,
    EVEN,
    LEFT_S,
    settle,
    shown,
    start_later,
    watched,
)
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

ASK_EVERY_S: Final = 0.01
SUSPECTED_S: Final = 2.25  # A probe that was under way when the connection broke, and the next one.
MAX_UNANSWERED: Final = 2  # Requests that were on their way when the node stopped accepting.


async def join(cluster: SimulatedCluster) -> None:
    """All nodes find each other and claim different places; then nothing changes, and no node is called dead."""
    async with watched(cluster, calm=True):
        epochs = [await views.epoch(cluster, machine) for machine in cluster.machines]
        await trio.sleep(60)
        if not await views.agree(cluster):
            raise Violation("they agreed, and do not any more although nothing happened")
        if epochs != [await views.epoch(cluster, machine) for machine in cluster.machines]:
            raise Violation("somebody has taken another epoch although nothing happened")


async def leave(cluster: SimulatedCluster) -> None:
    """Nodes that stop at SIGTERM are known to have left at once, and their entries vanish; they may come back."""
    chance = cluster.chance
    async with watched(cluster, calm=True) as nursery:
        for leaver in chance.sample(cluster.machines, len(cluster.machines) // 2):
            nursery.start_soon(_stop_while_asked, cluster, leaver)
            await shown(cluster, leaver, "left", LEFT_S)
            await leaver.ended()
            await settle(cluster, LEFT_S)
            if chance.choice(EVEN):
                await leaver.start()
                await settle(cluster, BACK_S)


async def _stop_while_asked(cluster: SimulatedCluster, leaver: NodeMachine) -> None:
    """Requests during a node's stop are answered; then the connection ends without a reset."""
    async with cluster.connected(leaver) as connection, trio.open_nursery() as nursery:

        async def send() -> None:
            with contextlib.suppress(OSError):
                while True:
                    await connection.send("refresh")
                    await trio.sleep(ASK_EVERY_S)

        nursery.start_soon(send)
        await trio.sleep(10 * ASK_EVERY_S)
        leaver.tell(signal.SIGTERM)
        answered = 0
        try:
            while True:
                await connection.read()
                answered += 1
        except Unavailable:  # The end of the connection.
            unanswered = connection.sent - answered
        except OSError as error:
            raise Violation(f"{leaver.name} cut a client off: {error.strerror}") from error
        nursery.cancel_scope.cancel()
    if unanswered > MAX_UNANSWERED:
        raise Violation(f"{leaver.name} did not answer {unanswered} requests before it ended")
    await leaver.ended()


async def death(cluster: SimulatedCluster) -> None:
    """A peer with a connection to a killed process probes it next, out of turn, and suspects it soon."""
    async with watched(cluster):
        for _ in range(3):
            await trio.sleep(cluster.chance.uniform(5, 15))
            victim = cluster.chance.choice(cluster.machines[1:])
            victim.kill()
            await shown(cluster, victim, "suspect", SUSPECTED_S)
            await victim.start()
            await settle(cluster, BACK_S)


async def restarts(cluster: SimulatedCluster) -> None:
    """Nodes that crash, or lose power or their disks, are missed and come back."""
    chance = cluster.chance
    async with watched(cluster):
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
            if chance.choice(EVEN):
                await shown(cluster, victim, "dead", DETECTED_S)
                await settle(cluster, BACK_S)
            else:
                await trio.sleep(chance.uniform(0, 5))
            if how == "disk" and not victim.config.join:
                # The first node has an empty disk and is told to join no other.
                other = next(machine for machine in cluster.machines if machine is not victim)
                victim.config = replace(victim.config, join=(other.address,))
            await victim.start()
            await settle(cluster, BACK_S)
            after = await views.epoch(cluster, victim)
            if after <= before:
                raise Violation(f"{victim.name} came back with epoch {after} after {before}")


async def blackout(cluster: SimulatedCluster) -> None:
    """All nodes stop at once, and reunite from their disks alone, without joins."""
    chance = cluster.chance
    async with watched(cluster):
        for _ in range(2):
            await trio.sleep(chance.uniform(5, 30))
            how = chance.choice(("kill", "power", "leave"))
            cluster.struck[how] += 1
            async with trio.open_nursery() as going:
                for machine in cluster.machines:
                    if how == "leave":
                        going.start_soon(machine.stop)
                    elif how == "kill":
                        machine.kill()
                    else:
                        machine.lose_power()
            spread_s = chance.choice((0.0, 5.0))
            async with trio.open_nursery() as coming:
                for machine in cluster.machines:
                    machine.config = replace(machine.config, join=())
                    coming.start_soon(start_later, machine, chance.uniform(0, spread_s))
            await settle(cluster, BLACKOUT_S)


async def crashes(cluster: SimulatedCluster) -> None:
    """A node that crashes around disk steps of its starts comes back as itself in the end."""
    chance = cluster.chance
    async with watched(cluster):
        victim = chance.choice(cluster.machines[1:])
        epochs = [await views.epoch(cluster, victim)]
        for _ in range(4):
            victim.kill()
            action = chance.choice(CRASHES)
            victim.strike(Fault(chance.randrange(25), action, kinds=CHANGING), power=chance.choice(EVEN))
            await victim.start()
            victim.strike()
            if not victim.runs:
                await victim.start()
            await settle(cluster, BACK_S)
            epochs.append(await views.epoch(cluster, victim))
        if epochs != sorted(set(epochs)):
            raise Violation(f"the epochs of {victim.name} were {epochs}")


async def read_only(cluster: SimulatedCluster) -> None:
    """A node that starts with an unwritable disk hears others and stays silent, until the disk can be written."""
    chance = cluster.chance
    async with watched(cluster):
        victim = chance.choice(cluster.machines[1:])
        before = await views.epoch(cluster, victim)
        victim.kill()
        error = chance.choice((errno.EROFS, errno.ENOSPC, errno.EIO))
        victim.strike(Fault(0, Action.FAIL, kinds=CHANGING, error=error, lasting=True))
        await trio.sleep(chance.uniform(0, 5))
        await victim.start()
        if not victim.runs:
            raise Violation(f"{victim.name} does not start: {victim.error}")

        async def hears() -> bool:
            """The node shows itself silent, and all others alive."""
            seen = await views.members(cluster, victim)
            return {name for name, one in seen.items() if one.state == "alive"} == {
                other.name for other in cluster.machines if other is not victim
            } and seen[victim.name].state == "silent"

        await cluster.until(hears, within_s=BACK_S)
        await shown(cluster, victim, "dead", DETECTED_S)
        await trio.sleep(chance.uniform(0, 60))
        with contextlib.suppress(NotReady):
            seen = await cluster.ask(victim, "refresh", None)
            raise Violation(f"{victim.name} looks again: {seen!r}")
        await shown(cluster, victim, "dead", 0)
        await cluster.until(hears, within_s=0)
        victim.strike()
        await settle(cluster, BACK_S)
        after = await views.epoch(cluster, victim)
        if after <= before:
            raise Violation(f"{victim.name} speaks in epoch {after} after {before}")
