"""Operators change the nodes of tables and see the planned moves: whole nodes in virtual time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, NotReady, Unavailable, UnknownDatabase
from tests.world.nodes.phases import begin, refused, shown
from tests.world.nodes.whole_cluster import USUAL, simulated

TWO_COPIES = {"kind": "hash", "partitions": 12, "replication": 2}


async def made(cluster, options=TWO_COPIES, *, but=None):
    """Start all machines except `but`, and make a table; return the first machine."""
    await begin(cluster, but)
    one = cluster.machines[0]
    await cluster.ask(one, "create_table", "t", options, timeout_s=30)
    return one


async def come(cluster, machine):
    """Start a machine that has not run, and wait until it is a member."""
    machine.config = replace(machine.config, join=(cluster.machines[0].address,))
    await machine.start()
    await shown(cluster, machine, "alive", 60)


async def die(cluster, machine):
    """Kill a machine, and wait until all nodes know."""
    machine.kill()
    await shown(cluster, machine, "dead", 60)


async def say(cluster, machine, method, *params):
    """Send a command; return its `changed` flag and the state of the nodes."""
    told = await cluster.ask(machine, method, *params, timeout_s=60)
    return told["changed"], standing(told)


def standing(told):
    """Return the weight of each node, with its isolation group if it has one."""
    return {
        one["node"]: (one["weight"], one["isolation_group"]) if one["isolation_group"] else one["weight"]
        for one in told["nodes"]
    }


async def planned(cluster, machine, table="t"):
    """Return the number of moves between each two nodes, and the whole plan."""
    (told,) = await cluster.ask(machine, "plan", table, timeout_s=60)
    assert len(told["moves"]) == told["moves_count"]
    return Counter((move["from"], move["to"]) for move in told["moves"]), told


@simulated(4)
async def test_nodes_that_are_none(cluster):
    """Unknown, foreign and dead nodes cannot be added; only present nodes can be removed."""
    *_, stranger = cluster.machines
    one = await made(cluster, but=stranger)
    await die(cluster, cluster.machines[2])
    await stranger.start()
    await trio.sleep(5)  # The node has a cluster of its own by then.
    await cluster.ask(stranger, "create_table", "t", {"kind": "hash", "replication": 1})
    uuid = (await cluster.ask(stranger, "placement_nodes"))["nodes"][0]["uuid"]
    for name, words in {
        "n9": "the cluster has no member n9", "n4": "the cluster has no member n4", "": "the cluster has no member ",
        "n3": "not a live member of this cluster", uuid: "not a live member of this cluster",
    }.items():  # fmt: skip
        for params in (("add_node", name), ("replace_node", "n2", name)):
            error = await refused(cluster, one, *params)
            assert (type(error), words in error.message) == (Unavailable, True), (params, error)
    for params in (
        ("remove_node", "n9"),
        ("remove_node", uuid),
        ("set_weight", "n4", 2),
        ("replace_node", "n9", "n2"),
    ):
        error = await refused(cluster, one, *params)
        assert (type(error), "node of tables; the nodes are: n1, " in error.message) == (BadRequest, True), (
            params,
            error,
        )
    error = await refused(cluster, one, "replace_node", "n1", "n1")
    assert error.message == "n1 is not another node of tables; the nodes are: n2, n3"
    assert standing(await cluster.ask(one, "placement_nodes")) == {"n1": 1, "n2": 1, "n3": 1}


@simulated(1)
async def test_shares_and_groups_that_cannot_be(cluster):
    """Invalid weights and groups are refused as wrong requests, without asking other nodes."""
    wrong = [0, -1, 1001, 1 << 63, "1", 0.5, True, None]
    one = await made(cluster, {"kind": "hash", "replication": 1})
    questions = [("set_weight", "n1", weight) for weight in wrong]
    questions += [("add_node", "n1", {"weight": weight}) for weight in wrong if weight is not None]
    questions += [
        ("replace_node", "n1", "n1", {"weight": 0}),
        ("reshard", "t", -1),
        ("reshard", "t", (1 << 17) + 1),
    ]
    questions += [("add_node", "n1", {"isolation_group": group}) for group in ("a b", "x" * 65, "ä", 1)]
    for method, *params in questions:
        assert isinstance(await refused(cluster, one, method, *params), BadRequest), (method, params)
    assert standing(await cluster.ask(one, "placement_nodes")) == {"n1": 1}


@simulated(4)
async def test_as_many_nodes_stay_as_there_are_replicas(cluster):
    """The last nodes that the replicas need cannot be removed, only replaced.

    A table with more replicas is refused.
    """
    *_, newcomer = cluster.machines
    one = await made(cluster, but=newcomer)
    assert isinstance(await refused(cluster, one, "create_table", "u", {"kind": "hash", "replication": 4}), Unavailable)
    await cluster.ask(one, "remove_node", "n2", timeout_s=30)
    error = await refused(cluster, one, "remove_node", "n3")
    assert (type(error), "1 other nodes have a weight, and the tables need 2" in error.message) == (Conflict, True)
    assert isinstance(await refused(cluster, one, "replace_node", "n3", "n1"), Conflict)
    await come(cluster, newcomer)
    assert (await say(cluster, one, "replace_node", "n3", "n4"))[1] == {"n1": 1, "n2": 0, "n3": 0, "n4": 1}
    moves, _ = await planned(cluster, one)
    assert {target for _, target in moves} <= {"n1", "n4"}


@simulated(3)
async def test_tables_without_groups(cluster):
    """Range tables have no groups, and an unknown table has no plan."""
    one = await made(cluster, {"kind": "range", "bounds": [b"m"], "replication": 2})
    assert "has ranges" in (await refused(cluster, one, "reshard", "t", 1)).message
    for method, *params in (("reshard", "u", 1), ("plan", "u")):
        assert isinstance(await refused(cluster, one, method, *params), UnknownDatabase)
    await cluster.ask(one, "create_table", "u", TWO_COPIES, timeout_s=30)
    assert [told["table"] for told in await cluster.ask(one, "plan", None)] == ["t", "u"]


@simulated(3)
async def test_a_name_that_is_used_again(cluster):
    """A node that lost its disk replaces its former self under the name."""
    one, _, third = cluster.machines
    await made(cluster)
    await cluster.ask(one, "set_weight", "n3", 7, timeout_s=30)
    await die(cluster, third)
    third.lose_disk()
    await come(cluster, third)
    assert "is not another node" in (await refused(cluster, one, "replace_node", "n2", "n2")).message
    for is_new in (True, False):
        told = await cluster.ask(one, "replace_node", "n3", "n3", {"force": True}, timeout_s=60)
        rows = sorted(
            (row["node"], row["member"], row["alive"], row["weight"]) for row in told["nodes"] if row["node"] == "n3"
        )
        assert (told["changed"], told["node"], told["waits_for"]) == (is_new, "n3", [])
        assert rows == [("n3", False, False, None), ("n3", True, True, 7)]
    await cluster.ask(one, "set_weight", "n3", 2, timeout_s=30)  # The live node of the name is changed.
    named = (await cluster.ask(one, "placement_nodes"))["nodes"]
    assert {row["weight"] for row in named if row["node"] == "n3"} == {None, 2}
    former = next(row["uuid"] for row in named if not row["member"])
    assert "was removed" in (await refused(cluster, one, "set_weight", former, 2)).message


@simulated(2, config=replace(USUAL, isolation_group="r", weight=5))
async def test_there_are_no_tables_yet(cluster):
    """A node without tables says so and does not become a participant; its settings apply later."""
    one, other = cluster.machines
    await begin(cluster)
    for method, *params in (("add_node", "n2"), ("remove_node", "n2"), ("placement_nodes",), ("plan", None)):
        error = await refused(cluster, one, method, *params)
        assert (type(error), "no table was ever created here" in error.message) == (NotReady, True)
    for method, *params in (("put", "t", b"k", b"v"), ("delete", "t", b"k"), ("partitions", "t", {})):
        error = await refused(cluster, one, method, *params)
        assert error.message == "there is no table t; create it with `gossipkv table create t --kind hash`"
        assert type(error) is UnknownDatabase
    assert (await cluster.ask(other, "info"))["tables"]["state"] == "none"
    await cluster.ask(one, "create_table", "t", TWO_COPIES, timeout_s=30)
    assert standing(await cluster.ask(one, "placement_nodes")) == {"n1": (5, "r"), "n2": (5, "r")}


@simulated(4, config=USUAL)
async def test_who_has_just_come_says_so(cluster):
    """From the first contact, clients are told to wait and get no error about a missing table or a wrong request."""
    newcomer = cluster.machines[-1]
    one = await made(cluster, but=newcomer)
    token = await cluster.ask(one, "put", "t", b"k", b"v")
    await come(cluster, newcomer)
    asked = [("get", b"k", {"token": token, "wait_ms": 5}), ("get", b"k"), ("put", b"k", b"v")]
    told, seen = Counter(), Counter()
    while seen["ok"] < len(asked):
        seen["ok"] = 0
        for method, *params in asked:
            try:
                await cluster.ask(newcomer, method, "t", *params)
                seen["ok"] += 1
            except GossipKVError as error:
                told[error.code, error.details.get("coming")] += 1
        await trio.sleep(0.01)
    assert {*told} <= {("NOT_READY", True)}
    assert told.total() > 0
