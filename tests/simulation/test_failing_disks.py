"""A node whose disk fails runs without tables, and with them once the disk is well; each write is answered in time."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.errors import Unknown
from tests.simulation.test_full_disks import does
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.phases import begin
from tests.world.nodes.table_clients import TableClients
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.whole_cluster import SimulatedCluster

READING = {"open", "pread", "stat", "list_directory", "map"}
CALM_S = 5.0  # The time in which a new table's replicas get on the fast path.
LATE_S = 0.1
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


@simulated(3, seed=2)  # Its loops gather writes.
async def test_a_sync_that_fails_beside_gathered_writes(cluster: SimulatedCluster) -> None:
    """Each write is answered at its deadline, also if the store was opened again before; then all nodes agree."""
    await begin(cluster)
    one = cluster.machines[0]
    await TableClients(cluster).create("t", replication=3)
    await trio.sleep(CALM_S)
    one.strike(Fault(0, Action.FAIL, error=errno.EIO, lasting=True, kinds={"sync"}))
    levels, due_s = ("one", "majority", "all"), (9.0, 3.0, 0.3)
    late_s: dict[int, float] = {}
    async with cluster.connected(one) as connection:
        began_s = trio.current_time()
        for number in range(9):
            options: Value = {"level": levels[number // 3], "timeout_ms": int(due_s[number % 3] * 1000)}
            await connection.send("put", "t", b"k", b"%d" % number, options)
        for _ in range(9):
            answer = await connection.read()
            one.strike()  # From the first answer on, the disk is well.
            if answer.error is not None:  # Other nodes have taken those that came after the failure.
                assert isinstance(answer.error, Unknown), answer
                late_s[answer.msgid - 1] = trio.current_time() - began_s - due_s[(answer.msgid - 1) % 3]
    assert cluster.struck["gathered"] >= 1
    assert 0 in late_s, "the first one is gathered"
    assert all(0 <= each_s < LATE_S for each_s in late_s.values()), late_s
    one.lose_power()
    await one.start()

    async def agree() -> bool:
        found = [await cluster.ask(each, "get", "t", b"k") for each in cluster.machines]
        values = {row[0] for row in found if isinstance(row, list)}
        return len(values) == 1 and values <= {b"%d" % number for number in range(9)} | {None}

    await cluster.until(agree, within_s=BACK_S)
