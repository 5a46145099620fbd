"""A node that serves datasets in virtual time: reads during restarts, crashes and an upgrade."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.errors import GossipKVError
from tests.world.datasets.contents import DATABASE
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.sharing import SharedDatabase
from tests.world.nodes.whole_cluster import USUAL, Violation, simulate, simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

from tests.simulation.one_node import CONFIG, KEYS, MANY, put, serves

SHRINKS = replace(CONFIG, min_ratio=500)


async def read(cluster: SimulatedCluster, machine: NodeMachine, versions: list[str], answers: list[str]) -> None:
    """Read for ever; record the answers, which never get older."""
    while True:
        await trio.sleep(cluster.chance.random())
        try:
            value = await cluster.ask(machine, "get", "db", f"k{cluster.chance.randrange(KEYS)}")
        except GossipKVError:
            continue  # The node is down or has no version yet.
        assert isinstance(value, list)
        assert value[0] == value[1].encode()
        assert value[1] in versions
        if answers and answers[-1] > value[1]:
            raise Violation(f"{answers[-1]} and then {value[1]}")
        answers.append(value[1])


async def upgrades(cluster: SimulatedCluster) -> None:
    """Publish version after version while clients read, the process crashes around the disk and power is lost."""
    (machine,) = cluster.machines
    versions = [f"v{number}" for number in range(1, 6)]
    answers: list[str] = []
    put(machine, "v1")
    await machine.start()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(read, cluster, machine, versions, answers)
        for version in versions:
            if version != "v1":
                put(machine, version)
            if cluster.chance.random() < 0.7:
                action = cluster.chance.choice((Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER))
                at = cluster.chance.randrange(40)
                machine.strike(Fault(at, action, kinds=CHANGING), power=cluster.chance.random() < 0.5)
            await trio.sleep(cluster.chance.uniform(0, 20))
            if machine.runs:
                machine.tell(signal.SIGHUP)
            await trio.sleep(cluster.chance.uniform(0, 2))
            machine.strike()
            if not machine.runs:
                await machine.start()
            await serves(cluster, machine, version)
            await trio.sleep(5)
            if cluster.chance.random() < 0.5:
                machine.lose_power()
                await machine.start()
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert answers[-1] == versions[-1]
    await machine.stop()


@pytest.mark.parametrize("seed", range(20 if MANY else 2))
def test_answers_never_go_back(seed: int) -> None:
    """Answers never go back to an older version, whatever crashes, and the newest is served in the end."""
    first = simulate(upgrades, seed, machines=1, config=CONFIG)
    if MANY:
        assert simulate(upgrades, seed, machines=1, config=CONFIG).trace == first.trace


async def memory_comes_and_goes(cluster: SimulatedCluster) -> None:
    """Switch versions while clients read and the available memory changes."""
    (machine,) = cluster.machines
    answers: list[str] = []

    async def resident(expected: str, *, paged: bool) -> None:
        async def holds() -> bool:
            info, status = await cluster.ask(machine, "info"), await cluster.ask(machine, "status")
            assert isinstance(info, dict)
            assert isinstance(status, dict)
            active = status["db"]["versions"][status["db"]["active"]]
            return (info["memory"]["resident"], active["paged"]) == (expected, paged)

        await cluster.until(holds, within_s=120)

    async with trio.open_nursery() as nursery:
        put(machine, "v1")
        machine.memory.room_bytes = 1 << 30
        await machine.start()
        nursery.start_soon(read, cluster, machine, ["v1", "v2"], answers)
        await serves(cluster, machine, "v1")
        await resident("all", paged=False)
        machine.memory.room_bytes = 0
        await resident("none", paged=True)
        put(machine, "v2")
        await serves(cluster, machine, "v2")
        await resident("none", paged=True)
        machine.memory.room_bytes = None
        await resident("all", paged=False)
        before = len(answers)
        await trio.sleep(30)
        assert len(answers) > before + 20
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(3 if MANY else 1))
def test_memory_that_comes_and_goes(seed: int) -> None:
    """A node adapts to the memory of its machine; answers are right and never get older."""
    simulate(memory_comes_and_goes, seed, machines=1, config=CONFIG)


@simulated(1, config=SHRINKS)
async def test_a_version_that_shrinks_is_withheld(cluster: SimulatedCluster) -> None:
    """The active version stays, also after power loss; a later version that is large enough follows."""
    (machine,) = cluster.machines
    why = {"v2": "the version has no records, and `allow_empty` is false"}
    why["v3"] = f"the version has 3 records, version v1 has {KEYS}, and `min_ratio` is 0.5"
    put(machine, "v1")
    await machine.start()
    await serves(cluster, machine, "v1")
    for version, keys in (("v2", 0), ("v3", 3)):
        put(machine, version, keys)

        async def withheld(version: str = version) -> bool:
            status = await cluster.ask(machine, "status", {"database": "db"})
            assert isinstance(status, dict)
            assert status["db"]["active"] == "v1"
            return status["db"]["versions"].get(version, {}).get("withheld") == why[version]

        await cluster.until(withheld, within_s=60)
        machine.lose_power()
        await machine.start()
        await cluster.until(withheld, within_s=60)
    put(machine, "v4", KEYS // 2)
    await serves(cluster, machine, "v4")


@simulated(3, seed=3, config=USUAL)  # Clocks are up to an hour apart; here the first one is 18 minutes ahead.
async def test_one_order_rolls_all_nodes_back(cluster: SimulatedCluster) -> None:
    """A hold also reaches nodes that were down, even if its receiver is gone; one release frees all nodes."""
    database = SharedDatabase(cluster, replication=3)
    one, two, three = cluster.machines
    for version in ("101", "102"):
        database.offer(version)
        if version == "101":
            await database.start()
        await database.until_active(version)
    three.kill()
    told = await cluster.ask(one, "hold", DATABASE, "101")
    assert told == {"database": DATABASE, "hold": "101", "before": None}
    await database.until_active("101", one, two)
    one.lose_power()
    await three.start()
    await database.until_active("101", two, three)
    assert (await database.status(three))["held_by"] == "cluster"
    await one.start()
    await database.until_active("101")
    await cluster.ask(three, "release", DATABASE)
    await database.until_active("102")
    for machine in cluster.machines:
        assert (await database.status(machine))["hold"] is None
    assert await refusal(cluster.ask(two, "hold", DATABASE, "109")) == "UNKNOWN_VERSION"
    assert await refusal(cluster.ask(two, "hold", "nosuch", "101")) == "UNKNOWN_DATABASE"
    assert await refusal(cluster.ask(two, "hold", DATABASE, "a/b")) == "BAD_REQUEST"


async def refusal(asked: Awaitable[Value]) -> str:
    """Return the code of the error that the request raises."""
    with pytest.raises(GossipKVError) as refused:
        await asked
    return refused.value.code
