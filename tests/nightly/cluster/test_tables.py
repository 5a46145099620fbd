"""Real nodes that decide on tables: a lost majority, replaced acceptors, many tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gossipkv.errors import Unavailable
from gossipkv.launcher import Cluster
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import OPTIONS, Nodes, address, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_tables import ALL, SETTINGS, N
from tests.ci.cluster.views import NAME, names

pytestmark = pytest.mark.timeout(600)

TABLES = int(os.environ.get("TABLES", "100"))


@pytest.fixture
def source(tmp_path):
    """Write a source with a database, which is served whatever the state of the tables."""
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"peru\tLima\n")
    return tmp_path / "source"


def test_a_majority_that_is_lost_and_comes_back(tmp_path, source):
    """Without a majority all is read and nothing decided; after a force the survivors decide, and the rest follow."""
    settings = {**SETTINGS, "refresh_period": "1s"}
    everywhere = Cluster(tmp_path / "c", nodes=N, settings=settings, source=source, replication=N)
    with everywhere as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        assert gossipkv("status", "geo", "--wait", node=address(nodes, 2)).returncode == 0
        nodes.ask(4, "create_table", "first", OPTIONS)
        nodes.grown(ALL, names(ALL))
        before = nodes.same(ALL)
        refused = gossipkv("metadata", "force", "--survivor", "n1", "--survivor", "n2", "--yes", node=address(nodes, 1))
        assert (refused.returncode, b"a force is not allowed" in refused.stderr) == (3, True), refused
        lost = [cluster.kill(index) for index in (3, 4, 5)]
        for node in lost:  # The nodes' data is gone for now, and comes back later.
            Path(node.data).rename(Path(node.data).with_name("kept"))
        nodes.all_alive([1, 2])
        for method, *params in (("create_table", "second", {**OPTIONS, "replication": 2}), ("drop_table", "first")):
            with pytest.raises(Unavailable, match=r"no quorum|cannot be read|not dropped"):
                nodes.ask(1, method, *params)
        assert nodes.tables(1) == nodes.tables(2) == before
        assert gossipkv("get", "geo", "peru", node=address(nodes, 2)).stdout == b"Lima"
        done = gossipkv("metadata", "status", node=address(nodes, 1))
        assert (done.returncode, b"metadata force --help" in done.stderr) == (3, True), done
        survivors = ("metadata", "force", "--survivor", "n1", "--survivor", "n2")
        said = gossipkv(*survivors, node=address(nodes, 1))
        assert (said.returncode, b"nothing was done" in said.stderr) == (2, True)
        assert {b"n3", b"n4", b"n5"} <= {*re.findall(rb"n\d", said.stderr)}
        assert nodes.status(1)["generation"] == 0
        done = gossipkv(*survivors, "--yes", "--json", node=address(nodes, 1))
        assert done.returncode == 0, done
        assert set(re.findall(r"n\d", json.loads(done.stdout)["lost"])) == {"n3", "n4", "n5"}
        assert gossipkv(*survivors, "--table", "first", "--yes", node=address(nodes, 2)).returncode == 0
        made = nodes.ask(2, "create_table", "second", {**OPTIONS, "replication": 2})["table"]
        nodes.ask(1, "drop_table", "first")
        assert {name: table[0] for name, table in nodes.same([1, 2]).items()} == {"second": made}
        for node in lost:
            Path(node.data).with_name("kept").rename(node.data)
            cluster.start(node.index, wait=False)
        cluster.wait_ready()
        # The old majority forwards the request to the survivors, which decide.
        nodes.ask(5, "create_table", "third", OPTIONS)
        assert sorted(nodes.same(ALL)) == ["second", "third"]
        assert nodes.same(ALL)["second"][0] == made
        generations = [nodes.status(index)["generation"] for index in ALL]
        assert generations == [1] * N
        for index in (3, 4, 5):
            done = gossipkv("metadata", "join", f"n{index}", node=address(nodes, 1))
            assert done.returncode == 0, done
        nodes.grown(ALL, names(ALL))
        nodes.all_answer(ALL)


def store_of(nodes, index, name):
    """Return the stores with which node `name` is an acceptor of the catalogue, as another node knows them."""
    return [acceptor["store"] for acceptor in nodes.status(index)["new"] if acceptor["node"] == name]


def test_acceptors_that_forgot_their_tables(tmp_path):
    """An acceptor that forgot its tables counts as new, and takes its own place in all registers, as documented."""
    with Cluster(tmp_path / "c", nodes=N, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        nodes.ask(1, "create_table", "first", OPTIONS)
        nodes.grown(ALL, names(ALL))
        nodes.ask(1, "create_table", "second", OPTIONS)
        for index in (4, 5):
            (old,) = store_of(nodes, 1, f"n{index}")
            node = cluster.stop(index)
            serve_once(node, "--forget-tables")
            cluster.start(index)
            nodes.all_alive(ALL)
            # The new store is no acceptor yet.
            until(lambda index=index: store_of(nodes, 1, f"n{index}"), lambda stores: stores == [])
            for _ in range(2):
                done = gossipkv("metadata", "replace", f"n{index}", f"n{index}", node=address(nodes, 2))
                assert done.returncode == 0, done
            assert b"is an acceptor with its present store" in done.stderr
            nodes.grown(ALL, names(ALL))
            nodes.all_answer(ALL)
            assert store_of(nodes, 1, f"n{index}") not in ([], [old])
            done = gossipkv("table", "create", f"after-{index}", "--kind", "hash", node=address(nodes, index))
            assert done.returncode == 0, done
        assert sorted(nodes.same(ALL)) == ["after-4", "after-5", "first", "second"]
        for acceptor in ("n1", "n2", "n3", "n4"):
            assert gossipkv("metadata", "leave", acceptor, node=address(nodes, 1)).returncode == 0
        done = gossipkv("metadata", "leave", "n5", node=address(nodes, 1))
        assert (done.returncode, b"the last" in done.stderr) == (2, True), done
        assert sorted(nodes.same(ALL)) == ["after-4", "after-5", "first", "second"]


def serve_once(node, *options):
    """Start a stopped node of a cluster once with other flags, and stop it when it is ready."""
    command = [sys.executable, "-m", "gossipkv", "serve", "--data", node.data, "--listen", node.address]
    command += ["--node", node.name, "--cluster", NAME, "--log-format", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"ready "), process.stderr.read()
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def test_what_many_tables_take(tmp_path, record_property):
    """The peak memory of one node with TABLES tables is bounded."""
    with NodeProcess(tmp_path, "--refresh-period", "off") as node:
        node.ready()
        options = {"kind": "hash", "partitions": 64, "replication": 1}
        with connect(node.address) as client:
            client.call("create_table", "t0", options)
            before = peak_bytes(node)
            for number in range(1, TABLES):
                client.call("create_table", f"t{number}", options)
            assert len(client.databases()) == TABLES
            assert len(client.call("partition_map", "t7")["partitions"]) == 64
            began_s = time.monotonic()
            assert len(client.call("metadata_status", None)) == TABLES + 1
            status_s = time.monotonic() - began_s
        after = peak_bytes(node)
        told = f"{TABLES} tables: {before >> 20} MiB before, {after >> 20} MiB at most; status {status_s:.1f} s"
        record_property("measured", told)
        assert after - before < (64 << 20) + TABLES * (64 << 10)
        assert node.stop() == 0


def peak_bytes(node):
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10
