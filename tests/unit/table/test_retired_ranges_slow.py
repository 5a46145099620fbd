"""Retention on whole nodes with a crash: old ranges go everywhere, and young ones keep their records."""

from __future__ import annotations

from dataclasses import replace

import trio

from tests.unit.table.moved_cluster import CONFIG, begin
from tests.world.nodes.process import WALL_AT_ZERO_MS
from tests.world.nodes.whole_cluster import simulated

DAY_S = 86_400
SPLITTING = replace(CONFIG, planner="off")


@simulated(3, config=SPLITTING)
async def test_old_ranges_go(cluster):
    """Five ranges are created with the past; a node is down while the old ones go, and drops them when it is back."""
    await begin(cluster)
    now_s = WALL_AT_ZERO_MS // 1000
    times = [now_s - days * DAY_S for days in (40, 20, 10, 2, 0)]
    wanted = {
        "kind": "range", "replication": 3, "time_key": [0, 8, "s"], "smear": False, "retention_ms": 5 * DAY_S * 1000,
        "bounds": [time.to_bytes(8, "big") for time in times[1:]],
    }  # fmt: skip
    first, down, other = cluster.machines
    await cluster.ask(first, "create_table", "t", wanted, timeout_s=30)
    down.lose_power()
    for time in times:
        await cluster.ask(other, "put", "t", (time + 1).to_bytes(8, "big"), b"%d" % time, {"timeout_ms": 20_000})

    async def shows(machine, *expected):
        rows, _, _ = await cluster.ask(machine, "scan", "t", {"limit": 100})
        shown = await cluster.ask(machine, "partition_map", "t")
        return [value for _, value in rows] == [b"%d" % time for time in expected] and len(shown["partitions"]) == 4

    await cluster.until(lambda: shows(other, *times[2:]), within_s=300, every_s=5)
    await down.start()
    await trio.sleep(30)
    for machine in cluster.machines:
        await cluster.until(lambda machine=machine: shows(machine, *times[2:]), within_s=60, every_s=5)
        told = (await cluster.ask(machine, "status", {"database": "t"}))["t"]
        assert not told["unwell"]
        assert told["aside"] is None
