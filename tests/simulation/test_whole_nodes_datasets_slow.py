"""Tests over real processes, sockets, threads or time; `test_whole_nodes_datasets.py` has the others."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio

from tests.world.nodes.whole_cluster import simulate

if TYPE_CHECKING:
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

from tests.simulation.one_node import CONFIG, KEYS, MANY, put, serves

PART = "/data/datasets/db/v1/part-00000.gkv"
PERIOD_S = 300
SCRUBBED = replace(CONFIG, scrub_period=PERIOD_S * 1000)


def contents(machine: NodeMachine) -> bytes:
    """What the disk holds of the only partition."""
    descriptor = machine.disk.open(PART)
    try:
        return machine.disk.pread(descriptor, machine.disk.size(descriptor), 0)
    finally:
        machine.disk.close(descriptor)


async def rots(cluster: SimulatedCluster) -> None:
    """The disk loses a bit now and then; what the node has mapped stays whole, and nobody notices but the scrub."""
    (machine,) = cluster.machines
    put(machine, "v1")
    await machine.start()
    await serves(cluster, machine, "v1")
    whole = contents(machine)

    async def mended() -> bool:
        """A read is right, and the disk holds again what was built."""
        assert await cluster.ask(machine, "get", "db", f"k{cluster.chance.randrange(KEYS)}") == [b"v1", "v1"]
        return contents(machine) == whole

    for _ in range(3):
        await trio.sleep(cluster.chance.uniform(0, 1.5 * PERIOD_S))
        if cluster.chance.random() < 0.3:
            await machine.stop()
            await machine.start()
        at = cluster.chance.randrange(len(whole))
        descriptor = machine.disk.open(PART, os.O_RDWR)
        machine.disk.pwrite(descriptor, bytes([whole[at] ^ 1 << cluster.chance.randrange(8)]), at)
        machine.disk.close(descriptor)
        assert not await mended()
        took_s = await cluster.until(mended, within_s=PERIOD_S + 5)
        cluster.trace.note(machine.name, "mended", round(took_s))
    await machine.stop()


@pytest.mark.parametrize("seed", range(10 if MANY else 2))
def test_what_rots_on_the_disk_is_mended_within_a_period(seed: int) -> None:
    """Every bit of the file, while each read is answered rightly from what is mapped."""
    simulate(rots, seed, machines=1, config=SCRUBBED)
