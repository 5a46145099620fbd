"""Tables of a real cluster whose members are late: one is frozen, one is killed."""

from __future__ import annotations

import signal
import threading

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_cli import gossipkv

pytestmark = pytest.mark.timeout(300)

NODES = 3


def test_a_table_waits_for_members_and_says_who_was_late(tmp_path):
    """A node that is frozen for 6 s gets its replicas; a dead one is named by the command and by the status."""
    with Cluster(tmp_path, nodes=NODES) as cluster:
        address = str(cluster.addresses[0])
        # A ready node may not have heard of the third yet, and counts those that it knows.
        until(lambda: gossipkv("members", node=address).stdout.count(b"alive"), lambda alive: alive == NODES)
        cluster.send(3, signal.SIGSTOP)
        thaw = threading.Timer(6, cluster.send, (3, signal.SIGCONT))
        thaw.start()
        made = gossipkv("table", "create", "t", "--kind", "hash", node=address)
        thaw.join()
        assert made.stdout.rstrip().endswith(b"each of 64 partitions has 3 replicas"), made
        cluster.kill(3)
        asked = {"GOSSIPKV_NODE": address}
        made = gossipkv("table", "create", "u", "--kind", "hash", "--timeout", "15s", more=asked)
        assert made.stdout.rstrip().endswith(b"has 2 of 3 wanted replicas; without a replica: n3"), made
        assert b"u: 2 of 3 wanted replicas: n3 is missing" in gossipkv("status", node=address).stdout
