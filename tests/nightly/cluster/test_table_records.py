"""A table on three real nodes under load: nodes are killed and restarted for a minute, or one stays dead."""

from __future__ import annotations

import os
import random
import time

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster import table_records
from tests.ci.cluster.table_nodes import Nodes
from tests.ci.cluster.table_records import DONE, Load
from tests.ci.cluster.table_sessions import Hopping, goes_on
from tests.ci.cluster.test_table_records import ALL, LEAST, SETTINGS

pytestmark = pytest.mark.timeout(900)

SECONDS = 60.0
MIN_KILLS = 5
DEAD_FROM_TO_S = (0.1, 4.0)  # The range reaches from before any suspicion until after all have called the node dead.
UP_FROM_TO_S = (0.5, 4.0)
ALONE_S = 10.0


def test_nodes_are_killed_and_come_back_for_a_minute(tmp_path, record_property):
    """No read fails, every node by itself has all acknowledged writes, and all nodes have the same content."""
    chance = random.Random(os.environ.get("KILLS_SEED", "1"))
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        kills, end_s = 0, time.monotonic() + SECONDS
        with Load(cluster.addresses, seed=1) as load:
            while time.monotonic() < end_s or kills < MIN_KILLS:
                load.goes_on(chance.uniform(*UP_FROM_TO_S), LEAST)
                victim = chance.choice(ALL)
                cluster.kill(victim)
                kills += 1
                load.goes_on(chance.uniform(*DEAD_FROM_TO_S), LEAST)
                cluster.start(victim)
            load.goes_on(0.0, LEAST)
        judged = table_records.check(cluster, load, ALL)
        record_property("measured", f"{kills} kills, writes {judged.writes}, {judged.reads} reads")
        assert judged.writes[DONE] >= LEAST * 2 * kills


def test_one_node_stays_dead(tmp_path, record_property):
    """No read fails, and majority writes go on at the living nodes, which have every acknowledged write."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        victim = random.Random(os.environ.get("KILLS_SEED", "1")).choice(ALL)
        with Load(cluster.addresses, seed=2) as load:
            load.goes_on(3.0, LEAST)
            killed_s = time.monotonic()
            cluster.kill(victim)
            load.goes_on(ALONE_S, LEAST)
        judged = table_records.check(cluster, load, [index for index in ALL if index != victim])
        ended_s = sorted(one.ended_s for one in load.writes if one.end == DONE and one.began_s > killed_s)
        gap_s = max(after - before for before, after in zip([killed_s, *ended_s], ended_s, strict=False))
        told = f"writes {judged.writes}, {judged.reads} reads; the longest time without a write {gap_s * 1000:.0f} ms"
        record_property("measured", told)


def test_sessions_hop_over_nodes_that_die(tmp_path, record_property):
    """Eight sessions ask random nodes, one of which is killed every few seconds: no answer steps back."""
    chance = random.Random(os.environ.get("KILLS_SEED", "1"))
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        end_s = time.monotonic() + SECONDS
        with Hopping(cluster.addresses, seed=1) as hopping:
            while time.monotonic() < end_s:
                goes_on(hopping, chance.uniform(*UP_FROM_TO_S), LEAST)
                victim = chance.choice(ALL)
                cluster.kill(victim)
                goes_on(hopping, chance.uniform(*DEAD_FROM_TO_S), LEAST)
                cluster.start(victim)
        record_property("measured", f"{hopping.count} answers, {hopping.refused} refused")
        assert (hopping.faults(), table_records.trouble(cluster)) == ([], [])
