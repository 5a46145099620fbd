"""`partitions` lists bounds, hosts, size and load of each partition, page by page: whole nodes."""

from __future__ import annotations

import trio

from gossipkv.errors import BadRequest, UnknownDatabase
from gossipkv.table.controllers.load_stats import FRESH_S
from tests.unit.table.rpc.test_node_admin import die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import simulated

RANGES = {"kind": "range", "bounds": [b"m"], "replication": 2}


def shape(told):
    """Return the bounds and the next position, without hosts and sizes."""
    return [(one["start"], one["end"]) for one in told["partitions"]], told["next"]


@simulated(3)
async def test_pages_of_ranges_and_of_shards(cluster):
    """Pages come in order, with hosts, states and approximate sizes."""
    one = await made(cluster, RANGES)
    for number in range(40):
        await cluster.ask(one, "put", "t", b"n%02d" % number, bytes(1000), {"level": "all"})
    for machine in cluster.machines:
        told = await cluster.ask(machine, "partitions", "t")
        assert (told["table"], told["kind"], *shape(told)) == ("t", "range", [(b"", b"m"), (b"m", None)], None)
        known = (await cluster.ask(machine, "partition_map", "t"))["partitions"]
        for row, part in zip(told["partitions"], known, strict=True):
            hosts = [{key: one[key] for key in ("node", "slot", "state")} for one in part["assignments"]]
            assert (row["id"], row["hosts"]) == (part["id"], hosts)
        empty, full = (row["bytes"] for row in told["partitions"])
        assert empty < 1000 < full, told
    page = await cluster.ask(one, "partitions", "t", {"limit": 1})
    assert shape(page) == ([(b"", b"m")], b"m")
    assert shape(await cluster.ask(one, "partitions", "t", {"start": page["next"]})) == ([(b"m", None)], None)
    assert shape(await cluster.ask(one, "partitions", "t", {"start": b"z"})) == ([], None)
    await cluster.ask(one, "create_table", "h", {"kind": "hash", "partitions": 3, "replication": 1})
    page = await cluster.ask(one, "partitions", "h", {"limit": 2})
    assert (page["kind"], *shape(page)) == ("hash", [(bytes(4), None), (b"\0\0\0\1", None)], b"\0\0\0\2")
    for kind, *params in (UnknownDatabase, "u"), (BadRequest, "t", {"limit": 0}), (BadRequest, "t", {"start": 5}):
        assert type(await refused(cluster, one, "partitions", *params)) is kind


@simulated(3)
async def test_nobody_says_how_large_it_is(cluster):
    """A partition with dead hosts is listed without a size."""
    one = await made(cluster, {**RANGES, "replication": 1})
    rows = (await cluster.ask(one, "partitions", "t"))["partitions"]
    there = next(row for row in rows if row["hosts"][0]["node"] != "n1")
    await die(cluster, next(each for each in cluster.machines if each.name == there["hosts"][0]["node"]))
    await trio.sleep(FRESH_S)
    after = (await cluster.ask(one, "partitions", "t"))["partitions"]
    unknown = {**there, "bytes": None, "rows": None, "rate": None}
    assert next(row for row in after if row["id"] == there["id"]) == unknown
