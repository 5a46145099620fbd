"""The local launcher: a cluster of real processes on one machine, for trying things out and for tests.

    import pytest
    from gossipkv.launcher import Cluster

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory):
        with Cluster(tmp_path_factory.mktemp("cluster"), nodes=3) as cluster:
            yield cluster

Three kinds of process: the *launcher* (`Cluster`, `gossipkv cluster`), the *supervisor*, whose children the *nodes*
are.  None outlives the one above it, unless the launcher said so (`docs/operators/cluster.md`).

The files, in the order in which they are best read:

    local_cluster.py   what a launcher can do with a cluster
    order.py        what it asks a new supervisor for
    control.py      how it talks to the supervisor
    supervisor.py   the process that the nodes belong to
    fleet.py        the nodes of one cluster
    plan.py, ports.py   what the directory remembers of them, and their ports
    node_child.py   one start of one node
    status.py       what is known of a node, and which datasets cannot be read yet
"""

from gossipkv.launcher.control import NotUp
from gossipkv.launcher.local_cluster import Cluster
from gossipkv.launcher.order import Place
from gossipkv.launcher.status import NodeFailed, NodeStatus

__all__ = ["Cluster", "NodeFailed", "NodeStatus", "NotUp", "Place"]
