"""A node is away while more is written than the other nodes' logs keep: it bulk-loads, deletes included."""

from __future__ import annotations

import random
import time

import pytest

from gossipkv.errors import Unavailable
from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE, TIMEOUT_MS, held, prepare, trouble
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(600)

SETTINGS = {**LOGGED, "refresh_period": "off", "table_log": "1MiB", "table_segment": "1MiB"}
VALUE_BYTES = 64 << 10
VALUES = 480  # 30 MiB: more than segments, log and in-memory feeds hold.


def put(client, key, value):
    """Write, with retries while small memtables are full."""
    while True:
        try:
            client.table(TABLE).put(key, value)
        except Unavailable:
            time.sleep(0.05)
        else:
            return


def test_a_node_is_away_for_longer_than_the_logs_last(tmp_path):
    """The node gets everything, deletes included, and has it still when another node is killed for good."""
    random_bytes = random.Random(1).randbytes
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        prepare(cluster)
        expected = {b"old/%d" % number: random_bytes(100) for number in range(100)}
        with cluster.connect(1, timeout_ms=TIMEOUT_MS) as client:
            client.table(TABLE).put_many(expected.items(), level="all")
            cluster.kill(3)
            gone = [key for number, key in enumerate(expected) if number % 2]
            for key in gone:
                client.table(TABLE).delete(key)
                expected[key] = None
            for number in range(VALUES):
                value = random_bytes(VALUE_BYTES)
                put(client, b"new/%d" % number, value)
                expected[b"new/%d" % number] = value
        cluster.start(3)
        keys = sorted(expected)

        def lacks():
            found = {}
            for at in range(0, len(keys), 100):
                found |= held(cluster, 3, keys[at : at + 100])
            return [key for key in keys if found[key] != expected[key]]

        until(lacks, lambda found: not found)
        until(lambda: cluster.log(3).count('"what": "done"'), lambda count: count)
        cluster.kill(1)
        assert not lacks()
        assert trouble(cluster) == []
