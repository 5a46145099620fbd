"""Ranges are split while they serve: no client notices, and the cluster comes to rest."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import trio

from gossipkv.errors import Conflict, NotReady, TimedOut, Unavailable, Unknown, UnknownDatabase
from tests.unit.table.divided_cluster import KEYS, Traffic, everywhere, ranges, rest, shown_by
from tests.unit.table.moved_cluster import CONFIG, begin, come, die, hosts, placed
from tests.world.nodes.phases import shown
from tests.world.nodes.whole_cluster import simulated
from tests.world.replication.scans import Asked

RANGE = {"kind": "range", "replication": 3}
HELD_S = 600
SMALL = replace(CONFIG, split_rows=30)  # There are 48 keys; replaced records count until they are compacted.
# While a node dies, writes may fail that it originated or that too few nodes can confirm.
AMID_DEATHS = {(what, kind) for what in ("put", "delete") for kind in ("Unknown", "Unavailable")}


async def laid(cluster, but=None):
    """Start all machines except `but` and make a range table; return the running machines."""
    await begin(cluster, but)
    machines = [one for one in cluster.machines if one is not but]
    await cluster.ask(machines[0], "create_table", "t", RANGE, timeout_s=30)

    async def holds():
        """Return True once all nodes know three acceptors of the catalogue and of the table."""
        with contextlib.suppress(NotReady, UnknownDatabase):
            told = [await cluster.ask(machine, "metadata_status", None) for machine in machines]
            return all(len(each) == 2 and all(map(_has_three, each)) for each in told)
        return False

    await cluster.until(holds, within_s=60)
    return machines


def _has_three(register):
    return len(register["old"]) == len(register["new"]) == 3


async def divided(cluster, machine, count):
    async def holds():
        return len(await ranges(cluster, machine)) >= count

    await cluster.until(holds, within_s=60)


async def split(cluster, machine, key):
    """Split a range, with retries."""
    with trio.fail_after(60):
        while True:
            try:
                await cluster.ask(machine, "split", "t", key)
            except (Conflict, Unavailable, Unknown, TimedOut) as error:
                if "already" in error.message:
                    return
                await trio.sleep(1)  # The range moves, or no quorum is reachable.
            else:
                return


@simulated(3, config=SMALL)
async def test_by_size_and_by_people(cluster):
    """No read, write or scan fails; no former assignment remains, and then moves stop."""
    machines = await laid(cluster)
    traffic = Traffic(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        await divided(cluster, machines[0], 3)
        for machine, key in zip(machines, (b"k", b"k2", b"k33+"), strict=True):
            await cluster.ask(machine, "split", "t", key)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert (min(traffic.done.values()) > 20, {**traffic.failed}) == (True, {})
    found = await rest(cluster, machines[0])
    assert len(found) >= 6
    assert {b"", b"k", b"k2", b"k33+"} <= {*found}
    await everywhere(cluster, traffic, machines)


@pytest.mark.parametrize("power", [False, True])
@simulated(3, config=SMALL)
async def test_nodes_that_crash(cluster, power):
    """Nodes crash in turn during splits and soon after their return; all acknowledged writes stay."""
    machines = await laid(cluster)
    traffic = Traffic(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        for number in range(6):
            victim = machines[number % 3]
            others = [one for one in machines if one is not victim]
            at = cluster.chance.choice(KEYS) + b"+%d" % number
            async with trio.open_nursery() as both:
                both.start_soon(split, cluster, others[0], at)
                await trio.sleep(cluster.chance.uniform(0, 0.05))
                victim.lose_power() if power else victim.kill()
            await trio.sleep(cluster.chance.uniform(0, 10))
            await victim.start()
            await trio.sleep(cluster.chance.uniform(0, 10))
        nursery.cancel_scope.cancel()
    assert {(what, kind) for what, kind, _ in traffic.failed} <= AMID_DEATHS
    assert len(await rest(cluster, machines[0])) >= 6
    await everywhere(cluster, traffic, machines)


async def answer_of(cluster, machine):
    """Return the error of a get at a node; None: it answers."""
    try:
        await cluster.ask(machine, "get", "t", KEYS[0])
    except NotReady as error:
        return error
    return None


@simulated(4, config=SMALL)
async def test_a_node_more_and_one_less(cluster):
    """Children move, and moving ranges are split afterwards; a removed node ends with nothing."""
    *_, newcomer = cluster.machines
    one, *_ = await laid(cluster, newcomer)
    traffic = Traffic(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        await divided(cluster, one, 3)
        await come(cluster, newcomer)
        for command, name, left in (("add_node", "n4", 4), ("remove_node", "n2", 3)):
            await cluster.ask(one, command, name, timeout_s=30)
            for key in KEYS[5::10]:
                await split(cluster, one, key + name.encode())
            while await answer_of(cluster, newcomer) is not None:  # Until then it tells clients to wait.
                await trio.sleep(0.1)
            traffic.machines = cluster.machines
            await placed(cluster, one)
            assert len({node for node, _ in await hosts(cluster, one)}) == left
        nursery.cancel_scope.cancel()
    assert (min(traffic.done.values()) > 20, {**traffic.failed}) == (True, {})
    await rest(cluster, one)
    await everywhere(cluster, traffic, cluster.machines)
    left = await cluster.ask(cluster.machines[1], "info")
    assert left["tables"]["copies"] == 0


@simulated(4, config=SMALL)
async def test_one_that_is_gone_for_good_is_replaced(cluster):
    """A node and its disk are lost during splits; acknowledged writes survive the next loss, too."""
    *_, newcomer = cluster.machines
    one, second, gone = await laid(cluster, newcomer)
    traffic = Traffic(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        await divided(cluster, one, 3)
        await come(cluster, newcomer)
        async with trio.open_nursery() as both:
            both.start_soon(split, cluster, second, b"k20+")
            gone.kill()
            gone.lose_disk()
        await shown(cluster, gone, "dead", 60)
        await split(cluster, one, b"k22+")
        await cluster.ask(one, "replace_node", "n3", "n4", {"force": True}, timeout_s=30)
        await split(cluster, one, b"k33+")
        await placed(cluster, one)
        nursery.cancel_scope.cancel()
    assert {(what, kind) for what, kind, _ in traffic.failed} <= AMID_DEATHS
    left = [one, second, newcomer]
    assert {node for node, _ in await hosts(cluster, one)} == {"n1", "n2", "n4"}
    await rest(cluster, one)
    await everywhere(cluster, traffic, left)
    await die(cluster, second)
    await shown_by(cluster, traffic, [one, newcomer])


@simulated(3, config=SMALL)
async def test_one_that_was_away_for_many_divisions(cluster):
    """The node continues directly with the last children and keeps its records."""
    one, *_, away = machines = await laid(cluster)
    traffic = Traffic(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        await divided(cluster, one, 3)
        await die(cluster, away)
        for key in KEYS[1::6]:
            await split(cluster, one, key)
        await trio.sleep(10)
        traffic.failed.clear()
        await away.start()
        await shown(cluster, away, "alive", 60)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert {**traffic.failed} == {}
    assert {*KEYS[1::6]} <= {*await rest(cluster, machines[0])}
    await everywhere(cluster, traffic, machines)


@simulated(4, config=CONFIG)
async def test_a_cursor_that_is_held_for_long(cluster):
    """Cursors are held for ten minutes across ten splits and moves, in both directions."""
    *_, newcomer = cluster.machines
    one, *_ = await laid(cluster, newcomer)
    traffic = Traffic(cluster)
    with trio.move_on_after(10):
        await traffic.run()
    async with trio.open_nursery() as nursery:
        for reverse in (False, True):
            nursery.start_soon(traffic.scan, Asked(b"", None, reverse), 2, HELD_S / (len(KEYS) / 2))
        await trio.sleep(100)
        for number in range(10):
            await split(cluster, one, KEYS[4 * number + 1])
        await come(cluster, newcomer)
        await cluster.ask(one, "add_node", "n4", timeout_s=30)
        await placed(cluster, one)  # Before that the new node may not know the table.
        traffic.machines = cluster.machines
        with trio.move_on_after(10):
            await traffic.run()
        await cluster.ask(one, "remove_node", "n1", timeout_s=30)
        await placed(cluster, one)
    assert len(await rest(cluster, cluster.machines[0])) >= 10
    assert {**traffic.failed} == {}
    await everywhere(cluster, traffic, cluster.machines)
