"""The `status` of a dataset on a cluster of real processes, while nodes die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.ci.cluster.test_datasets import PARTITIONS, PATIENCE_S, TOGETHER, connect, publish, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.wire.rpc import Value

Told = dict[str, dict[str, dict[str, "Value"]]]


def command(address: str, *options: str) -> tuple[int, str]:
    """Return the exit status of `gossipkv status` and its output."""
    line = [sys.executable, "-m", "gossipkv", "status", "geo", *options, "--node", address, "--timeout", "60s"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    done = subprocess.run(line, stdout=subprocess.PIPE, env=clean, text=True, check=False)
    return done.returncode, done.stdout


def status_when(address: str, holds: Callable[[Mapping[str, Mapping[str, Value]]], bool]) -> Mapping[str, Value]:
    """Return a node's status of v1, once `holds` is true of its owners by name."""
    give_up_s = time.monotonic() + PATIENCE_S
    with connect(address) as client:
        while True:
            told = client.status("geo")["geo"]["versions"].get("v1", {})
            if "owners" in told and holds({owner["node"]: owner for owner in told["owners"]}):
                return told
            assert time.monotonic() < give_up_s, told
            time.sleep(0.05)


def test_status_says_what_the_dead_have_left(tmp_path):
    """With two replicas on three nodes, a death leaves each partition an owner; a second death does not."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 3, 2, TOGETHER | {"reassign_after": "1h"}) as cluster:
        wait_for(cluster, "v1")
        one, two, three = cluster.status()
        names = {one.name, two.name, three.name}
        told = status_when(
            one.address, lambda owners: {n for n in owners if owners[n]["building"]["count"] == 0} == names
        )
        told = status_when(
            one.address, lambda owners: sum(each["ready"]["count"] for each in owners.values()) == 2 * PARTITIONS
        )
        assert (told["missing"], told["under_replicated"]) == ({"count": 0, "runs": ""}, {"count": 0, "runs": ""})
        assert command(one.address)[0] == 0

        cluster.kill(3)
        told = status_when(one.address, lambda owners: owners[three.name]["state"] == "dead")
        ready = {owner["node"]: owner["ready"]["count"] for owner in told["owners"]}
        assert told["missing"]["count"] == 0
        assert told["under_replicated"]["count"] == ready[three.name] > 0
        status, out = command(one.address)
        assert status == 0
        assert f"{ready[three.name]} of {PARTITIONS} partitions on fewer than 2 live nodes" in out
        assert command(one.address, "--wait")[0] == 0

        cluster.kill(2)
        told = status_when(one.address, lambda owners: owners[two.name]["state"] == "dead")
        assert told["missing"]["count"] == PARTITIONS - ready[one.name] > 0
        status, out = command(one.address)
        assert status == 3
        lost = f"{told['missing']['count']} of {PARTITIONS} partitions without a live owner: {told['missing']['runs']}"
        assert f"geo v1: {lost}\n" in out
        status, out = command(one.address, "--json")
        assert (status, json.loads(out)["geo"]["versions"]["v1"]["missing"]) == (3, told["missing"])

        with connect(one.address) as client:
            local = client.call("status", {"database": "geo", "local": True})["geo"]
        assert not local.keys() & {"nodes", "replication"}
        assert not local["versions"]["v1"].keys() & {"owners", "missing", "under_replicated", "regrouped"}
        assert len(local["versions"]["v1"]["partitions"]) == ready[one.name]


def test_a_node_that_has_nothing_tells_of_those_that_have(tmp_path):
    """`databases` and `status` work on a late node that does not know its share yet."""
    publish(tmp_path / "source", "v1")
    with running(tmp_path, 1, 1) as cluster:
        wait_for(cluster, "v1")
        late = cluster.add(settings={"time_to_converge": "1h", "expected_members": "3"})
        wait_for(cluster, "v1")
        with connect(late.address) as client:
            (told,) = client.databases()
            assert (told["name"], told["kind"], told["version"], told["partitions"]) == (
                "geo",
                "dataset",
                "v1",
                PARTITIONS,
            )
            assert (told["time"], told["states"]) == (told["times"]["v1"], {"v1": "SEEN"})
            told = client.status("geo")["geo"]
        version = told["versions"]["v1"]
        assert (told["active"], version["partition_count"]) == ("v1", PARTITIONS)
        assert "partitions" not in version
        assert {node["node"]: node["active"] for node in told["nodes"]} == {"n1": "v1", "n2": "v1"}
        assert [owner["ready"]["count"] for owner in version["owners"]] == [PARTITIONS]
        assert command(late.address, "--wait")[0] == 0
