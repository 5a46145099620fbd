"""A node's directory is restored from an older copy; only the other nodes can detect that."""

from __future__ import annotations

import pytest

from gossipkv.errors import GossipKVError
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

ONE_COPY = {"kind": "hash", "partitions": 2, "replication": 1}


async def state_of(cluster, machine):
    return (await cluster.ask(machine, "info"))["tables"]


async def until_open(cluster, machine):
    async def holds():
        return (await state_of(cluster, machine))["state"] == "open"

    await cluster.until(holds, within_s=20)


async def until_behind(cluster, machine):
    """Wait until a node reports that its store is an older copy."""

    async def holds():
        told = await state_of(cluster, machine)
        return told["state"] == "closed" and "an older copy of the store" in told["why"]

    await cluster.until(holds, within_s=40)


async def put_back(cluster, *, c_has_seen_more):
    """Make two tables on a and b; then stop a, restore b's older disk, and start c."""
    a, b, c = cluster.machines
    await begin(cluster)
    await cluster.ask(a, "create_table", "first", ONE_COPY)

    async def all_decide():
        (catalogue, *_) = await cluster.ask(a, "metadata_status", None)
        return len(catalogue["new"]) == len(cluster.machines)

    await cluster.until(all_decide, within_s=60)
    if not c_has_seen_more:
        await c.stop()
    await b.stop()
    copy = b.disk.copied()
    await b.start()
    await until_open(cluster, b)
    if c_has_seen_more:
        await cluster.ask(a, "create_table", "second", ONE_COPY)
        await c.stop()
    made = [await cluster.ask(a, "create_table", name, ONE_COPY, timeout_s=30) for name in ("t0", "t1")]
    await a.stop()
    await b.stop()
    b.disk = copy
    await b.start()
    await c.start()
    return [table["table"] for table in made]


@simulated(3, seed=3, limit_s=600)
async def test_who_is_there_has_seen_more(cluster):
    """The older store decides nothing and reports itself, even alone; the tables are found again."""
    a, b, c = cluster.machines
    made = await put_back(cluster, c_has_seen_more=True)
    await until_behind(cluster, b)
    for machine in (b, c):
        with pytest.raises(GossipKVError):
            await cluster.ask(machine, "create_table", "t0", ONE_COPY, timeout_s=30)
    await a.start()

    async def holds():
        names = [one["name"] for one in await cluster.ask(c, "databases")]
        return {"first", "second", "t0", "t1"} == set(names)

    await cluster.until(holds, within_s=60)
    assert [(await cluster.ask(a, "partition_map", name))["table"] for name in ("t0", "t1")] == made
    for machine in (a, c, b):
        await machine.stop()
    await b.start()
    await until_behind(cluster, b)


@simulated(3, seed=3, limit_s=600)
async def test_who_has_seen_more_is_away(cluster):
    """Without a witness the tables are decided twice; a returning witness stops further decisions."""
    a, b, c = cluster.machines
    await put_back(cluster, c_has_seen_more=False)

    async def decided_again():
        try:
            return bool(await cluster.ask(c, "create_table", "t0", ONE_COPY, timeout_s=30))
        except GossipKVError:
            return False

    await cluster.until(decided_again, within_s=60)
    assert (await state_of(cluster, b))["state"] == "open"
    await a.start()
    await until_behind(cluster, b)
