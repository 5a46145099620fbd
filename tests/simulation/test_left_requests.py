"""Clients that leave or cancel requests: within a second, the asked node holds nothing of these."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
import trio

from gossipkv.errors import Overloaded, Unavailable, Unknown
from gossipkv.wire import rpc
from tests.simulation.test_full_disks import does
from tests.simulation.test_shut_tables import damage
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import USUAL, simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import Connection, SimulatedCluster

MAX_FEEDS: Final = 2
FEW: Final = replace(USUAL, max_feeds=MAX_FEEDS)
FEW_REQUESTS: Final = replace(USUAL, max_in_flight=6)
SLOW: Final = {"timeout_ms": 30_000}
WAITING: Final[dict[str, tuple[Value, ...]]] = {
    "get": ("t", b"k", SLOW),
    "get_many": ("t", [b"k", b"l"], SLOW),
    "scan": ("t", SLOW),
    "put": ("t", b"k", b"v", SLOW),
    "put_many": ("t", [[b"k", b"v"], [b"l", b"v"]], SLOW),
    "delete": ("t", b"k", SLOW),
    "delete_many": ("t", [b"k", b"l"], SLOW),
    "delete_range": ("t", {"prefix": b"k"}, SLOW),
    "verify_table": ("t", SLOW),
    "changes": ("t", {"start": "snapshot", "wait_ms": 30_000}),
}


async def answers(connection: Connection, count: int) -> dict[int, Value]:
    """Return the next answers by id: the result, or the code of an error."""
    found: dict[int, Value] = {}
    with trio.fail_after(1):
        for _ in range(count):
            response = await connection.read()
            found[response.msgid] = response.result if response.error is None else response.error.code
    return found


async def make_table(cluster: SimulatedCluster, node: NodeMachine, replication: int) -> None:
    await cluster.ask(node, "create_table", "t", {"kind": "hash", "replication": replication, "partitions": 1})


async def first_token(cluster: SimulatedCluster, node: NodeMachine) -> Value:
    """Return the token of a new feed, which a node may not begin at once."""

    async def has_begun() -> bool:
        return await does(cluster, node, "changes", "t", {})

    await cluster.until(has_begun, within_s=40)
    _, token = await cluster.ask(node, "changes", "t", {})
    return token


async def waiting(cluster: SimulatedCluster, node: NodeMachine) -> tuple[Value, Value]:
    """Return how many requests wait at a node, apart from the question, and in its tables."""
    info = await cluster.ask(node, "info")
    return info["counters"]["in_flight"], info["tables"]["waiting"]


@simulated(1, config=FEW)
async def test_a_cancelled_poll_is_answered_and_frees_its_place(cluster: SimulatedCluster) -> None:
    """The cancellation may come in the packet of the poll, or later; unknown ids are of no harm."""
    await begin(cluster)
    (node,) = cluster.machines
    await make_table(cluster, node, 1)
    waits = {"token": await first_token(cluster, node), "wait_ms": 60_000}
    async with cluster.connected(node) as one, cluster.connected(node) as other:
        for poll in range(1, 10, 2):
            frames = (
                rpc.request(poll, "changes", ["t", waits]),
                rpc.request(poll + 1, "cancel", [poll]),
            )
            await one.send_bytes(b"".join(frames))
            assert await answers(one, 2) == {poll: Unknown.code, poll + 1: None}
        for poll in (100, 101):
            await one.send_bytes(rpc.request(poll, "changes", ["t", waits]))
        await trio.sleep(0.1)
        await other.send_bytes(rpc.request(1, "changes", ["t", waits]) + rpc.request(2, "cancel", [100]))
        assert await answers(other, 2) == {1: Overloaded.code, 2: None}  # The id is of another connection.
        for poll in (100, 101):
            await one.send_bytes(rpc.request(7, "cancel", [poll]))
            assert await answers(one, 2) == {poll: Unknown.code, 7: None}
        for unknown in (100, 7, (1 << 32) - 1):
            await one.send_bytes(rpc.request(7, "cancel", [unknown]))
            assert await answers(one, 1) == {7: None}


@simulated(1, config=FEW_REQUESTS)
async def test_a_connection_has_room_for_other_requests_than_polls(cluster: SimulatedCluster) -> None:
    """An ended poll makes room for another one."""
    await begin(cluster)
    (node,) = cluster.machines
    await make_table(cluster, node, 1)
    waits = {"token": await first_token(cluster, node), "wait_ms": 60_000}
    async with cluster.connected(node) as one:
        await one.send_bytes(b"".join(rpc.request(poll, "changes", ["t", waits]) for poll in range(4)))
        assert await answers(one, 1) == {3: Overloaded.code}
        await one.send_bytes(rpc.request(7, "cancel", [0]) + rpc.request(4, "changes", ["t", waits]))
        assert await answers(one, 2) == {0: Unknown.code, 7: None}
        await cluster.ask(node, "put", "t", b"k", b"v")
        assert {*await answers(one, 3)} == {1, 2, 4}


@pytest.mark.parametrize("leaves", [False, True])
@simulated(3)
async def test_nothing_stays_of_a_request_whose_hosts_are_silent(cluster: SimulatedCluster, *, leaves: bool) -> None:
    """The asked node is no host of the table, and is cut off from both hosts while the requests are under way."""
    await begin(cluster)
    await make_table(cluster, cluster.machines[0], 2)
    served = await cluster.ask(cluster.machines[0], "partition_map", "t")
    hosts = {assignment["node"] for partition in served["partitions"] for assignment in partition["assignments"]}
    (asked,) = [machine for machine in cluster.machines if machine.name not in hosts]
    await first_token(cluster, asked)
    before = await waiting(cluster, asked)
    rest = [machine.host for machine in cluster.machines if machine is not asked]
    async with cluster.connected(asked) as client, cluster.connected(asked) as other:
        cluster.network.partition([asked.host], rest)
        for number, (method, params) in enumerate(WAITING.items()):
            await client.send_bytes(rpc.request(number, method, params))
        await trio.sleep(0.2)
        in_flight, _ = await waiting(cluster, asked)
        assert in_flight == before[0] + len(WAITING)
        if leaves:
            await client.close()
        else:
            for number in range(len(WAITING)):
                await client.send_bytes(rpc.request(100 + number, "cancel", [number]))
            found = await answers(client, 2 * len(WAITING))
            assert {found[number] for number in range(len(WAITING))} == {Unknown.code}
        await trio.sleep(1)
        in_flight, in_tables = await waiting(cluster, asked)
        assert (in_flight, in_tables <= before[1]) == (before[0], True)  # Feeds have a timer of their own at first.
        await other.send("ping")


@pytest.mark.parametrize("how", ["cancels", "leaves", "drains"])
@simulated(3)
async def test_polls_that_a_node_with_a_closed_store_forwards(cluster: SimulatedCluster, how: str) -> None:
    """They end as any other polls do."""
    await begin(cluster)
    asked = cluster.machines[0]
    await make_table(cluster, cluster.machines[1], 3)
    await trio.sleep(15)  # The catalogue has three acceptors by then.
    await damage(asked)
    waits = {"token": await first_token(cluster, asked), "wait_ms": 60_000}
    async with cluster.connected(asked) as client:
        before = (await cluster.ask(asked, "info"))["counters"]["in_flight"]
        await client.send_bytes(b"".join(rpc.request(poll, "changes", ["t", waits]) for poll in range(3)))
        await trio.sleep(0.2)
        assert (await cluster.ask(asked, "info"))["counters"]["in_flight"] == before + 3
        match how:
            case "cancels":
                await client.send_bytes(rpc.request(7, "cancel", [1]))
                assert await answers(client, 2) == {1: Unknown.code, 7: None}
            case "leaves":
                await client.close()
                await trio.sleep(1)
                assert (await cluster.ask(asked, "info"))["counters"]["in_flight"] == before
            case "drains":
                asked.tell(signal.SIGTERM)
                assert await answers(client, 3) == dict.fromkeys(range(3), Unavailable.code)
