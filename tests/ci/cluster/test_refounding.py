"""Real nodes that lose all hosts of a partition: the rest is saved, and `force-join` re-creates the partition."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gossipkv.client import blocking
from gossipkv.launcher import Cluster
from tests.ci.cluster.table_moves import all_know
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE, trouble
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(600)

SETTINGS = {**LOGGED, "refresh_period": "off"}
NODES = 5
OLD = {b"old/%03d" % number: b"%d" % number for number in range(300)}
NEW = {b"new/%03d" % number: b"%d" % number for number in range(100)}
ALL = {"level": "all", "timeout_ms": 20_000}


def gossipkv(*arguments):
    """Run a command to its end; return its status and all output."""
    done = subprocess.run(
        [sys.executable, "-m", "gossipkv", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def hosts(nodes, index):
    """Return the numbers of the nodes that hold the single range; empty while a move is under way."""
    (partition,) = nodes.ask(index, "partition_map", TABLE)["partitions"]
    if {one["state"] for one in partition["assignments"]} != {"AVAILABLE"}:
        return []
    return sorted(int(one["node"][1:]) for one in partition["assignments"])


def aside(nodes, index):
    """Return the nodes that have a quarantined replica."""
    return sorted(row["node"] for row in nodes.ask(index, "quarantine_list", {}) if "copy" in row)


def put(nodes, index, records):
    for key, value in records.items():
        until(lambda key=key, value=value: nodes.ask(index, "put", TABLE, key, value, ALL), bool)


def test_a_range_begins_anew(tmp_path):
    """A range is re-created from the replica of a removed node; the old hosts' replicas are quarantined."""
    with Cluster(tmp_path, nodes=NODES, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        everybody = {*range(1, NODES + 1)}
        nodes.all_alive(everybody)
        nodes.ask(1, "create_table", TABLE, {"kind": "range", "replication": 2, "timeout_ms": 30_000})
        one, _ = until(lambda: hosts(nodes, 1), bool)
        put(nodes, one, OLD)
        all_know(nodes, range(1, NODES + 1))  # With fewer acceptors the dead ones may be too many.
        other = min(everybody - {one})
        cluster.kill(one)
        nodes.all_alive(everybody - {one})
        nodes.ask(other, "remove_node", f"n{one}", {"force": True, "timeout_ms": 30_000})
        until(lambda: hosts(nodes, other), lambda now: len(now) == 2 and one not in now)
        cluster.start(one)
        nodes.all_alive(everybody)
        until(lambda: aside(nodes, one), lambda now: now == [f"n{one}"])
        nodes.ask(one, "add_node", f"n{one}", {"timeout_ms": 30_000})
        gone = until(lambda: hosts(nodes, one), lambda now: len(now) == 2)
        assert one not in gone
        put(nodes, gone[0], NEW)
        at = ["--node", cluster.node(one).address]
        status, said = gossipkv("table", "force-join", TABLE, "old/1", f"n{one}", "--yes", *at)
        assert (status, "may be alive" in said) == (3, True), said
        for index in gone:
            cluster.kill(index)
        nodes.all_alive(everybody - {*gone})
        status, said = gossipkv("table", "force-join", TABLE, "old/1", f"n{one}", *at)
        assert (status, "nothing was done" in said) == (2, True), said
        force = ("table", "force-join", TABLE, "old/1", f"n{one}", "--yes", *at)
        # The killed nodes are only suspected for a while.
        _, said = until(lambda: gossipkv(*force), lambda told: told[0] == 0)
        assert f"n{one}: the range continues with the replica" in said, said
        with blocking.connect(cluster.node(one).address, timeout_ms=30_000) as client:
            table = client.table(TABLE)
            assert dict(until(lambda: [*table.scan()], bool)) == OLD  # Later writes are lost.
            until(lambda: table.put(b"old/001", b"newer", level="one") or True, bool)
        for index in gone:
            cluster.start(index)
        nodes.all_alive(everybody)
        until(lambda: aside(nodes, one), lambda now: now == sorted(f"n{index}" for index in gone))
        until(lambda: hosts(nodes, one), lambda now: len(now) == 2 and one in now)
        put(nodes, one, {b"new/001": b"anew"})
        with blocking.connect(cluster.node(gone[0]).address, timeout_ms=30_000) as client:
            found = dict(client.table(TABLE).scan())
        assert found == OLD | {b"old/001": b"newer", b"new/001": b"anew"}
        verified = gossipkv("verify", "--table", TABLE, *at)
        assert (verified[0], "all replicas are equal" in verified[1]) == (0, True), verified
        assert trouble(cluster) == []


@pytest.mark.parametrize("kind", ["hash", "range"])
def test_lost_partitions_are_left_out_and_begin_anew(tmp_path, kind):
    """A table without spare replicas loses a node: export and backup save the rest, and the table serves again."""
    place, out = tmp_path / "backups", tmp_path / "saved.jsonl"
    place.mkdir()
    settings = {**SETTINGS, "backup_roots": str(place)}
    options = {
        "replication": 1,
        **({"partitions": 6} if kind == "hash" else {"bounds": [b"old/%d" % at for at in (1, 2)]}),
    }
    with Cluster(tmp_path / "nodes", nodes=3, settings=settings) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        nodes.ask(1, "create_table", TABLE, {"kind": kind, **options, "timeout_ms": 30_000})
        put(nodes, 1, OLD)
        all_know(nodes, (1, 2, 3))
        rows = nodes.ask(1, "partitions", TABLE)["partitions"]
        lost = next(host["node"] for row in rows for host in row["hosts"] if host["node"] != "n1")
        gone = [row for row in rows if row["hosts"][0]["node"] == lost]
        cluster.kill(int(lost[1:]))
        nodes.all_alive({1, 2, 3} - {int(lost[1:])})
        at = ["--node", cluster.node(1).address]
        assert gossipkv("table", "export", TABLE, str(out), "--timeout", "3s", *at)[0] == 3
        status, said = gossipkv("table", "export", TABLE, str(out), "--partial", *at)
        assert (status, said.count("cannot be read")) == (0, len(gone)), said
        saved = {
            (row := json.loads(line))["key"].encode(): row["value"].encode() for line in out.read_text().splitlines()
        }
        assert 0 < len(saved) < len(OLD)
        assert saved.items() < OLD.items()
        told = json.loads(
            gossipkv("backup", "create", str(place), "--partial", "--json", *at)[1].partition("gossipkv:")[0]
        )
        assert len(told["missing"][TABLE]) == len(gone)
        assert told["records"] == len(saved)
        status, said = gossipkv("restore", str(place), "--table", TABLE, "--as", "again", *at)
        assert (status, "is partial: it lacks" in said) == (0, True), said
        for row in gone:
            shard = kind == "hash"
            key = str(int.from_bytes(row["start"], "big")) if shard else row["start"].decode()
            force = ("table", "force-join", TABLE, *(["--shard"] if shard else []), "--yes", *at, "--", key, "n1")
            _, said = until(lambda force=force: gossipkv(*force), lambda done: done[0] == 0)
            assert "starts empty" in said
        with blocking.connect(cluster.node(1).address, timeout_ms=30_000) as client:
            for name in TABLE, "again":
                assert dict(until(lambda name=name: [*client.table(name).scan()], bool)) == saved
        put(nodes, 1, NEW)
        cluster.start(int(lost[1:]))
        until(lambda: aside(nodes, 1), lambda now: now == [lost] * len(gone))
        assert trouble(cluster) == []
