"""`split` divides a range at an operator's key, or is refused for one clear reason: whole nodes, virtual time."""

from __future__ import annotations

import trio

from gossipkv.errors import BadRequest, Conflict, NotServed, UnknownDatabase
from tests.unit.table.rpc.test_node_admin import die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import simulated

RANGES = {"kind": "range", "bounds": [b"m"], "replication": 3}


async def ranges(cluster, machine):
    """Return the id and the nodes of each range, by first key."""
    told = await cluster.ask(machine, "partition_map", "t")
    return {one["start"]: (one["id"], [each["node"] for each in one["assignments"]]) for one in told["partitions"]}


@simulated(3)
async def test_a_range_is_divided(cluster):
    """Any node takes the command; children stay on the same nodes, and a repetition returns the same result."""
    one = await made(cluster, RANGES)
    before = await ranges(cluster, one)
    told = await cluster.ask(cluster.machines[1], "split", "t", b"s")
    after = await ranges(cluster, cluster.machines[1])
    assert (told["table"], told["partition"]) == ("t", before[b"m"][0])
    assert told["partitions"] == [{"id": after[first][0], "start": first} for first in (b"m", b"s")]
    assert [*after] == [b"", b"m", b"s"]
    assert after[b""] == before[b""]
    assert after[b"m"][1] == after[b"s"][1] == before[b"m"][1]
    assert len({id_ for id_, _ in (*before.values(), *after.values())}) == 4
    error = await refused(cluster, cluster.machines[2], "split", "t", b"s")
    assert (type(error), "is already split at 's'" in error.message) == (Conflict, True)
    assert error.details["partitions"] == told["partitions"]
    assert await ranges(cluster, cluster.machines[2]) == after


@simulated(3)
async def test_what_is_not_divided(cluster):
    """Unknown tables, shards, invalid or existing bounds, and wrong arguments are refused."""
    one = await made(cluster, RANGES)
    await cluster.ask(one, "create_table", "h", {"kind": "hash", "replication": 1})
    for kind, words, *params in (
        (UnknownDatabase, "u", "u", b"k"), (BadRequest, "shards", "h", b"k"), (Conflict, "split at 'm'", "t", b"m"),
        (BadRequest, "1 to 255 bytes, not 0", "t", b""), (BadRequest, "not 256", "t", b"k" * 256),
        (BadRequest, "key", "t", 5), (BadRequest, "key", "t"), (BadRequest, "depth", "t", b"k", {"depth": 1}),
    ):  # fmt: skip
        error = await refused(cluster, one, "split", *params)
        assert (type(error), words in error.message) == (kind, True), (params, error)
    assert [*await ranges(cluster, one)] == [b"", b"m"]


@simulated(3)
async def test_a_host_divides_what_the_planner_asks_for(cluster):
    """A range of less than two keys, or of other nodes, is not split; otherwise it is split once in the middle."""
    one = await made(cluster, RANGES)
    for number in range(40):
        await cluster.ask(one, "put", "t", b"a%02d" % number, bytes(100))
    before = await ranges(cluster, one)
    table = bytes.fromhex((await cluster.ask(one, "partition_map", "t"))["table"])
    assert await cluster.ask(one, "table_divide", table, before[b"m"][0]) is False
    assert await cluster.ask(cluster.machines[1], "table_divide", table, before[b""][0]) is True
    with trio.fail_after(60):
        while len(after := await ranges(cluster, one)) == 2:
            await trio.sleep(0.1)
    (middle,) = after.keys() - before.keys()
    assert b"a10" < middle < b"a30"
    assert after[middle][1] == before[b""][1]
    with trio.fail_after(60):
        while not isinstance(await refused(cluster, one, "table_divide", table, before[b""][0]), NotServed):
            await trio.sleep(0.1)  # The host has not adopted the split yet.


@simulated(3)
async def test_who_holds_a_division_back(cluster):
    """If too many former assignments are not settled, the error names all hosts and marks the dead one."""
    one = await made(cluster, RANGES)
    await die(cluster, cluster.machines[2])
    for number in range(21):
        await cluster.ask(one, "split", "t", b"k%02d" % number)
    error = await refused(cluster, one, "split", "t", b"k99")
    assert type(error) is Conflict
    assert "range of key 'k99' has 66 assignments that are not settled, at most 64 are" in error.message
    assert {*error.message.rpartition("answer: ")[2].split(", ")} == {"n1", "n2", "n3 (which is down)"}
    await cluster.ask(one, "split", "t", b"x")  # Another range has its own limit.
