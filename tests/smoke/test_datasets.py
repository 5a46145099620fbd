"""Real nodes share a database: any node answers any key; a new version and a killed owner fail no read."""

from __future__ import annotations

from tests.ci.cluster.test_datasets import (
    PARTITIONS,
    Load,
    connect,
    counters,
    publish,
    records,
    running,
    wait_for,
)


def test_any_node_answers_any_key(tmp_path):
    """With one replica on two nodes, each forwards half of the reads, hits and misses alike."""
    held = publish(tmp_path / "source", "v1")
    with running(tmp_path, 2, 1) as cluster:
        wait_for(cluster, "v1")
        shares = []
        for node in cluster.status():
            with connect(node.address) as client:
                data = client.dataset("geo")
                for key in list(held)[::7]:
                    assert data.get_with_version(key) == (held[key], "v1")
                for number in range(100):
                    assert data.get_with_version(b"absent %d" % number) == (None, "v1")
                told = client.call("status", {"database": "geo", "local": True})["geo"]["versions"]["v1"]
                shares.append({each["partition"] for each in told["partitions"]})
            counted = counters(node.address)
            assert counted["forwarded"] > 200
        assert shares[0] | shares[1] == set(range(PARTITIONS))
        assert not shares[0] & shares[1]


def test_a_new_version_reaches_all_clients_without_one_failed_read(tmp_path):
    """With two replicas on three nodes, every answer is right for its version, and none steps back."""
    truth = {version: publish(tmp_path / "source", version) for version in ("v1",)}
    truth["v2"] = records("v2")
    with running(tmp_path, 3, 2) as cluster:
        wait_for(cluster, "v1")
        addresses = [node.address for node in cluster.status()]
        with Load(addresses, truth) as load:
            load.wait_all("v1")
            publish(tmp_path / "source", "v2")
            wait_for(cluster, "v2")
            load.wait_all("v2")
        assert load.trouble == []
        assert all(seen == ["v1", "v2"] for seen in load.seen.values()), load.seen
