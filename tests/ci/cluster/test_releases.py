"""Nodes of different releases: a cluster rolls to the next protocol version and back, and a misfit is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.launcher import Cluster
from gossipkv.protocol import OURS, PROTOCOL_MAX, PROTOCOL_MIN, ProtocolVersions
from tests.ci.cluster import table_records
from tests.ci.cluster.releases import Releases, roll
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import OPEN, REFUSED, Load
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.views import LOGGED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

ALL = (1, 2, 3)
MAX_OPEN = 6 * 8  # Six stops, eight clients.
SETTINGS = {**LOGGED, "refresh_period": "off"}
NEXT = ProtocolVersions(PROTOCOL_MIN, PROTOCOL_MAX + 1)
LATER = ProtocolVersions(PROTOCOL_MAX + 1, PROTOCOL_MAX + 2)


def test_a_cluster_rolls_to_the_next_protocol_version_and_back(tmp_path: Path) -> None:
    """No read fails, no acknowledged write is lost, and the new version is written only while all members speak it."""
    releases = Releases(tmp_path, OURS)
    with Cluster(tmp_path / "c", places=releases.places(), settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        with Load(cluster.addresses, seed=1) as load:
            roll(cluster, releases, NEXT, load, agreed=(PROTOCOL_MAX, PROTOCOL_MAX, PROTOCOL_MAX + 1))
            roll(cluster, releases, OURS, load, agreed=(PROTOCOL_MAX,) * 3)
        judged = table_records.check(cluster, load, ALL)
        # A node that stops may close a connection on which a write has just been sent.
        assert (judged.writes[REFUSED], judged.writes[OPEN] < MAX_OPEN) == (0, True), judged.writes


def told_by(command: str, address: str) -> str:
    return gossipkv(command, node=address).stdout.decode()


def test_a_node_whose_versions_do_not_fit_is_named(tmp_path: Path) -> None:
    """Both sides name the node and the versions in status, in the list of members and in the log, at level warning."""
    releases = Releases(tmp_path, OURS)
    with Cluster(tmp_path / "c", places=releases.places(), settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        table_records.prepare(cluster)
        cluster.stop(3)
        releases.install(3, LATER)
        cluster.start(3)
        for index, node, theirs, mine in ((1, "n3", LATER, OURS), (2, "n3", LATER, OURS), (3, None, OURS, LATER)):
            name = node or cluster.addresses[0]
            why = f"{theirs}, not {mine}"
            address = cluster.addresses[index - 1]
            for command in ("members", "status"):
                until(lambda ask=(command, address): told_by(*ask), lambda told, why=why: why in told)
            status = told_by("status", address)
            assert f"{name}" in status
            assert why in status
            assert "key ring" not in status
            lines = [line for line in cluster.log(index).splitlines() if "misfit" in line]
            assert any("warning" in line.lower() and why in line and name in line for line in lines), lines
