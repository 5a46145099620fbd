"""A client ends the wait of its own polls, which are answered at once and free their places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.errors import Overloaded, TimedOut
from gossipkv.wire import rpc
from tests.simulation.test_full_disks import does
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import USUAL, simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.whole_cluster import Connection, SimulatedCluster

MAX_FEEDS: Final = 2
FEW: Final = replace(USUAL, max_feeds=MAX_FEEDS)


async def answers(connection: Connection, count: int) -> dict[int, Value]:
    """Return the next answers by id: the result, or the code of an error."""
    found: dict[int, Value] = {}
    with trio.fail_after(1):
        for _ in range(count):
            response = await connection.read()
            found[response.msgid] = response.result if response.error is None else response.error.code
    return found


@simulated(1, config=FEW)
async def test_a_cancelled_poll_is_answered_and_frees_its_place(cluster: SimulatedCluster) -> None:
    """The cancellation may come in the packet of the poll, or later; unknown ids are of no harm."""
    await begin(cluster)
    (node,) = cluster.machines
    await cluster.ask(node, "create_table", "t", {"kind": "hash", "replication": 1, "partitions": 2})

    async def has_begun() -> bool:
        return await does(cluster, node, "changes", "t", {})

    await cluster.until(has_begun, within_s=5)
    (_, token) = await cluster.ask(node, "changes", "t", {})
    waits = {"token": token, "wait_ms": 60_000}
    async with cluster.connected(node) as one, cluster.connected(node) as other:
        for poll in range(1, 10, 2):
            frames = (
                rpc.request(poll, "changes", ["t", waits]),
                rpc.request(poll + 1, "cancel", [poll]),
            )
            await one.send_bytes(b"".join(frames))
            assert await answers(one, 2) == {poll: TimedOut.code, poll + 1: None}
        for poll in (100, 101):
            await one.send_bytes(rpc.request(poll, "changes", ["t", waits]))
        await trio.sleep(0.1)
        await other.send_bytes(rpc.request(1, "changes", ["t", waits]) + rpc.request(2, "cancel", [100]))
        assert await answers(other, 2) == {1: Overloaded.code, 2: None}  # The id is of another connection.
        for waiting in (100, 101):
            await one.send_bytes(rpc.request(7, "cancel", [waiting]))
            assert await answers(one, 2) == {waiting: TimedOut.code, 7: None}
        for unknown in (100, 7, (1 << 32) - 1):
            await one.send_bytes(rpc.request(7, "cancel", [unknown]))
            assert await answers(one, 1) == {7: None}
