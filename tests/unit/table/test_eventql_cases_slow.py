"""One test per statement of EventQL's text on creating, splitting, joining and leaving (seed 002): whole nodes."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import Conflict, GossipKVError, NotServed
from gossipkv.table.controllers.rebalancer import Rebalancer
from tests.unit.table.rpc.test_node_admin import die, made
from tests.world.nodes.phases import refused, shown
from tests.world.nodes.whole_cluster import simulated

ONE_RANGE = {"kind": "range", "replication": 3}
NODES = {"n1", "n2", "n3", "n4"}
RECORDS = {b"k%02d" % number: b"%d" % number for number in range(20)}


@pytest.fixture(autouse=True)
def nobody_plans(monkeypatch):
    """Turn the rebalancer off, since EventQL has no master."""

    async def look(_):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Rebalancer, "look", look)


async def partitions(cluster, machine):
    """Return by first key the partition's id, and the state and assignment id of each node."""
    told = await cluster.ask(machine, "partition_map", "t")
    return {
        each["start"]: (each["id"], {one["node"]: (one["state"], one["id"]) for one in each["assignments"]})
        for each in told["partitions"]
    }


async def hosts(cluster, machine, key=b""):
    """Return the hosts of the range that begins at a key."""
    return (await partitions(cluster, machine))[key][1]


async def at_rest(cluster, machine, key=b""):
    """Return the hosts of a range, once it has no moves."""
    with trio.fail_after(60):
        while any(state != "AVAILABLE" for state, _ in (await hosts(cluster, machine, key)).values()):
            await trio.sleep(0.1)
    return await hosts(cluster, machine, key)


async def filled(cluster, machine):
    """Write all records, acknowledged by a majority."""
    for key, value in RECORDS.items():
        await cluster.ask(machine, "put", "t", key, value, {"timeout_ms": 9000})


async def has_all(cluster, machine, *, local):
    """Wait until a node answers with every record; `local`: from its own replicas."""
    for key, value in RECORDS.items():
        with trio.fail_after(30):
            while True:
                try:
                    found, _ = await cluster.ask(machine, "get", "t", key, {"local": local})
                except GossipKVError:
                    found = None
                if found == value:
                    break
                await trio.sleep(0.1)


async def serves(cluster, machine):
    """Return True if a node answers from a replica of its own."""
    try:
        await cluster.ask(machine, "get", "t", b"k00", {"local": True})
    except NotServed:
        return False
    return True


def named(cluster, name):
    return next(machine for machine in cluster.machines if machine.name == name)


@simulated(4)
async def test_initial_partition_assignment(cluster):
    """A table begins as one partition over all keys, on its initial servers without any join."""
    one = await made(cluster, ONE_RANGE)
    ((first, (_, nodes)),) = (await partitions(cluster, one)).items()
    assert (first, len(nodes), {state for state, _ in nodes.values()}) == (b"", 3, {"AVAILABLE"})
    for key in b"", b"\0", b"m", b"\xff" * 300:
        await cluster.ask(one, "put", "t", key, b"v", {"level": "all"})
    found, *_ = await cluster.ask(one, "scan", "t")
    assert [key for key, _ in found] == [b"", b"\0", b"m", b"\xff" * 300]


@simulated(4)
async def test_any_server_initiates_a_split(cluster):
    """The children replace the parent in the list, on its servers and with its records."""
    one = await made(cluster, ONE_RANGE)
    await filled(cluster, one)
    ((_, (parent, before)),) = (await partitions(cluster, one)).items()
    for number, machine in enumerate(cluster.machines):
        await cluster.ask(machine, "split", "t", b"k%02d" % (4 * number + 4))
    after = await partitions(cluster, machine)
    assert [*after] == [b"", b"k04", b"k08", b"k12", b"k16"]
    assert parent not in {id_ for id_, _ in after.values()}
    assert {frozenset(nodes) for _, nodes in after.values()} == {frozenset(before)}
    for machine in cluster.machines:
        await has_all(cluster, machine, local=machine.name in before)


