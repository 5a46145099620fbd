"""The local launcher: a cluster of real processes on one machine, for trying things out and for tests.

    import pytest
    from gossipkv.launcher import Cluster

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory):
        with Cluster(tmp_path_factory.mktemp("cluster"), nodes=3) as cluster:
            yield cluster

There are three kinds of process: the *launcher* (`Cluster`, `gossipkv cluster`), the *supervisor*, and its children,
the *nodes*. Each ends with the one above it, unless the launcher detaches the cluster (`docs/operators/cluster.md`).

Read in this order:

    ports.py          ports of nodes, kept while the cluster runs
    plan.py           the nodes as stored in the cluster's directory
    order.py          the request of a launcher to a new supervisor
    control.py        the connection to the supervisor
    node_child.py     one start of one node
    fleet.py          the nodes of one cluster
    supervisor.py     the parent process of the nodes
    status.py         the status of a node, and datasets that cannot be read yet
    local_cluster.py  the operations of a launcher on a cluster
"""

from gossipkv.launcher.control import NotUp
from gossipkv.launcher.local_cluster import Cluster
from gossipkv.launcher.order import Place
from gossipkv.launcher.status import NodeFailed, NodeStatus

__all__ = ["Cluster", "NodeFailed", "NodeStatus", "NotUp", "Place"]
