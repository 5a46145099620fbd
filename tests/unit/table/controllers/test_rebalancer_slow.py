"""Tables move while they serve: the wanted placement is reached step by step, and no client notices."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from gossipkv.table.controllers.rebalancer import FAILURES
from tests.unit.table.moved_cluster import (
    CONFIG,
    STALL_S,
    Load,
    begin,
    come,
    die,
    everywhere,
    hosts,
    placed,
)
from tests.world.nodes.whole_cluster import simulated

THREE = {"kind": "hash", "partitions": 12, "replication": 3}
TWO = {**THREE, "replication": 2}
READS = 100


def nodes_of(found):
    return {node for node, _ in found}


async def spread_over(cluster, machines, options):
    """Start these machines, and make a table on them; return the first machine."""
    for one in cluster.machines:
        if one not in machines:
            await begin(cluster, one)
            break
    else:
        await begin(cluster)
    await cluster.ask(machines[0], "create_table", "t", options, timeout_s=30)
    return machines[0]


@simulated(4, config=CONFIG)
async def test_a_node_more_and_one_less(cluster):
    """A node joins and a node is removed under load at all nodes; no request fails, then no more moves follow."""
    *three, newcomer = cluster.machines
    one = await spread_over(cluster, three, THREE)
    load = Load(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await come(cluster, newcomer)
        load.machines, reads_amid_moves, joining = cluster.machines, 0, "n4"
        while reads_amid_moves < READS:  # Repeat until enough reads have met moves.
            before = load.reads
            for command, name, left in (("add_node", joining, 4), ("remove_node", "n2", 3)):
                await cluster.ask(one, command, name, timeout_s=30)
                await placed(cluster, one)
                assert len(nodes_of(await hosts(cluster, one))) == left
            reads_amid_moves, joining = reads_amid_moves + load.reads - before, "n2"
        nursery.cancel_scope.cancel()
    assert {**load.failed} == {}
    await everywhere(cluster, load)
    await trio.sleep(10)
    before = await cluster.ask(one, "partition_map", "t")
    left = await cluster.ask(cluster.machines[1], "info")
    assert left["tables"]["copies"] == 0
    await trio.sleep(60)
    assert await cluster.ask(one, "partition_map", "t") == before


@pytest.mark.parametrize("options", [TWO, THREE])
@simulated(4, config=CONFIG)
async def test_one_that_is_gone_for_good_is_replaced(cluster, options):
    """After the loss of a disk, the others have all acknowledged writes again, even with two replicas."""
    *three, newcomer = cluster.machines
    one = await spread_over(cluster, three, options)
    load = Load(cluster, level="all" if options is TWO else "majority")
    with trio.move_on_after(10):
        await load.run()
    written = {**load.written}
    await come(cluster, newcomer)
    await die(cluster, three[2])
    three[2].lose_disk()
    await cluster.ask(one, "replace_node", "n3", "n4", {"force": True}, timeout_s=30)
    await placed(cluster, one)
    assert nodes_of(await hosts(cluster, one)) == {"n1", "n2", "n4"}
    await die(cluster, three[1])  # Lose a second node.
    load.written = written
    await everywhere(cluster, load)


@simulated(4, config=CONFIG)
async def test_who_comes_back_is_set_aside(cluster):
    """The replaced node's replicas are quarantined and not served until operators drop them."""
    *three, newcomer = cluster.machines
    one = await spread_over(cluster, three, TWO)
    load = Load(cluster)
    with trio.move_on_after(5):
        await load.run()
    await come(cluster, newcomer)
    gone = three[2]
    await die(cluster, gone)
    await cluster.ask(one, "replace_node", "n3", "n4", {"force": True}, timeout_s=30)
    await placed(cluster, one)
    await gone.start()
    await trio.sleep(20)
    aside = await cluster.ask(one, "quarantine_list")
    assert {(row["node"], row["table"]) for row in aside} == {("n3", "t")}
    assert any(row["bytes"] > 0 for row in aside)
    await everywhere(cluster, load)
    for row in aside:
        await cluster.ask(one, "quarantine_drop", row["node"], row["copy"])
    assert await cluster.ask(one, "quarantine_list") == []
    await gone.stop()
    await gone.start()
    assert await cluster.ask(gone, "quarantine_list") == []


@simulated(4, config=CONFIG)
async def test_a_target_that_is_down_is_given_up(cluster):
    """After repeated failures the target is passed over and reported; its partitions stay at their sources."""
    *three, newcomer = cluster.machines
    one = await spread_over(cluster, three, THREE)
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=30)
    load = Load(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(FAILURES):
            await cluster.until(lambda: _is_target(cluster, one, "n4"), within_s=60)
            newcomer.kill()
            await trio.sleep(20 * STALL_S)
            await newcomer.start()
        await trio.sleep(20 * STALL_S)
        nursery.cancel_scope.cancel()
    found = await hosts(cluster, one)
    assert {state for _, state in found} == {"AVAILABLE"}
    told = [await cluster.ask(each, "status", {"database": "t"}) for each in three]
    (passed,) = [each["t"]["passed_over"] for each in told if each["t"]["passed_over"]]
    assert 0 < passed["n4"] <= 3600
    await everywhere(cluster, load)


@simulated(4, config=replace(CONFIG, max_moves=1))
async def test_a_target_that_was_down_has_its_share_later(cluster):
    """No move begins while the target is down; all are done once it is up and not passed over."""
    *three, newcomer = cluster.machines
    one = await spread_over(cluster, three, THREE)
    await come(cluster, newcomer)
    await cluster.ask(one, "add_node", "n4", timeout_s=30)
    newcomer.kill()
    await trio.sleep(20 * STALL_S)
    assert nodes_of(await hosts(cluster, one)) == {"n1", "n2", "n3"}
    await newcomer.start()
    await placed(cluster, one)
    assert nodes_of(await hosts(cluster, one)) == {"n1", "n2", "n3", "n4"}


async def _is_target(cluster, machine, name):
    found = await hosts(cluster, machine)
    return any(state != "AVAILABLE" for node, state in found if node == name)


@simulated(4, config=CONFIG)
async def test_a_death_changes_nothing_that_is_wanted(cluster):
    """Only operators change the placement, however long a node is away."""
    one = await spread_over(cluster, cluster.machines, THREE)
    before = (await cluster.ask(one, "partition_map", "t"))["partitions"]
    await die(cluster, cluster.machines[-1])
    await trio.sleep(600)
    assert (await cluster.ask(one, "partition_map", "t"))["partitions"] == before


@simulated(4, config=CONFIG)
async def test_groups_are_moves(cluster):
    """The number of groups is raised and lowered under load."""
    one = await spread_over(cluster, cluster.machines, TWO)
    load = Load(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for groups in (2, 1, 0):
            await cluster.ask(one, "reshard", "t", groups, timeout_s=30)
            await placed(cluster, one)
            told = await cluster.ask(one, "partition_map", "t")
            sets = {frozenset(row["node"] for row in part["assignments"]) for part in told["partitions"]}
            assert groups != 2 or len(sets) == 2
        nursery.cancel_scope.cancel()
    assert load.failed == {}
    await everywhere(cluster, load)
