"""Whole nodes report an unknown name once they can know that it does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.errors import GossipKVError
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import USUAL, simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

READS: tuple[tuple[str, Value], ...] = (("get", b"k"), ("get_many", [b"k"]), ("scan", {}))


async def code(cluster: SimulatedCluster, machine: NodeMachine, method: str, *params: Value) -> str:
    """Return the code of the error, or an empty string."""
    try:
        await cluster.ask(machine, method, *params)
    except GossipKVError as error:
        return error.code
    return ""


async def said(cluster: SimulatedCluster) -> dict[tuple[str, str, str], str]:
    """Return the answer of each node to each read of two names."""
    return {
        (machine.name, method, name): await code(cluster, machine, method, name, *params)
        for machine in cluster.machines
        for method, *params in READS
        for name in ("t", "nothing")
    }


@pytest.mark.parametrize("has_tables", [False, True])
@simulated(3)
async def test_unknown_and_dropped_names(cluster: SimulatedCluster, has_tables: bool) -> None:
    await begin(cluster)
    if has_tables:
        await cluster.ask(cluster.machines[0], "create_table", "t", {"kind": "hash", "replication": 2, "partitions": 2})
        await cluster.ask(cluster.machines[0], "put", "t", b"k", b"v")
        await cluster.ask(cluster.machines[1], "drop_table", "t")
    told = await said(cluster)
    assert {told[asked] for asked in told if asked[-1] == "nothing"} <= {"UNKNOWN_DATABASE", "NOT_READY"}, told
    await trio.sleep(USUAL.time_to_converge / 1000 + 1)
    told = await said(cluster)
    assert {*told.values()} == {"UNKNOWN_DATABASE"}, told
    cluster.machines[1].kill()
    cluster.machines[2].kill()
    await trio.sleep(60)  # The other nodes are gone, and the knowledge about them stays.
    assert {await code(cluster, cluster.machines[0], method, "t", *params) for method, *params in READS} == {
        "UNKNOWN_DATABASE"
    }
