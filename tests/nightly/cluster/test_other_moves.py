"""Moves under load for lost disks, into groups, and of growing ranges."""

from __future__ import annotations

from collections import Counter

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_moves import (
    all_know,
    check,
    held,
    is_quiet,
    lay,
    lose,
    newcomer_to,
    shares,
    starts,
    still_there,
    traffic_at,
)
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE
from tests.ci.cluster.test_divisions import ROWS, gossipkv
from tests.ci.cluster.test_moves import LEAST, PARTITIONS, SETTINGS

pytestmark = pytest.mark.timeout(600)


def test_nodes_that_are_lost_with_their_disks_are_replaced(tmp_path):
    """No read fails, nor a write once the death is known; acknowledged writes outlive the next loss of a disk."""
    with newcomer_to(tmp_path, SETTINGS, partitions=PARTITIONS) as (nodes, records):
        with traffic_at(nodes, seed=2) as traffic:
            traffic.goes_on(0.5, LEAST)
            deaths = [lose(nodes, 2, left=(1, 3, 4, 5))]
            traffic.goes_on(0.5, LEAST)
            until(lambda: nodes.ask(1, "replace_node", "n2", "n5", {"force": True}), lambda _: True)
            replaced = shares(nodes, (1, 3, 4, 5), (1, 3, 4, 5))
            traffic.goes_on(0.5, LEAST)
            deaths.append(lose(nodes, 3, left=(1, 4, 5)))
            traffic.goes_on(0.5, LEAST)
        reads, writes = traffic.failures()
        assert reads == []
        assert [one for one in writes if not any(one.is_amid(death) for death in deaths)] == []
        assert min(traffic.counts()) >= 8 * LEAST
        assert replaced == dict.fromkeys(["n1", "n3", "n4", "n5"], 3 * PARTITIONS // 4)
        check(nodes, traffic, 1)
        assert still_there(nodes.cluster, 1, records) == []


def test_a_table_is_put_into_groups_and_out_of_them(tmp_path):
    """No read or write fails; each shard is placed in its group, and finally on any nodes again."""
    with Cluster(tmp_path, nodes=5, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 6))
        records = lay(cluster, partitions=PARTITIONS, replication=2)
        all_know(nodes, range(1, 6))
        with traffic_at(nodes, seed=4) as traffic:
            traffic.goes_on(0.5, LEAST)
            for groups in (2, 1):
                formed = nodes.ask(groups, "reshard", TABLE, groups)["groups"]
                until(lambda formed=formed: astray(nodes, 3, formed), lambda found: found == [])
                shares(nodes, range(1, 6), range(1, 6))
                traffic.goes_on(0.5, LEAST)
        assert traffic.failures() == ([], [])
        assert min(traffic.counts()) >= 6 * LEAST
        check(nodes, traffic, 1)
        assert still_there(cluster, 1, records) == []


def test_a_newcomer_gets_ranges(tmp_path):
    """A new node gets ranges while clients read and write; then no move is planned, and all records exist."""
    with Cluster(tmp_path, nodes=3, settings={**SETTINGS, "split_rows": str(ROWS)}) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 4))
        records = lay(cluster, kind="range", replication=2)
        until(lambda: len(starts(nodes, 1)), lambda count: count >= 6)
        cluster.add()
        nodes.all_alive(range(1, 5))
        with traffic_at(nodes, seed=1) as traffic:
            # This fails while n4 is suspect.
            until(lambda: nodes.ask(1, "add_node", "n4"), lambda _: True)
            until(lambda: Counter(one.node for one in held(nodes, 1))["n4"], lambda count: count >= 2)
            traffic.goes_on(0.5, LEAST)
        assert traffic.failures() == ([], [])
        at = cluster.node(4).address
        told = f"{TABLE}: nothing more to move\n"
        until(lambda: (gossipkv("table", "plan", TABLE, "--node", at).stdout, is_quiet(nodes, 2)), (told, True).__eq__)
        check(nodes, traffic, 1)
        assert still_there(cluster, 4, records) == []


def astray(nodes, index, formed):
    return [one for one in held(nodes, index) if one.node not in formed[one.partition % len(formed)]]
