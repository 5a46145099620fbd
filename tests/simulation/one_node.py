"""Helpers of `test_whole_nodes_datasets.py` and `test_whole_nodes_datasets_slow.py`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gossipkv.environment.seam import READ_WRITE_NEW
from gossipkv.errors import GossipKVError
from tests.world.nodes.whole_cluster import USUAL

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

CONFIG = replace(USUAL, source="/source", refresh_period=5_000, retire_after=20_000, build_memory=8 << 20)
KEYS = 50
MANY = "SIMULATED_SEEDS" in os.environ


def put(machine: NodeMachine, version: str, keys: int = KEYS) -> None:
    """Add a version to the source, a directory of the same disk. The value of each key is the version's name."""
    disk = machine.disk
    for path in ("/source", "/source/db", f"/source/db/{version}"):
        try:
            disk.make_directory(path)
        except FileExistsError:
            continue
        disk.sync_directory(path.rpartition("/")[0] or "/")
    descriptor = disk.open(f"/source/db/{version}/part-0", READ_WRITE_NEW)
    disk.pwrite(descriptor, b"".join(b"k%d\t%s\n" % (key, version.encode()) for key in range(keys)), 0)
    disk.sync(descriptor)
    disk.close(descriptor)
    disk.sync_directory(f"/source/db/{version}")


async def serves(cluster: SimulatedCluster, machine: NodeMachine, version: str) -> None:
    """Return when a get is answered from this version."""

    async def holds() -> bool:
        try:
            value = await cluster.ask(machine, "get", "db", "k1")
        except GossipKVError:
            return False
        return value == [version.encode(), version]

    await cluster.until(holds, within_s=120)
