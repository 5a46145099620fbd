"""`force_join` re-creates a range or a shard that lost all hosts, from a quarantined replica or empty: whole nodes."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, WriteLost
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.table.rpc.force_join import KeptReplica, chosen
from gossipkv.table.rpc.requests import RangeArguments
from tests.unit.table.rpc.test_node_admin import come, die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import simulated

ALL = {"level": "all", "timeout_ms": 20_000}


class Lost:
    """A table of one range, or of one shard, on two of five nodes."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.machines = {f"n{number}": machine for number, machine in enumerate(cluster.machines, 1)}

    async def hosts(self):
        """Return the hosts and the id of the range that has the key, as a live node knows them."""
        told = await self.ask("partition_map", "t")
        found = [one for one in told["partitions"] if one["start"] <= b"k"][-1]
        return sorted(one["node"] for one in found["assignments"]), found["id"]

    @property
    def living(self):
        return [name for name, machine in self.machines.items() if machine.runs]

    async def ask(self, method, *params, of=None):
        return await self.cluster.ask(self.machines[of or self.living[0]], method, *params, timeout_s=60)

    async def refused(self, method, *params):
        return await refused(self.cluster, self.machines[self.living[0]], method, *params)

    async def until(self, ask):
        """Repeat the request until it succeeds, and return the answer."""
        with trio.fail_after(120):
            while True:
                try:
                    return await ask()
                except GossipKVError:
                    await trio.sleep(0.5)

    async def put(self, value, of=None):
        return await self.until(lambda: self.ask("put", "t", b"k", value, ALL, of=of))

    async def decided_by_all(self):
        """Wait until all nodes decide, because the founder alone may be among the lost nodes."""
        with trio.fail_after(120):
            while any(len(each["new"]) < len(self.machines) for each in await self.ask("metadata_status")):
                await trio.sleep(0.5)

    async def lose(self, *names):
        for name in names:
            await die(self.cluster, self.machines[name])

    async def aside(self):
        """Return the quarantined replicas of live nodes."""
        rows = await self.ask("quarantine_list", {})
        return [(row["node"], row["copy"], row["why"]) for row in rows if "error" not in row]


async def lost(cluster, *, kept, kind="range"):
    """Lose all hosts of a partition; with `kept`, a former host has the first value in a quarantined replica.

    Returns that node, and the tokens of both values.
    """
    await made(cluster, {"kind": kind, "replication": 2, "partitions": 1})
    one = Lost(cluster)
    await one.decided_by_all()
    hosts, _ = await one.hosts()
    first = await one.put(b"first")
    node = next(name for name in one.machines if name not in hosts)
    if kept:
        node = hosts[0]
        await one.lose(node)
        await one.ask("remove_node", node, {"force": True})
        with trio.fail_after(120):
            while node in (await one.hosts())[0] or len((await one.hosts())[0]) < 2:
                await trio.sleep(0.5)
        await come(cluster, one.machines[node])
        await one.ask("add_node", node)
        await one.decided_by_all()  # The removed node had left the registers.
    with trio.fail_after(120):
        while kept and not await one.aside():
            await trio.sleep(0.5)
    hosts, _ = await one.hosts()
    second = await one.ask(
        "put", "t", b"k", b"second", {"level": "one"}, of=hosts[0]
    )  # All hosts may have the write a while later.
    await one.lose(*hosts)
    return one, node, (first, second)