@simulated(4)
async def test_of_two_splits_at_once_one_commits_first(cluster):
    """By a compare-and-swap the other split fails, or succeeds against the new map."""
    one = await made(cluster, ONE_RANGE)
    ends = []

    async def split(machine, key):
        try:
            await cluster.ask(machine, "split", "t", key)
            ends.append(None)
        except GossipKVError as error:
            ends.append(type(error))

    async with trio.open_nursery() as nursery:
        for machine, key in zip(cluster.machines, (b"a", b"a", b"b", b"b"), strict=True):
            nursery.start_soon(split, machine, key)
    assert sorted(ends, key=repr) == [Conflict, Conflict, None, None]
    with trio.fail_after(30):  # Wait until this node has heard of both.
        while [*await partitions(cluster, one)] != [b"", b"a", b"b"]:
            await trio.sleep(0.1)


@simulated(4, seed=2)
async def test_a_server_that_has_not_finished_the_split(cluster):
    """The server hears that the parent is invalid, and continues with the children and later writes."""
    one = await made(cluster, ONE_RANGE)
    away = named(cluster, max(await hosts(cluster, one)))
    await die(cluster, away)
    await cluster.ask(one, "split", "t", b"k10")
    await filled(cluster, one)
    await away.start()
    await shown(cluster, away, "alive", 60)
    await has_all(cluster, away, local=True)


@simulated(4)
async def test_a_server_joins(cluster):
    """The joining server gets writes and no reads until it is complete; then it is live under a new assignment."""
    one = await made(cluster, ONE_RANGE)
    await filled(cluster, one)
    before = await hosts(cluster, one)
    (name,) = NODES - before.keys()
    joining = named(cluster, name)
    told = await cluster.ask(one, "join", "t", b"k", name)
    states = set()
    with trio.fail_after(60):
        while (state := (await hosts(cluster, one))[name][0]) != "AVAILABLE":
            states.add(state)
            assert not await serves(cluster, joining) or (await hosts(cluster, joining))[name][0] == "AVAILABLE"
            await trio.sleep(0.02)
    assert states <= {"PROPOSED", "INITIALIZING"}
    assert states
    await has_all(cluster, joining, local=True)
    await at_rest(cluster, one)  # A former host may still be leaving.
    await cluster.ask(one, "leave", "t", b"k", name)
    await at_rest(cluster, one)
    again = await cluster.ask(one, "join", "t", b"k", name)
    assert again["partition"] == told["partition"]
    first = {id_ for _, id_ in before.values()}
    assert (await at_rest(cluster, one))[name][1] not in first


@simulated(4)
async def test_a_server_leaves(cluster):
    """The server drops its records once all others have them; at least three live replicas remain."""
    one = await made(cluster, ONE_RANGE)
    await filled(cluster, one)
    before = await hosts(cluster, one)
    leaver = named(cluster, max(before))
    await cluster.ask(one, "leave", "t", b"k", leaver.name)
    with trio.fail_after(60):
        while leaver.name in (now := await hosts(cluster, one)):
            assert sum(state in {"AVAILABLE", "LEAVING"} for state, _ in now.values()) >= 3
            await trio.sleep(0.02)
    assert now.keys() == NODES - {leaver.name}
    for name in now:
        await has_all(cluster, named(cluster, name), local=True)
    with trio.fail_after(60):
        while await serves(cluster, leaver):
            await trio.sleep(0.1)


@simulated(3)
async def test_no_partition_falls_below_its_replicas(cluster):
    """A leave is refused if no other server can come."""
    one = await made(cluster, ONE_RANGE)
    before = await hosts(cluster, one)
    for name in before:
        error = await refused(cluster, one, "leave", "t", b"k", name)
        assert (type(error), "fewer than 3 replicas" in error.message) == (Conflict, True)
    assert await hosts(cluster, one) == before


@simulated(4)
async def test_inserts_go_on(cluster):
    """While servers split, join and leave, no insert fails, and every server finds all records."""
    one, two, *_ = cluster.machines
    await made(cluster, ONE_RANGE)
    (name,) = NODES - (await hosts(cluster, one)).keys()

    async def change():
        await cluster.ask(one, "join", "t", b"k", name, timeout_s=30)
        await at_rest(cluster, one)
        await cluster.ask(two, "split", "t", b"k10", timeout_s=30)
        await cluster.ask(one, "leave", "t", b"k15", name, timeout_s=30)
        await at_rest(cluster, one, b"k10")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        for _ in range(10):
            await filled(cluster, two)
    for machine in cluster.machines:
        await has_all(cluster, machine, local=False)
