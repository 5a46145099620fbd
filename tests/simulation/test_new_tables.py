"""A new table has the replicas that its cluster can hold, even if members are late at the time of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.errors import Unavailable
from tests.world.nodes.phases import DETECTED_S, begin, shown, start_later
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

WANTED: dict[str, Value] = {"kind": "hash", "partitions": 4}
CREATED_S = 60.0
FILLED_S = 40.0


async def hosts(cluster: SimulatedCluster, machine: NodeMachine, table: str = "t") -> set[int]:
    """Return the numbers of AVAILABLE replicas that partitions have."""
    found = await cluster.ask(machine, "partition_map", table)
    return {
        sum(assignment["state"] == "AVAILABLE" for assignment in each["assignments"]) for each in found["partitions"]
    }


async def named(cluster: SimulatedCluster, machine: NodeMachine) -> list[str]:
    return sorted(node["node"] for node in (await cluster.ask(machine, "placement_nodes"))["nodes"])


async def reasons(cluster: SimulatedCluster, machine: NodeMachine) -> list[str]:
    return [reason["text"] for reason in (await cluster.ask(machine, "verdict"))["reasons"]]


@simulated(1)
async def test_a_single_member_wants_one_replica(cluster: SimulatedCluster) -> None:
    """The request does not wait, and an impossible number is refused with the nodes that are known."""
    (one,) = cluster.machines
    await one.start()
    made = await cluster.ask(one, "create_table", "t", WANTED)
    assert (made["replication"], made["replicas"], made["left_out"]) == (1, 1, [])
    with pytest.raises(Unavailable, match="needs 3 nodes, and 1 take part: no other nodes are known"):
        await cluster.ask(one, "create_table", "u", {**WANTED, "replication": 3, "timeout_ms": 5000})


@pytest.mark.parametrize("replication", [None, 3])
@pytest.mark.parametrize("asked", [0, 3])
@simulated(4)
async def test_a_table_is_made_right_after_the_start(
    cluster: SimulatedCluster, asked: int, replication: int | None
) -> None:
    """The request waits until the nodes have met each other."""
    first, *others = cluster.machines
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.start)
        for number, machine in enumerate(others):
            machine.config = machine.config.__class__(**{**vars(machine.config), "join": (first.address,)})
            nursery.start_soon(start_later, machine, 0.3 * number)
    machine = cluster.machines[asked]
    made = await cluster.ask(machine, "create_table", "t", {**WANTED, "replication": replication}, timeout_s=CREATED_S)
    assert (made["replication"], made["replicas"], made["left_out"]) == (3, 3, [])
    assert await hosts(cluster, machine) == {3}
    assert await named(cluster, machine) == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("away", ["frozen", "killed", "restarted"])
@simulated(3)
async def test_a_member_that_is_away_for_6_s_is_waited_for(cluster: SimulatedCluster, away: str) -> None:
    """A node that ends orderly has left, and still counts if it holds tables."""
    await begin(cluster)
    one, _, three = cluster.machines
    if away == "frozen":
        for other in cluster.machines[:2]:
            cluster.network.link(three.host, other.host).clogged_until_us = int((trio.current_time() + 6) * 1e6)
    elif away == "killed":
        three.kill()
    else:
        await cluster.ask(one, "create_table", "s", WANTED, timeout_s=CREATED_S)
        await three.stop()
    async with trio.open_nursery() as nursery:
        if away != "frozen":
            nursery.start_soon(start_later, three, 6)
        made = await cluster.ask(one, "create_table", "t", WANTED, timeout_s=CREATED_S)
    assert (made["replication"], made["replicas"], made["left_out"]) == (3, 3, [])


@simulated(3)
async def test_a_member_that_is_late_takes_part_afterwards(cluster: SimulatedCluster) -> None:
    """A table is made with a majority of its replicas; the status names the missing member, which is added later."""
    await begin(cluster)
    one, two, three = cluster.machines
    three.kill()
    await shown(cluster, three, "dead", DETECTED_S)
    made = await cluster.ask(two, "create_table", "t", WANTED, timeout_s=CREATED_S)
    assert (made["replication"], made["replicas"], made["left_out"]) == (3, 2, ["n3"])
    assert await named(cluster, one) == ["n1", "n2"]
    assert "t: 2 of 3 wanted replicas: n3 is missing" in await reasons(cluster, one)
    with pytest.raises(Unavailable, match="needs 3 nodes, and 2 take part: n3: "):
        await cluster.ask(one, "create_table", "u", {**WANTED, "replication": 3, "timeout_ms": 5000})
    two.kill()
    await shown(cluster, two, "dead", DETECTED_S)
    with pytest.raises(Unavailable, match=r"needs 2 nodes, and 1 take part: n2: .*; n3: |no quorum"):
        await cluster.ask(one, "create_table", "u", {**WANTED, "timeout_ms": 5000})
    await two.start()
    await three.start()

    async def is_whole() -> bool:
        return await hosts(cluster, one) == {3}

    await cluster.until(is_whole, within_s=FILLED_S)
    assert await named(cluster, one) == ["n1", "n2", "n3"]
