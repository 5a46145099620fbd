"""Real processes that are stopped, killed or late around a switch: other nodes take over, and no read fails."""

from __future__ import annotations

import json
import signal
import time

from tests.ci.cluster.node_process import PATIENTLY, NodeProcess
from tests.ci.cluster.node_process import wait_for as wait_at
from tests.ci.cluster.test_datasets import (
    NAME,
    PARTITIONS,
    PATIENCE_S,
    Load,
    connect,
    publish,
    records,
    running,
    wait_for,
)

JOINING = ["--profile", "local", "--time-to-converge", "1s", "--build-priority", "normal", *PATIENTLY]
# Longer timeouts would make reads wait until a stopped node is back.
SHORT = {"proxy_timeout": "5s", "proxy_stage_timeout": "500ms"}


def test_the_only_owner_is_stopped(tmp_path):
    """Each partition has one owner: others build its partitions before it leaves, long before `reassign_after`."""
    truth = {"v1": publish(tmp_path / "source", "v1")}
    with running(tmp_path, 3, 1, SHORT | {"drain_timeout": "1m", "reassign_after": "1h"}) as cluster:
        wait_for(cluster, "v1")
        with Load([node.address for node in cluster.status()[:2]], truth) as load:
            load.wait(500)
            cluster.stop(3)
            cluster.wait_ended(3)
            time.sleep(6)  # By now, a partition without an owner would have failed reads.
            load.wait(2_000)
        assert load.trouble == []


def test_nobody_waits_for_who_leaves_as_well(tmp_path):
    """Each node alone has some partitions and would drain for an hour, but all end when all are stopped."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 3, 1, {"drain_timeout": "1h"}) as cluster:
        wait_for(cluster, "v1")
        for index in (1, 2, 3):
            cluster.send(index, signal.SIGTERM)
        for index in (1, 2, 3):
            cluster.wait_ended(index)


DIES = """
import os
from gossipkv.dataset.lifecycle.switching import Switching
write = Switching._write
async def then_die(self, told):
    await write(self, told)
    if told.version == "v2":
        os.kill(os.getpid(), 9)
Switching._write = then_die
"""


def test_what_the_dead_switched_to_is_there_when_they_are_back(tmp_path):
    """A node dies just after it switched to v2: the others keep v2 beside v3, and the node continues from v2."""
    truth = {version: records(version) for version in ("v1", "v2", "v3")}
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 2, 1, SHORT | {"cluster": NAME, "retire_after": "1s", "reassign_after": "1s"}) as cluster:
        wait_for(cluster, "v1")
        first = cluster.status()[0].address
        options = ["--join", first, "--cluster", NAME, "--node", "victim", *JOINING]
        with NodeProcess(tmp_path, *options, source=tmp_path / "source", changed=DIES) as victim:
            victim.ready()
            wait_at(victim.address, "geo", "v1")
            publish(tmp_path / "source", "v2")
            assert victim.process.wait(PATIENCE_S) == -signal.SIGKILL
        for node in cluster.status():  # The others may have switched as well, and build the partitions of the victim.
            with connect(node.address) as client:
                wait_until(lambda client=client: said(client, "v2").get("missing") == {"count": 0, "runs": ""})
        publish(tmp_path / "source", "v3")
        wait_for(cluster, "v3")
        with connect(first) as client:
            wait_until(lambda: "victim" in client.status("geo")["geo"]["versions"]["v2"]["kept_by"])
        with NodeProcess(tmp_path, *options) as back:
            back.ready()
            with connect(back.address) as client:
                wait_until(lambda: client.status("geo")["geo"]["active"] == "v3")
            with Load([back.address], truth) as load:
                load.wait(500)
            assert load.trouble == []
            assert load.seen[back.address] == ["v3"]


def test_who_comes_late_begins_with_the_new_version(tmp_path):
    """The others have v2 active and keep v1: a node that joins never switches to v1."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 2, 1, {"cluster": NAME}) as cluster:
        wait_for(cluster, "v1")
        publish(tmp_path / "source", "v2")
        wait_for(cluster, "v2")
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            join = ["--join", cluster.status()[0].address, "--cluster", NAME, *JOINING]
            with NodeProcess(tmp_path / name, *join, "--log-format", "json") as late:
                late.ready()
                wait_at(late.address, "geo", "v2")
                lines = [json.loads(line) for line in late.said().splitlines()]
                assert [line["version"] for line in lines if line["event"] == "switched"] == ["v2"]


def test_a_patient_switch_waits_for_the_second_copy(tmp_path):
    """While one of two nodes lacks v2, both report that they wait; after the switch either node may be lost."""
    for name in ("one", "two"):
        publish(tmp_path / name / "source", "v1")
    one = [*JOINING, "--cluster", NAME, "--replication", "2", "--switch-patience", "1h", "--refresh-period", "200ms"]
    with NodeProcess(tmp_path / "one", *one, source=tmp_path / "one" / "source") as first:
        first.ready()
        two = [*one, "--join", first.address]
        with NodeProcess(tmp_path / "two", *two, source=tmp_path / "two" / "source") as second:
            second.ready()
            for node in (first, second):
                wait_at(node.address, "geo", "v1")
            held = publish(tmp_path / "one" / "source", "v2")
            with connect(first.address) as client:
                wait_until(lambda: "switch_patience" in str(said(client, "v2").get("waits_until")))
                assert said(client, "v2")["single_owner"]["count"] == PARTITIONS
                assert client.dataset("geo").get_with_version(b"")[1] == "v1"
                publish(tmp_path / "two" / "source", "v2")
                wait_at(first.address, "geo", "v2")
                assert said(client, "v2")["single_owner"]["count"] == 0
            wait_at(second.address, "geo", "v2")
            first.process.kill()
            with connect(second.address) as client:
                for key in list(held)[::50]:
                    assert client.dataset("geo").get_with_version(key) == (held[key], "v2")


def said(client, version):
    return client.status("geo")["geo"]["versions"].get(version, {})


def wait_until(holds):
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
