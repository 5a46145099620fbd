"""A node whose disk fails while its tables open runs without tables, and with them once the disk is well."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import trio

from tests.simulation.test_full_disks import does
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster

READING = {"open", "pread", "stat", "list_directory", "map"}
BACK_S = 75.0  # A store that fails repeatedly is reopened once a minute.


@pytest.mark.parametrize(("after_s", "reads"), [(0.0, True), (0.6, False), (0.9, True)])
@simulated(3)
async def test_a_disk_that_fails_early(cluster: SimulatedCluster, after_s: float, reads: bool) -> None:
    await begin(cluster)
    one, two, _ = cluster.machines
    await cluster.ask(two, "create_table", "t", {"kind": "hash", "replication": 3, "partitions": 4})
    began_s = trio.current_time()
    number = 0
    while trio.current_time() < began_s + after_s:
        await does(cluster, two, "put", "t", b"%d" % (number % 40), b"v")
        number += 1
        await trio.sleep(0.01)
    one.strike(Fault(0, Action.FAIL, error=errno.EIO, lasting=True, kinds=CHANGING | READING if reads else CHANGING))
    for _ in range(20):
        await does(cluster, two, "put", "t", b"%d" % (number % 40), b"v")
        number += 1
        await trio.sleep(0.2)
    assert one.runs, one.error
    one.strike()

    async def writes() -> bool:
        return await does(cluster, one, "put", "t", b"k", b"v", {"level": "all"})

    await cluster.until(writes, within_s=BACK_S)
