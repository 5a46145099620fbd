"""A rolling restart by SIGTERM amid upgrades: no node waits for a second replica, and no read fails."""

from __future__ import annotations

import time

from tests.ci.cluster.test_datasets import Load, publish, records, running, wait_for

ROUNDS = 3
NODES = 3
READS = 50_000  # The minimum of all rounds.
SETTINGS = {
    "proxy_timeout": "2s", "throttle_loads": "64KiB/s", "drain_timeout": "20s", "reassign_after": "1h",
}  # fmt: skip
AWAY_S = 3  # This exceeds `proxy_timeout`: otherwise reads would wait until a stopped node is back.


def test_a_rolling_restart_amid_upgrades_fails_no_read(tmp_path):
    """Each of three rounds with two replicas restarts all nodes amid an upgrade; clients are at the other nodes."""
    versions = [f"v{number}" for number in range(1, ROUNDS + 2)]
    truth = {version: records(version) for version in versions}
    publish(tmp_path / "source", "v1")
    reads = 0
    with running(tmp_path, NODES, 2, SETTINGS) as cluster:
        wait_for(cluster, "v1")
        addresses = [node.address for node in cluster.status()]
        for version in versions[1:]:
            publish(tmp_path / "source", version)
            for index in range(1, NODES + 1):
                with Load([address for at, address in enumerate(addresses, 1) if at != index], truth) as load:
                    load.wait(500)
                    cluster.stop(index)
                    cluster.wait_ended(index)
                    time.sleep(AWAY_S)
                    load.wait(READS // (ROUNDS * NODES))
                    cluster.start(index)
                    cluster.wait_ready(index)
                reads += load.reads
                assert load.trouble == []
            wait_for(cluster, version)
    assert reads >= READS
