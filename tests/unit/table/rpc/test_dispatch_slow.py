"""Tests that cost seconds; `test_dispatch.py` has the others."""

from __future__ import annotations

import random
import re
import signal
from dataclasses import replace

import pytest
import trio

from gossipkv.errors import (
    GossipKVError,
    NotReady,
    Unavailable,
    Unknown,
    UnknownDatabase,
)
from tests.world.nodes.phases import begin, refused, shown
from tests.world.nodes.trace import Trace
from tests.world.nodes.whole_cluster import simulate, simulated

ONE_COPY = {"kind": "hash", "partitions": 2, "replication": 1}


def anything(draw, depth=2):
    kind = draw.randrange(9 if depth else 7)
    if kind < 2:
        return draw.choice((None, True, 0, 1, -1, 2**63, 1 << 48, 0.5))
    if kind < 5:
        return draw.randbytes(draw.choice((0, 1, 8, 16, 16, 20, 32)))
    if kind == 5:
        return draw.choice(("", "t", "n1", "hash", "\0", "x" * 300))
    if kind == 6:
        return {draw.choice(("kind", "replication", "operation", "limit")): draw.choice(("hash", 1, b"", None))}
    return [anything(draw, depth - 1) for _ in range(draw.randrange(4))]


@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_a_defect(seed):
    """Any request with the right number of parameters yields an answer or an error of the client."""
    counts = {
        "create_table": 2, "drop_table": 1, "partition_map": 2, "metadata_status": 1, "metadata_join": 2,
        "metadata_leave": 2, "register": 1, "map_changes": 2, "map_page": 2, "metadata_transact": 3,
        "metadata_look": 1, "metadata_invite": 1,
        "verify_table": 2, "table_digest": 4, "table_sizes": 1, "table_divide": 2,
        "add_node": 2, "remove_node": 2, "replace_node": 3,
        "set_weight": 2, "reshard": 2, "split": 2, "plan": 1,
    }  # fmt: skip

    async def scenario(cluster):
        draw = random.Random(seed)
        (machine,) = cluster.machines
        await machine.start()
        await cluster.ask(machine, "create_table", "t", ONE_COPY)
        for _ in range(300):
            method = draw.choice(sorted(counts))
            params = [anything(draw) for _ in range(counts[method])]
            try:
                await cluster.ask(machine, method, *params, timeout_s=70)
            except GossipKVError as error:
                assert error.code not in {"INTERNAL", "TIMEOUT", "UNKNOWN_METHOD"}, (method, params, error.message)
        assert await cluster.ask(machine, "ping") == "pong"

    simulate(scenario, seed, machines=1)


@simulated(4)
async def test_a_node_that_is_gone_is_replaced(cluster):
    """One request per register replaces the node, and each obstacle has a clear error."""
    await begin(cluster)
    one, *others = cluster.machines
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    await grown_to(cluster, one, 3)
    deciding = await deciders(cluster, one)
    old = next(machine for machine in others if machine.name in deciding)
    (new,) = (machine for machine in cluster.machines if machine.name not in deciding)

    async def words(*params):
        error = await refused(cluster, one, "metadata_replace", *params)
        return error.message, error.details.get("register")

    assert (await words(None, "n9", new.name))[0].startswith("the cluster has no member n9: `gossipkv metadata status`")
    assert await words(None, old.name, "n9") == ("the cluster has no member n9", None)
    assert isinstance(await refused(cluster, one, "metadata_replace", "nothing", old.name, "n1"), UnknownDatabase)
    old.kill()
    await shown(cluster, old, "dead", 60)
    assert "not a live member of this cluster" in (await words(None, one.name, old.name))[0]
    for table in (None, "t"):
        had = old.name in await deciders(cluster, one, table)
        for is_new in (had, False):
            told = await cluster.ask(one, "metadata_replace", table, old.name, new.name, timeout_s=30)
            assert (told["table"], told["replaced"]) == (table, is_new)
        assert sorted(told["nodes"]) == await deciders(cluster, one, table)
        assert (len(told["nodes"]), old.name in told["nodes"]) == (3, False)
        assert not (await cluster.ask(one, "metadata_replace", table, "n1", "n1", timeout_s=30))["replaced"]
    message, register = await words(None, new.name, one.name)
    assert ("no other node can take the place" in message, register) == (True, "the catalogue")
    for machine in others:
        machine.kill()
    message, register = await words("t", new.name, one.name)
    assert ("`gossipkv metadata force --help`" in message, register) == (True, "t")


