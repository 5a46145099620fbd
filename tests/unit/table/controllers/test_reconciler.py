"""Replicas are made for the map's assignments and dropped when their table ends, not when it only loses its name."""

from __future__ import annotations

from itertools import pairwise

import trio

from gossipkv.placement.partition import ForcedEnd
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica.replica import PartitionRules
from gossipkv.table.controllers.reconciler import FEW, LOOK_S, hosts_of, rules_of
from tests.unit.placement.hosted import INIT, A, L, P, hosted
from tests.unit.table.record_nodes import Records


def held(node):
    return sorted(table for table, _ in node.replicas.by_partition)


def test_copies_follow_the_maps():
    """Only own assignments are reconciled, once, even in long maps; an existing replica adopts a newer map."""
    records = Records(2)
    one, two = records.nodes
    many = [b"", *(b"%04d" % number for number in range(2 * FEW))]
    wide = records.make("wide", RANGE, firsts=many, holders=lambda number: [(one, two)[number % 2]], adopted=False)
    both = records.make("both", firsts=2, holders=lambda _: [one, two], adopted=False)
    holding = one.holding()
    trio.run(holding.look)
    records.run()
    assert held(one) == sorted([wide] * (FEW + 1) + [both] * 2)
    assert held(two) == []
    spaces = one.reserve_space()
    trio.run(holding.look)
    assert one.reserve_space() == spaces + 1
    assert {copy.config for copy in one.replicas.by_partition.values()} == {records.view(wide).config}


def test_after_a_drop_the_keys_of_the_replica_alone_are_reconciled():
    """The map names this node anew for one of them; the others are not placed again, however many there are."""
    records = Records(1)
    (node,) = records.nodes
    many = [b"", *(b"%04d" % number for number in range(4 * FEW))]
    wide = records.make("wide", RANGE, firsts=many, holders=lambda _: [node], adopted=False)
    holding, place, placed = node.holding(), node.replicas.place, []
    trio.run(holding.look)
    records.run()
    node.replicas.place = lambda identity, *rest: (placed.append(identity), place(identity, *rest))
    gone = node.replicas.spaces.at(wide, many[7])
    holding.drop(gone)
    trio.run(holding.look)
    records.run()
    assert [identity.bounds.first for identity in placed] == [many[7]]
    assert held(node) == [wide] * len(many)
    trio.run(holding.look)
    assert len(placed) == 1


async def test_after_a_long_round_moves_wait_for_a_second(autojump_clock):
    """Rounds that make thousands of replicas take long; the next map need not wait several times as long."""
    holding, began = Records(1).nodes[0].holding(), []

    async def look():
        began.append(trio.current_time())
        await trio.sleep(20)

    holding.look = look
    with trio.move_on_after(60):
        await holding.run()
    assert all(later - before <= 20 + 2 * LOOK_S for before, later in pairwise(began))
    assert len(began) == 3


def test_what_a_copy_goes_by():
    """The rules say which hosts confirm for their slot or are AVAILABLE, and if this replica must load."""
    hosts = (1, 0, A), (2, 1, L), (3, 1, A), (4, 2, INIT), (5, 3, P)
    partition = hosted(7, *hosts)._replace(former=(9,), ends=(ForcedEnd(9, 3),))
    assert [(host.assignment, host.slot, host.counts, host.available) for host in hosts_of(partition)] == [
        (1, 0, True, True),
        (2, 1, False, True),
        (3, 1, True, True),
        (4, 2, True, False),
        (5, 3, False, False),  # The host is fed and has no earlier records yet.
    ]
    assert rules_of(partition, 3, 1) == PartitionRules(3, (9,), ((9, 3),), loads=False)
    assert [rules_of(partition, 3, own).loads for own in (1, 2, 3, 4)] == [False, False, False, True]
    assert not rules_of(hosted(7, (1, 0, A), (4, 1, P)), 3, 4).loads


def test_copies_of_a_table_that_has_ended_go():
    """The spaces of an ended table are dropped; if only the name of a table is gone, they stay."""
    records = Records(1)
    (node,) = records.nodes
    holding = node.holding()
    first = records.make("t", firsts=3, holders=lambda _: [node], adopted=False)
    other = records.make("u", firsts=2, holders=lambda _: [node], adopted=False)
    trio.run(holding.look)
    records.run()
    records.drop("t")  # A force of the catalogue may do so: the register of the map has not ended.
    holding = node.holding()
    trio.run(holding.look)
    assert held(node) == [first] * 3 + [other] * 2
    spaces = {copy.space for copy in node.replicas.by_partition.values() if copy.identity.table == first}
    records.on_forgotten(first)
    del records.known[first]
    trio.run(holding.look)
    records.run()
    assert held(node) == [other] * 2
    assert not spaces & node.spaces.keys()
    node.call("put", "u", b"k", b"v")


def test_copies_that_were_left_go_at_a_start():
    """The node stopped between the end of a table and the drop of its replicas; the next look drops them."""
    records = Records(1)
    (node,) = records.nodes
    table = records.make("t", firsts=3, holders=lambda _: [node])
    records.drop("t")
    del records.known[table]
    trio.run(node.holding().look)
    assert held(node) == []
