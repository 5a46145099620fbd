"""Clusters of three roll between later releases and back, with kills, under checked load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from gossipkv.protocol import ProtocolVersions
from tests.ci.cluster import table_records
from tests.ci.cluster.releases import Releases, roll
from tests.ci.cluster.table_nodes import Nodes
from tests.ci.cluster.table_records import DONE, Load
from tests.ci.cluster.views import LOGGED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

ALL = (1, 2, 3)
SETTINGS = {**LOGGED, "refresh_period": "off"}
FIRST, SECOND, THIRD = ProtocolVersions(1, 1), ProtocolVersions(1, 2), ProtocolVersions(2, 3)


@pytest.mark.parametrize("kills", [False, True], ids=["stops", "kills"])
def test_a_cluster_rolls_through_three_releases_and_back(tmp_path: Path, *, kills: bool) -> None:
    """No acknowledged write is lost and no read fails, also where a release has dropped the first version."""
    releases = Releases(tmp_path, FIRST)
    with Cluster(tmp_path / "c", places=releases.places(), settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        end = cluster.kill if kills else cluster.stop
        with Load(cluster.addresses, seed=1) as load:
            for release, agreed in ((SECOND, (1, 1, 2)), (THIRD, (2, 2, 3)), (SECOND, (2, 2, 2)), (FIRST, (1, 1, 1))):
                roll(cluster, releases, release, load, agreed=agreed, end=end)
        judged = table_records.check(cluster, load, ALL)
        assert judged.writes[DONE] > 0