@simulated(3)
async def test_a_node_that_has_lost_its_store_takes_its_own_place(cluster):
    """The node has its name and another uuid, which is found as long as no other node is gone."""
    await begin(cluster)
    one, other, third = cluster.machines
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    await grown_to(cluster, one, 3)
    for machine in (other, third):
        machine.kill()
        await shown(cluster, machine, "dead", 60)
        machine.lose_disk()
        machine.config = replace(machine.config, join=(one.address,))
        await machine.start()
        await shown(cluster, machine, "alive", 60)
        for table in (None, "t"):
            told = await cluster.ask(one, "metadata_replace", table, machine.name, machine.name, timeout_s=30)
            assert (told["replaced"], machine.name in told["nodes"]) == (True, True)
    for table in (None, "t"):
        assert await deciders(cluster, one, table) == ["n1", "n2", "n3"]


async def deciders(cluster, machine, table=None):
    """Return the names of the nodes that decide on the catalogue, or on a table."""
    told = await cluster.ask(machine, "metadata_status", table)
    return sorted(each["node"] for each in told[0]["new"])


@simulated(3)
async def test_a_majority_that_is_lost(cluster):
    """Nothing is decided until a force names all survivors; the answer says what may be lost."""
    await begin(cluster)
    one, *others = cluster.machines
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    await grown_to(cluster, one, 3)
    for machine in others:
        machine.kill()
    error = await refused(cluster, one, "create_table", "u", ONE_COPY)
    assert isinstance(error, Unavailable | Unknown)
    assert await cluster.ask(one, "databases") == [{"name": "t", "kind": "hash"}]
    told = await cluster.ask(one, "metadata_force", None, ["n1"], timeout_s=60)
    assert [each["node"] for each in told["new"]] == ["n1"]
    assert re.search("only accepted by (n2, n3|n3, n2) are lost", told["lost"])
    await cluster.ask(one, "create_table", "u", ONE_COPY, timeout_s=60)
    for machine in others:
        await machine.start()

    async def follows():
        """Return True once the nodes have dropped their own knowledge and follow."""
        told = [await cluster.ask(machine, "databases") for machine in cluster.machines]
        return all(len(each) == 2 for each in told)

    await cluster.until(follows, within_s=90)


async def grown_to(cluster, machine, count, table=None):
    """Wait until `count` nodes decide on the catalogue, or on a table."""

    async def holds():
        told = await cluster.ask(machine, "metadata_status", table)
        return len(told[0]["new"]) == count and told[0]["old"] == told[0]["new"]

    await cluster.until(holds, within_s=20)


def test_a_node_that_is_stopped():
    """Requests during the stop are answered, and no error is logged."""
    trace = Trace()

    async def scenario(cluster):
        (machine,) = cluster.machines
        for _ in range(10):
            await machine.start()
            async with trio.open_nursery() as nursery:

                async def create(name):
                    async with cluster.connected(machine) as connection:
                        await connection.send("create_table", name, ONE_COPY)
                        response = await connection.read()
                        assert response.error is None or isinstance(response.error, Unavailable | Unknown)

                for _ in range(3):
                    nursery.start_soon(create, f"t{cluster.chance.getrandbits(60)}")
                await trio.sleep(cluster.chance.uniform(0.001, 0.1))
                machine.tell(signal.SIGTERM)
                await machine.ended()
            assert machine.error is None

    simulate(scenario, 1, machines=1, trace=trace)
    assert [line for line in trace.lines if " error event=" in line] == []


@simulated(3)
async def test_a_table_that_is_listed_and_not_known_yet(cluster):
    """A node that has heard of a new table answers NOT_READY until it has the map, never UNKNOWN_DATABASE."""
    await begin(cluster)
    one, *others = cluster.machines
    await cluster.ask(one, "create_table", "first", ONE_COPY, timeout_s=30)
    await trio.sleep(10)
    seen = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.ask, one, "create_table", "t", ONE_COPY)
        for other in others:
            while True:
                listed = [each["name"] for each in await cluster.ask(other, "databases")]
                try:
                    await cluster.ask(other, "partition_map", "t")
                    break
                except GossipKVError as error:
                    if "t" in listed:
                        seen.add(type(error))
                await trio.sleep(0.001)
    assert seen == {NotReady}


@simulated(3)
async def test_a_decision_ends_in_the_time_that_the_client_allows(cluster):
    """The timeout holds at each step while two of three nodes are cut off; the default is ten seconds."""
    await begin(cluster)
    one, *others = cluster.machines
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    await trio.sleep(20)
    cluster.network.partition([one.host], [other.host for other in others])
    for method, params in (("create_table", ("u", ONE_COPY)), ("drop_table", ("t", {}))):
        for timeout_ms in (300, 2_000, None):
            began = trio.current_time()
            error = await refused(cluster, one, method, params[0], {**params[1], "timeout_ms": timeout_ms})
            assert isinstance(error, Unavailable | Unknown), error
            assert trio.current_time() - began <= (timeout_ms or 10_000) / 1000 + 0.1
