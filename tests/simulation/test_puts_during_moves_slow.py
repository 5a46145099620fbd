"""Puts during moves wait no longer than before: all hosts of a partition follow a new map at about the same time."""

from __future__ import annotations

from dataclasses import replace
from statistics import quantiles

import pytest
import trio

from tests.simulation.calls import TABLE, VALUE, WELL_S
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

PARTITIONS = 32
BEFORE_S, PAUSE_S = 10.0, 0.005
MAX_RATIO = 2.0  # The p99 of a put while a node is added, to before.


@pytest.mark.slow
@simulated(5, seed=0)
async def test_puts_while_a_node_is_added(cluster):
    *machines, added = cluster.machines
    await begin(cluster, added)
    table = {"kind": "hash", "partitions": PARTITIONS, "replication": 3}
    await cluster.ask(machines[0], "create_table", TABLE, table, timeout_s=WELL_S)
    added.config = replace(added.config, join=(machines[0].address,))
    await added.start()
    await trio.sleep(2 * BEFORE_S)
    took = []  # When each put began, and its duration.

    async def put(machine, number):
        async with cluster.connected(machine) as connection:
            while True:
                began, number = trio.current_time(), number + len(machines)
                await connection.send("put", TABLE, b"key %d" % number, VALUE, {"level": "majority"})
                response = await connection.read()
                assert response.error is None, response
                took.append((began, trio.current_time() - began))
                await trio.sleep(PAUSE_S)

    async def has_moved():
        told = await cluster.ask(machines[0], "partition_map", TABLE, {"limit": PARTITIONS})
        hosts = [host for row in told["partitions"] for host in row["assignments"]]
        share = sum(host["node"] == added.name for host in hosts)
        return share > PARTITIONS / 2 and all(host["state"] == "AVAILABLE" for host in hosts)

    async with trio.open_nursery() as nursery:
        for number, machine in enumerate(machines):
            nursery.start_soon(put, machine, number)
        await trio.sleep(BEFORE_S)
        at = trio.current_time()
        await cluster.ask(machines[0], "add_node", added.name, timeout_s=WELL_S)
        await cluster.until(has_moved, within_s=WELL_S)
        nursery.cancel_scope.cancel()
    before, during = (
        quantiles([s for began, s in took if (began >= at) is is_during], n=100)[98] for is_during in (False, True)
    )
    assert during <= MAX_RATIO * before
