"""A node with a closed store forwards requests, and tables can still be made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.errors import NotReady, Unavailable
from tests.simulation.test_full_disks import does
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

MANIFEST = "/data/tables/MANIFEST"
WELL_S = 40.0


async def damage(machine: NodeMachine) -> None:
    """Flip one byte of the manifest of its store and restart; a second call repairs it."""
    await machine.stop()
    disk = machine.disk
    descriptor = disk.open(MANIFEST, os.O_RDWR)
    (byte,) = disk.pread(descriptor, 1, 9)
    disk.pwrite(descriptor, bytes([byte ^ 0xFF]), 9)
    disk.sync(descriptor)
    disk.close(descriptor)
    await machine.start()


@simulated(3)
async def test_one_closed_store(cluster: SimulatedCluster) -> None:
    await begin(cluster)
    one, two, three = cluster.machines
    wanted = {"kind": "hash", "replication": 3, "partitions": 4}
    await cluster.ask(two, "create_table", "t", wanted)
    await cluster.ask(one, "put", "t", b"k", b"v", {"level": "all"})
    await trio.sleep(15)  # The catalogue has three acceptors by then.
    await damage(one)

    async def is_answered() -> bool:
        return await does(cluster, one, "get", "t", b"k")

    await cluster.until(is_answered, within_s=WELL_S)
    assert (await cluster.ask(one, "get", "t", b"k"))[0] == b"v"
    assert (await cluster.ask(one, "get_many", "t", [b"k", b"l"]))[0] == [b"v", None]
    assert (await cluster.ask(one, "scan", "t", {}))[0] == [[b"k", b"v"]]
    for method, *params in (("put", b"k", b"w"), ("put_many", [[b"l", b"w"]]), ("delete", b"l")):
        await cluster.ask(one, method, "t", *params)
    assert (await cluster.ask(two, "get", "t", b"k"))[0] == b"w"
    assert (await cluster.ask(one, "partition_map", "t"))["kind"] == "hash"
    assert await cluster.ask(one, "databases") == await cluster.ask(two, "databases") != []
    for method, *params in (("get", "t", b"k"), ("partition_map", "t"), ("put", "t", b"k", b"w")):
        with pytest.raises(NotReady, match="closed"):  # A forwarded request is not forwarded again.
            await cluster.ask(one, "within", (1 << 64) - 1, method, msgpack.packb(params))

    with pytest.raises(Unavailable, match=r"5 replicas needs 5 nodes, and 2 take part: n1: .*closed"):
        await cluster.ask(two, "create_table", "u", {**wanted, "replication": 5, "timeout_ms": 5000})
    assert await does(cluster, one, "create_table", "u", wanted)
    await cluster.ask(two, "put", "u", b"k", b"v")
    assert (await cluster.ask(one, "get", "u", b"k"))[0] == b"v"
    await damage(three)
    with pytest.raises(Unavailable, match="no quorum"):
        await cluster.ask(two, "create_table", "v", {**wanted, "timeout_ms": 5000})

    await damage(one)
    await damage(three)

    async def all_have_it() -> bool:
        """A replica at the formerly closed node takes part."""
        return await does(cluster, one, "put", "u", b"k", b"x", {"level": "all"})

    await cluster.until(all_have_it, within_s=WELL_S)