@pytest.mark.parametrize("kind", ["range", "hash"])
@pytest.mark.parametrize("kept", [False, True])
@simulated(5)
async def test_a_partition_begins_anew(cluster, kept, kind):
    """Sessions with lost records are told, and returning former hosts are quarantined."""
    one, node, (first, second) = await lost(cluster, kept=kept, kind=kind)
    gone, before = await one.hosts()
    (copy,) = [name for _, name, _ in await one.aside()] or [None]
    told = await one.ask("force_join", "t", b"k", node)
    assert (told["node"], told["copy"], told["partition"] == before) == (node, copy, False)
    assert ("with the replica" in told["may_be_lost"]) is kept
    assert told["changed"]
    for name in gone if kind == "hash" else ():  # The planner of shards may want a lost node otherwise.
        await one.ask("remove_node", name, {"force": True})
    with trio.fail_after(120):
        while len((await one.hosts())[0]) < 2:
            await trio.sleep(0.5)
    again = await one.ask("force_join", "t", b"k", node)
    assert (again["partition"], again["changed"]) == (told["partition"], False)
    assert (await one.hosts())[1] == told["partition"]
    value = b"first" if kept else None
    read = await one.until(lambda: one.ask("get", "t", b"k"))
    assert read[0] == value
    assert type(await one.refused("get", "t", b"k", {"token": second})) is WriteLost
    # Tokens omit writes that all hosts had; an older session has lost them unless the kept replica has them.
    if kept:
        assert (await one.ask("get", "t", b"k", {"token": first}))[0] == value
    else:
        assert type(await one.refused("get", "t", b"k", {"token": first})) is WriteLost
    assert (await one.ask("get", "t", b"k", {"token": read[1]}))[0] == value, "a session that begins now"
    assert await one.aside() == []
    await one.ask("put", "t", b"k", b"third", {"level": "one"}, of=node)
    for name in gone:
        await come(cluster, one.machines[name])
    with trio.fail_after(120):
        while len(await one.aside()) < len(gone):
            await trio.sleep(0.5)
    assert (await one.ask("get", "t", b"k"))[0] == b"third"
    aside = await one.aside()
    assert {name for name, _, _ in aside} == {*gone}
    assert all("force-joined without this replica" in why for _, _, why in aside)


@simulated(5)
async def test_what_is_refused(cluster):
    """A force-join is refused for live hosts, shards, unfit nodes and missing replicas."""
    one, node, _ = await lost(cluster, kept=False)
    await one.ask("create_table", "h", {"kind": "hash", "partitions": 2, "replication": 1})
    gone, _ = await one.hosts()
    for kind, words, *params in (
        (BadRequest, "h has no shard 2: it has 2 shards, from 0", "h", b"\0\0\0\2", node, {"shard": True}),
        (BadRequest, "no shard 107", "h", b"k", node, {"shard": True}),
        (BadRequest, "has ranges", "t", b"\0\0\0\0", node, {"shard": True}),
        (Conflict, "has shard 1", "h", b"\0\0\0\1", node, {"shard": True}),
        (BadRequest, "is not alive", "t", b"k", gone[0]),
        (BadRequest, "is not a node of tables", "t", b"k", "n9"),
        (BadRequest, "no quarantined replica 7", "t", b"k", node, {"copy": "7"}),
        (BadRequest, "key", "t", 5, node), (BadRequest, "depth", "t", b"k", node, {"depth": 1}),
    ):  # fmt: skip
        error = await one.refused("force_join", *params)
        assert (type(error), words in error.message) == (kind, True), (params, error)
    await come(cluster, one.machines[gone[0]])
    error = await one.refused("force_join", "t", b"k", node)
    assert (type(error), error.details.get("hosts")) == (Conflict, [gone[0]]), error
    assert (await one.until(lambda: one.ask("get", "t", b"k")))[0] == b"second"


@simulated(5)
async def test_two_operators_at_once(cluster):
    """One operator re-creates the range at its node; the other is told of the change or of the new host."""
    one, *_ = await lost(cluster, kept=False)
    names, ends = one.living[:2], {}

    async def force(name):
        try:
            ends[name] = await one.ask("force_join", "t", b"k", name, of=name)
        except GossipKVError as error:
            ends[name] = error

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(force, name)
    (winner,) = [name for name, end in ends.items() if isinstance(end, dict)]
    (error,) = [end for end in ends.values() if not isinstance(end, dict)]
    assert isinstance(error, Conflict), error
    assert (await one.hosts())[1] == ends[winner]["partition"]


def test_a_copy_of_a_part_of_the_range_is_not_enough():
    """The operator must split the range there first, or request an empty range."""
    part = KeptReplica("part", KeyBounds(b"", b"k"), b"", 1, 1)
    try:
        outcome = chosen(RangeArguments("t", b"a"), KeyBounds(b"", None), [part])
    except Conflict as error:
        outcome = error.details["copies"]
    assert outcome == ["part"]
