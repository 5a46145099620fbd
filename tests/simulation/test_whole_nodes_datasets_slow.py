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
    """Return the bytes of the only partition on disk."""
    descriptor = machine.disk.open(PART)
    try:
        return machine.disk.pread(descriptor, machine.disk.size(descriptor), 0)
    finally:
        machine.disk.close(descriptor)


async def rots(cluster: SimulatedCluster) -> None:
    """Flip bits on disk now and then; the mapped pages stay whole, and only the scrub notices."""
    (machine,) = cluster.machines
    put(machine, "v1")
    await machine.start()
    await serves(cluster, machine, "v1")
    whole = contents(machine)

    async def mended() -> bool:
        """Read a right value, and return True if the disk is repaired."""
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
    """Any bit of the file may flip; each read is answered rightly from the mapped pages."""
    simulate(rots, seed, machines=1, config=SCRUBBED)
