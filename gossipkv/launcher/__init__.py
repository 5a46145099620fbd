"""The local launcher: a cluster of real processes on one machine, for trying things out and for tests.

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory):
        with Cluster(tmp_path_factory.mktemp("cluster"), nodes=3) as cluster:
            yield cluster

Three kinds of process: the *launcher* (`Cluster`, `gossipkv cluster`), the *supervisor*, whose children the *nodes*
are.  None outlives the one above it, unless the launcher said so (`docs/operators/cluster.md`).
"""

from gossipkv.launcher.cluster import Cluster
from gossipkv.launcher.control import NotUp
from gossipkv.launcher.order import Place
from gossipkv.launcher.status import NodeFailed, NodeStatus

__all__ = ["Cluster", "NodeFailed", "NodeStatus", "NotUp", "Place"]
