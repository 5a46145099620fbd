"""Real nodes that decide on tables."""

from __future__ import annotations

import pytest

from gossipkv.errors import Unavailable
from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import OPTIONS, Nodes, address
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_tables import SETTINGS
from tests.ci.cluster.views import names

pytestmark = pytest.mark.timeout(600)


def test_a_node_alone_in_the_dark(tmp_path):
    """After a kill of all nodes, a single restarted one shows the tables and their maps, and decides nothing."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        for name in ("carts", "users", "gone"):
            nodes.ask(2, "create_table", name, OPTIONS)
        nodes.ask(1, "drop_table", "gone")
        nodes.grown((1, 2, 3), names((1, 2, 3)))
        known = nodes.same((1, 2, 3))
        assert sorted(known) == ["carts", "users"]
        placed = assignments(nodes, 3, "carts")
        for index in (1, 2, 3):
            cluster.kill(index)
        cluster.start(3)
        assert nodes.tables(3) == known
        assert assignments(nodes, 3, "carts") == placed
        done = gossipkv("table", "show", "carts", node=address(nodes, 3))
        assert (done.returncode, b"8 partitions" in done.stdout) == (0, True), done
        assert gossipkv("metadata", "status", node=address(nodes, 3)).returncode == 3
        with pytest.raises(Unavailable):
            nodes.ask(3, "create_table", "more", {**OPTIONS, "replication": 1})
        assert nodes.tables(3) == known


def assignments(nodes, index, table):
    """Return a table's partitions as a node shows them, without node names, which are unknown without peers."""
    return [
        (one["start"], one["id"], [(each["id"], each["slot"], each["state"]) for each in one["assignments"]])
        for one in nodes.ask(index, "partition_map", table)["partitions"]
    ]
