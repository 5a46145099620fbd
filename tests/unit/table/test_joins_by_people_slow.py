"""`join` and `leave` move a slot of a range, or are refused for one clear reason: whole nodes."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unavailable, UnknownDatabase
from gossipkv.table.controllers.rebalancer import Rebalancer
from tests.unit.table.rpc.test_node_admin import come, die, made
from tests.world.nodes.phases import refused
from tests.world.nodes.whole_cluster import simulated

RANGES = {"kind": "range", "bounds": [b"m"], "replication": 3}
NODES = {"n1", "n2", "n3", "n4"}


@pytest.fixture(autouse=True)
def nobody_plans(monkeypatch):
    """Turn the rebalancer off."""

    async def look(_):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Rebalancer, "look", look)


async def standing(cluster, machine, key=b"k"):
    """Return the slot and state of each host of a key's range."""
    told = await cluster.ask(machine, "partition_map", "t")
    (found,) = [each for each in told["partitions"] if (each["start"] == b"m") == (key >= b"m")]
    return {each["node"]: (each["slot"], each["state"]) for each in found["assignments"]}


async def said(cluster, machine, *params):
    """Return the answer of a command, or its error."""
    try:
        return await cluster.ask(machine, *params, timeout_s=60)
    except GossipKVError as error:
        return error


async def arrived(cluster, machine, key=b"k"):
    """Wait until the range has no moves; return its hosts."""
    with trio.fail_after(60):
        while True:
            found = await standing(cluster, machine, key)
            if {state for _, state in found.values()} == {"AVAILABLE"}:
                return found
            await trio.sleep(0.1)


@simulated(4)
async def test_a_node_joins_and_leaves(cluster):
    """Any node takes the commands, which are idempotent; the slot moves to the newcomer and back."""
    one, two, *_ = cluster.machines
    await made(cluster, RANGES)
    before = await standing(cluster, one)
    (comer,) = NODES - before.keys()
    told = await cluster.ask(two, "join", "t", b"k", comer, timeout_s=60)
    assert (told["table"], told["to"], told["changed"]) == ("t", comer, True)
    assert before[told["from"]] == (told["slot"], "AVAILABLE")
    assert {**told, "changed": False} == await cluster.ask(one, "join", "t", b"a", comer, timeout_s=60)
    after = await arrived(cluster, one)
    assert (after.keys(), after[comer][0]) == (before.keys() - {told["from"]} | {comer}, told["slot"])
    again = await cluster.ask(one, "join", "t", b"k", comer, timeout_s=60)
    assert again == {**told, "from": None, "changed": False}
    left = await cluster.ask(one, "leave", "t", b"k", comer, timeout_s=60)
    assert left == {**told, "from": comer, "to": told["from"]}
    assert {**left, "changed": False} == await said(cluster, two, "leave", "t", b"k", comer)
    assert await arrived(cluster, one) == before
    error = await refused(cluster, one, "leave", "t", b"k", comer)
    assert (type(error), error.details["from"], error.details["to"]) == (Conflict, comer, None)
    assert f"{comer} has no replica of the range of key 'k'" in error.message


@simulated(4)
async def test_what_is_refused(cluster):
    """Shards, unfit nodes, an unknown table and invalid arguments are refused."""
    *_, stranger = cluster.machines
    one = await made(cluster, {**RANGES, "replication": 2}, but=stranger)
    await cluster.ask(one, "create_table", "h", {"kind": "hash", "replication": 1})
    await come(cluster, stranger)
    before = await standing(cluster, one)
    (comer,) = NODES - before.keys() - {"n4"}
    for kind, words, *params in (
        (UnknownDatabase, "u", "join", "u", b"k", comer), (UnknownDatabase, "u", "leave", "u", b"k", comer),
        (BadRequest, "`gossipkv node` commands move shards", "join", "h", b"k", comer),
        (BadRequest, "`gossipkv node` commands move shards", "leave", "h", b"k", "n1"),
        (BadRequest, "n4 is not a node of tables", "join", "t", b"k", "n4"),
        (BadRequest, "add a node with `gossipkv node add`", "join", "t", b"k", "n9"),
        (BadRequest, "n9 is not a node of tables", "leave", "t", b"k", "n9"),
        (BadRequest, "key", "join", "t", 5, "n1"), (BadRequest, "node", "join", "t", b"k"),
        (BadRequest, "slot", "leave", "t", b"k", "n1", {"slot": 1}),
    ):  # fmt: skip
        error = await refused(cluster, one, *params)
        assert (type(error), words in error.message) == (kind, True), (params, error)
    await cluster.ask(one, "remove_node", comer, timeout_s=60)
    error = await refused(cluster, one, "join", "t", b"k", comer)
    assert (type(error), f"{comer} was removed" in error.message) == (BadRequest, True)
    error = await refused(cluster, one, "leave", "t", b"k", next(iter(before)))
    assert (type(error), "fewer than 2 replicas" in error.message) == (Conflict, True)
    assert await standing(cluster, one) == before


@simulated(4)
async def test_a_node_that_is_down(cluster):
    """A down node gets nothing; its slot can move away, and the move waits for it as usual."""
    one, *_, last = cluster.machines
    await made(cluster, {**RANGES, "replication": 2})
    await die(cluster, last)
    for key in b"k", b"x":
        before = await standing(cluster, one, key)
        if "n4" in before:
            told = await cluster.ask(one, "leave", "t", key, "n4", timeout_s=60)
            assert (told["from"], told["slot"]) == ("n4", before["n4"][0])
            assert told["to"] not in before
        else:
            error = await refused(cluster, one, "join", "t", key, "n4")
            assert (type(error), "not a live member of this cluster" in error.message) == (Unavailable, True)


@simulated(4)
async def test_a_range_that_moves(cluster):
    """`leave` takes a target back; meanwhile no other node may join, and the source cannot stay."""
    one, *_, last = cluster.machines
    await made(cluster, {**RANGES, "replication": 2})
    before = await standing(cluster, one)
    source = next(machine for machine in cluster.machines if machine.name == next(iter(before)))
    asked = one if source is not one else last
    await die(cluster, source)  # With two replicas, both must hear of the move.
    told = await cluster.ask(asked, "leave", "t", b"k", source.name, timeout_s=60)
    (other,) = NODES - before.keys() - {told["to"]}
    for method, node in ("join", other), ("join", source.name), ("leave", [*before][1]):
        error = await refused(cluster, asked, method, "t", b"k", node)
        assert type(error) is Conflict
        assert f"moves from {source.name} to {told['to']}: try again afterwards" in error.message
    back = await said(cluster, asked, "leave", "t", b"k", told["to"])
    assert back == {**told, "from": told["to"], "to": source.name}
    assert await standing(cluster, asked) == before
