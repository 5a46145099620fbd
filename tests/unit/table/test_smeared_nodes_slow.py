"""Smearing on whole nodes with clocks far apart: crashes, a drain, a full disk, a split and a drop."""

from __future__ import annotations

import errno
from dataclasses import replace

import trio

from tests.unit.table.moved_cluster import CONFIG, begin
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes import process
from tests.world.nodes.whole_cluster import simulated

ACCEPTED = {"accepted": True}
NOW = 1_700_000_000
WANTED = {
    "kind": "range", "replication": 2, "time_key": [0, 8, "s"],
    "bounds": [NOW.to_bytes(8, "big"), (NOW + 50).to_bytes(8, "big")],
}  # fmt: skip
PUTS = 60
STILL = replace(CONFIG, planner="off")  # The smearing node never becomes a host.


def key(number):
    """Return a key of the short range."""
    return (NOW + number % 50).to_bytes(8, "big") + b"/%d" % number


async def laid(cluster):
    """Make a table whose short range is on two nodes; return these hosts and the other nodes."""
    await begin(cluster)
    await cluster.ask(cluster.machines[0], "create_table", "t", WANTED, timeout_s=30)
    shown = await cluster.ask(cluster.machines[0], "partition_map", "t")
    held = {one["node"] for one in shown["partitions"][1]["assignments"]}
    hosts = [one for one in cluster.machines if one.name in held]
    return hosts, [one for one in cluster.machines if one.name not in held]


async def put(cluster, machine, first, count=PUTS):
    for number in range(first, first + count):
        assert await cluster.ask(machine, "put", "t", key(number), b"%d" % number) == ACCEPTED


async def arrived(cluster, machine, count, within_s=140):
    """Wait until `count` records have their values."""

    async def holds():
        rows, _, _ = await cluster.ask(machine, "scan", "t", {"limit": 1000})
        assert all(value in {b"late", row[9:]} for row, value in rows)
        return len(rows) == count

    await cluster.until(holds, within_s=within_s, every_s=5)


async def waiting(cluster, machine):
    told = (await cluster.ask(machine, "status", {"local": True}))["t"]["smeared"]
    return 0 if told is None else told["puts"]


@simulated(4, config=STILL)
async def test_nodes_that_smear_lose_power(cluster, monkeypatch):
    """A host also loses power while it receives puts; all puts arrive, and a later write stays, with clocks in step."""
    monkeypatch.setattr(process, "MAX_WALL_OFFSET_MS", 1000)

    hosts, (smearer, other) = await laid(cluster)
    await put(cluster, smearer, 0)
    smearer.lose_power()
    await smearer.start()
    await cluster.until(lambda: known(cluster, smearer), within_s=60)
    await put(cluster, smearer, PUTS)
    assert await waiting(cluster, smearer) > PUTS
    await put(cluster, other, 2 * PUTS)
    await trio.sleep(3)
    await cluster.ask(other, "put", "t", key(0), b"late", {"level": "majority"})
    await trio.sleep(30)
    hosts[0].lose_power()
    await trio.sleep(5)
    await hosts[0].start()
    await arrived(cluster, other, 3 * PUTS)
    assert (await cluster.ask(other, "get", "t", key(0)))[0] == b"late"
    assert await waiting(cluster, smearer) == await waiting(cluster, other) == 0


async def known(cluster, machine):
    """Return True if a restarted node knows the table and is reachable."""
    return "t" in {one["name"] for one in await cluster.ask(machine, "databases")}


@simulated(4, config=STILL)
async def test_who_is_stopped_forwards_all_first(cluster):
    """Forwarding takes place in the drain time; without hosts the puts are kept and forwarded after the restart."""
    hosts, (smearer, other) = await laid(cluster)
    await put(cluster, smearer, 0)
    await smearer.stop()
    await arrived(cluster, other, PUTS, within_s=1)
    await smearer.start()
    await cluster.until(lambda: known(cluster, smearer), within_s=60)
    await put(cluster, smearer, PUTS)
    for host in hosts:
        host.kill()
    await smearer.stop()
    for machine in (*hosts, smearer):
        await machine.start()
    await arrived(cluster, other, 2 * PUTS)


@simulated(4, config=STILL)
async def test_a_full_disk_smears_nothing(cluster):
    """With a full disk puts are written at once, and their answers show it."""
    _, (smearer, other) = await laid(cluster)
    await put(cluster, smearer, 0, 5)
    smearer.strike(Fault(0, Action.FAIL, CHANGING, errno.ENOSPC, lasting=True))
    for number in range(5, 20):
        answer = await cluster.ask(smearer, "put", "t", key(number), b"%d" % number)
        if isinstance(answer, bytes):
            break
    assert isinstance(answer, bytes)
    assert (await cluster.ask(other, "get", "t", key(number)))[0] == b"%d" % number


@simulated(4, config=STILL)
async def test_a_range_is_divided_and_the_table_dropped_while_puts_wait(cluster):
    """Waiting puts go to the children, and those of the dropped table are dropped."""
    _, (smearer, other) = await laid(cluster)
    await put(cluster, smearer, 0)
    await cluster.ask(other, "split", "t", key(25))
    await put(cluster, smearer, PUTS)
    await arrived(cluster, other, 2 * PUTS)
    await put(cluster, smearer, 2 * PUTS)
    await cluster.ask(other, "drop_table", "t")

    async def holds():
        told = (await cluster.ask(smearer, "info"))["tables"]
        return told["smeared_waiting"] == 0 and told["smeared_dropped"] > 0

    await cluster.until(holds, within_s=300, every_s=5)
