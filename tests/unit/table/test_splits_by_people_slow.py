"""Tests that cost seconds; `test_splits_by_people.py` has the others."""

from __future__ import annotations

from dataclasses import replace

import trio

from gossipkv.errors import Conflict
from gossipkv.wire.key_text import shown
from tests.unit.table.rpc.test_node_admin import come, die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import USUAL, simulated

RANGES = {"kind": "range", "bounds": [b"m"], "replication": 3}


async def ranges(cluster, machine):
    """Return the id and the nodes of each range, by first key."""
    told = await cluster.ask(machine, "partition_map", "t")
    return {one["start"]: (one["id"], [each["node"] for each in one["assignments"]]) for one in told["partitions"]}


@simulated(4, config=replace(USUAL, planner="off"))
async def test_a_range_that_moves(cluster):
    """The error names the nodes of the move."""
    *_, third, newcomer = cluster.machines
    one = await made(cluster, RANGES, but=newcomer)
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=60)
    await die(cluster, third)
    await cluster.ask(one, "remove_node", "n3", timeout_s=60)  # The move waits for the dead node's own records.
    with trio.fail_after(60):
        while not (moving := [first for first, (_, nodes) in (await ranges(cluster, one)).items() if nodes[3:]]):
            await trio.sleep(0.1)
    error = await refused(cluster, one, "split", "t", moving[0] + b"k")
    assert type(error) is Conflict
    assert f"{shown(moving[0] + b'k')} moves from n3 to n4" in error.message
