"""Tests that cost seconds; `test_node_admin.py` has the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unavailable, Unknown
from tests.unit.table.rpc.test_node_admin import TWO_COPIES, come, die, made, planned, say, standing
from tests.world.nodes.phases import refused, shown
from tests.world.nodes.whole_cluster import USUAL, simulated


async def holding(cluster, machine, table):
    told = await cluster.ask(machine, "partition_map", table)
    return {one["node"] for partition in told["partitions"] for one in partition["assignments"]}


async def placed(cluster, machine, table="t"):
    """Wait until a table has its wanted placement and no move is under way."""
    with trio.fail_after(300):
        while True:
            is_begun = not (await planned(cluster, machine, table))[0]
            told = await cluster.ask(machine, "partition_map", table)  # The map is at least as new as the plan.
            states = {one["state"] for partition in told["partitions"] for one in partition["assignments"]}
            if is_begun and states == {"AVAILABLE"}:
                return
            await trio.sleep(1)


@simulated(4)
async def test_each_command_once_and_twice(cluster):
    """Commands work at any node and are idempotent, and the wanted placement is finally reached."""
    *_, newcomer = cluster.machines
    one = await made(cluster, but=newcomer)
    await come(cluster, newcomer)
    steps = [
        ("add_node", ["n4"], 1), ("add_node", ["n4", {"weight": 3, "isolation_group": "r"}], (3, "r")),
        ("add_node", ["n4", {"isolation_group": "none"}], 3), ("set_weight", ["n4", 1000], 1000),
        ("remove_node", ["n4"], 0), ("add_node", ["n4", {"weight": 2}], 2),
    ]  # fmt: skip
    for method, params, expected in steps:
        for machine, is_new in ((newcomer, True), (one, False)):
            nodes = {"n1": 1, "n2": 1, "n3": 1, "n4": expected}
            assert await say(cluster, machine, method, *params) == (is_new, nodes), (method, params)
    for is_new in (True, False):
        assert await say(cluster, one, "remove_node", "n3") == (is_new, {"n1": 1, "n2": 1, "n3": 0, "n4": 2})
    for is_new in (True, False):  # The new node inherits the weight of the replaced node.
        assert await say(cluster, one, "replace_node", "n4", "n3") == (is_new, {"n1": 1, "n2": 1, "n3": 2, "n4": 0})
    assert "was removed" in (await refused(cluster, one, "set_weight", "n4", 5)).message
    told = await cluster.ask(newcomer, "placement_nodes")
    assert standing(told) == {"n1": 1, "n2": 1, "n3": 2, "n4": 0}
    assert {(row["member"], row["alive"], len(row["uuid"])) for row in told["nodes"]} == {(True, True, 32)}
    await placed(cluster, one)
    assert await holding(cluster, one, "t") == {"n1", "n2", "n3"}


@simulated(4)
async def test_what_is_said_at_once(cluster):
    """Concurrent commands act as in some order: all additions succeed, and one of two conflicting removals."""
    *_, newcomer = cluster.machines
    one = await made(cluster, but=newcomer)
    await come(cluster, newcomer)
    errors = []

    async def ask(machine, method, *params):
        try:
            await cluster.ask(machine, method, *params, timeout_s=60)
        except GossipKVError as error:
            errors.append(error)

    async def at_once(*commands):
        errors.clear()
        async with trio.open_nursery() as nursery:
            for number, command in enumerate(commands):
                nursery.start_soon(ask, cluster.machines[number % 4], *command)
        return standing(await cluster.ask(one, "placement_nodes")), [type(error) for error in errors]

    same = {"n1": 1, "n2": 1, "n3": 1}
    assert await at_once(*[("add_node", "n4")] * 4) == ({**same, "n4": 1}, [])
    weights = [("set_weight", f"n{number}", number) for number in range(1, 5)]
    assert await at_once(*weights) == ({"n1": 1, "n2": 2, "n3": 3, "n4": 4}, [])
    nodes, failed = await at_once(("set_weight", "n4", 1), ("remove_node", "n4"), ("add_node", "n4"))
    assert nodes["n4"] in {0, 1, 4}
    assert {*failed} <= {BadRequest}  # The weight of a removed node cannot be set.
    await cluster.ask(one, "remove_node", "n4", timeout_s=60)
    nodes, failed = await at_once(("remove_node", "n2"), ("remove_node", "n3"))
    assert (sorted(map(bool, nodes.values())), failed) == ([False, False, True, True], [Conflict])


@simulated(8)
async def test_groups(cluster):
    """Each group needs enough nodes; the command is idempotent, and a replacement inherits the group."""
    *_, newcomer = cluster.machines
    one = await made(cluster, {**TWO_COPIES, "partitions": 24}, but=newcomer)

    async def grouped(count):
        told = await cluster.ask(one, "reshard", "t", count, timeout_s=30)
        return told["changed"], sorted(map(len, told["groups"]))

    for count in (4, 7):
        error = await refused(cluster, one, "reshard", "t", count)
        assert f"t cannot have {count} groups: 7 nodes are too few" in error.message
    assert await grouped(0) == (False, [])
    for count, sizes in {1: [7], 2: [3, 4], 3: [2, 2, 3], 0: []}.items():
        assert await grouped(count) == (True, sizes)
        assert await grouped(count) == (False, sizes)
    assert (await planned(cluster, one))[1]["moves_count"] == 0
    await grouped(3)
    groups = (await cluster.ask(one, "reshard", "t", 3))["groups"]
    small = next(group for group in groups if len(group) == 2)
    old = next(name for name in small if name != "n1")
    error = await refused(cluster, one, "remove_node", old)
    assert (type(error), "needs 2 nodes in each group" in error.message) == (Conflict, True)
    other = next(name for group in groups if group != small for name in group)
    assert isinstance(await refused(cluster, one, "replace_node", old, other), Conflict)
    await come(cluster, newcomer)
    await cluster.ask(one, "replace_node", old, "n8", timeout_s=30)
    moves, _ = await planned(cluster, one)
    targets = Counter(target for (_, target), count in moves.items() for _ in range(count))
    # Eight of 24 shards belong to the group, each on both of its nodes; some may have moved while the command waited.
    assert targets["n8"] <= 8
    assert targets[old] == 0
    assert isinstance(await refused(cluster, one, "remove_node", "n8"), Conflict)
    machine = cluster.machines[int(old[1:]) - 1]
    await die(cluster, machine)
    assert (await say(cluster, one, "remove_node", old, {"force": True}))[1][old] is None
    told = await cluster.ask(one, "reshard", "t", 3, timeout_s=30)
    assert sorted("n8" if name == old else name for name in small) in [sorted(group) for group in told["groups"]]


@simulated(4)
async def test_a_plan_has_its_moves_and_their_bytes(cluster):
    """A newcomer gets its share, with the sizes from the holders; too few isolation groups cause a warning."""
    *_, newcomer = cluster.machines
    one = await made(cluster, {**TWO_COPIES, "partitions": 24}, but=newcomer)
    for number in range(100):
        await cluster.ask(one, "put", "t", b"%d" % number, bytes(100))
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=30)
    moves, told = await planned(cluster, one)
    assert moves == {("n1", "n4"): 4, ("n2", "n4"): 4, ("n3", "n4"): 4}
    assert (told["unknown"], told["warning"]) == (0, None)
    assert told["bytes"] == sum(move["bytes"] for move in told["moves"]) > 12 * 200
    assert (await planned(cluster, newcomer))[0] == moves
    for name in ("n1", "n2", "n3", "n4"):
        await cluster.ask(one, "add_node", name, {"isolation_group": "r"}, timeout_s=30)
    assert "2 replicas have only 4 nodes in 1 isolation groups" in (await planned(cluster, one))[1]["warning"]


@simulated(4, limit_s=3600, config=replace(USUAL, max_moves=1))
async def test_ranges_are_planned(cluster):
    """A newcomer gets its share with a reason; a removed node hands over all ranges; then moves stop."""
    *_, newcomer = cluster.machines
    bounds = [b"%02d" % number for number in range(1, 12)]
    one = await made(cluster, {"kind": "range", "bounds": bounds, "replication": 2}, but=newcomer)
    for number in range(120):
        await cluster.ask(one, "put", "t", b"%02d %d" % (number % 12, number), bytes(1000))
    assert (await planned(cluster, one))[1]["splits"] == []
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=30)
    moves, told = await planned(cluster, one)
    assert {target for _, target in moves} == {"n4"}
    assert told["bytes"] > 0 == told["unknown"]
    assert all(move["why"] == f"{move['from']} has 1.33 x its share of partitions" for move in told["moves"])
    await placed(cluster, one)
    assert all(5 <= count <= 7 for count in (await held(cluster, one)).values()), await held(cluster, one)
    for machine in cluster.machines:  # All nodes show the rebalancer's plan.
        assert not (await planned(cluster, machine))[0]
        assert len(await cluster.ask(machine, "plan", "t", {"local": True})) == 1
    await cluster.ask(one, "remove_node", "n2", timeout_s=30)
    moves, told = await planned(cluster, newcomer)
    assert "n2" not in {target for _, target in moves}
    assert {move["why"] for move in told["moves"] if move["from"] == "n2"} == {"n2 was removed"}
    await placed(cluster, one)
    counts = await held(cluster, one)
    assert (counts.pop("n2", 0), sorted(counts)) == (0, ["n1", "n3", "n4"])
    await trio.sleep(30)  # Let the moves settle.
    config = (await cluster.ask(one, "partition_map", "t"))["config"]
    await trio.sleep(900)
    assert (await cluster.ask(one, "partition_map", "t"))["config"] == config


async def held(cluster, machine):
    """Return the number of partitions of `t` by node."""
    told = await cluster.ask(machine, "partition_map", "t")
    return Counter(one["node"] for partition in told["partitions"] for one in partition["assignments"])


@simulated(4)
async def test_who_was_removed_and_lives_has_no_part_of_later_tables(cluster):
    """A node removed by force that returns gets nothing either."""
    one, _, third, fourth = cluster.machines
    await made(cluster)
    await cluster.ask(one, "remove_node", "n3", timeout_s=30)
    await die(cluster, fourth)
    await cluster.ask(one, "remove_node", "n4", {"force": True}, timeout_s=30)
    assert await holding(cluster, one, "t") >= {"n1", "n2"}
    await fourth.start()
    await shown(cluster, fourth, "alive", 60)
    await cluster.ask(third, "create_table", "u", TWO_COPIES, timeout_s=30)
    assert await holding(cluster, one, "u") == {"n1", "n2"}
    await cluster.ask(one, "add_node", "n4", timeout_s=30)
    await cluster.ask(one, "create_table", "v", TWO_COPIES, timeout_s=30)
    assert await holding(cluster, one, "v") == {"n1", "n2", "n4"}


@simulated(4)
async def test_partitions_wait_for_who_is_down(cluster):
    """Partitions wait for a down node until it is removed by force, which is refused for a live node."""
    *_, third, newcomer = cluster.machines
    one = await made(cluster, but=newcomer)
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=30)

    async def waits(method, *params):
        return (await cluster.ask(one, method, *params, timeout_s=30))["waits_for"]

    for method, *params in (("remove_node", "n3"), ("replace_node", "n3", "n4")):
        error = await refused(cluster, one, method, *params, {"force": True})
        assert (type(error), "n3 is alive, and --force" in error.message) == (Conflict, True)
    await die(cluster, third)
    assert await waits("remove_node", "n3") == ["n3"] == await waits("placement_nodes")
    assert isinstance(await refused(cluster, one, "add_node", "n3"), Unavailable)
    assert await waits("remove_node", "n3", {"force": True}) == []
    assert (await say(cluster, one, "remove_node", "n3"))[1]["n3"] is None  # n3 stays out.


@simulated(4)
async def test_a_command_ends_in_the_time_that_is_allowed(cluster):
    """The timeout holds while the newcomer or a majority of the deciding nodes is cut off and not yet called dead."""
    *_, newcomer = cluster.machines
    one = await made(cluster, but=newcomer)
    await come(cluster, newcomer)
    for away in ([newcomer], cluster.machines[1:]):
        await trio.sleep(20)
        cluster.network.partition([one.host], [machine.host for machine in away])
        began = trio.current_time()
        error = await refused(cluster, one, "add_node", "n4", {"timeout_ms": 1000})
        assert (type(error) in {Unavailable, Unknown}, trio.current_time() - began < 1.2) == (True, True), error
        assert standing(await cluster.ask(one, "placement_nodes", timeout_s=0.9)) == {"n1": 1, "n2": 1, "n3": 1}
        cluster.network.heal()
