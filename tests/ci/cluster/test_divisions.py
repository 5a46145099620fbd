"""Real nodes whose ranges are split while clients of all nodes write, read and scan."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster import scanning
from tests.ci.cluster.table_moves import Death, check, held, lay, of_one_map, starts, still_there, traffic_at
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.table_records import TABLE
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(600)

SETTINGS = {**LOGGED, "refresh_period": "off", "table_segment": "4MiB"}
LEAST = 100  # Reads and writes of clients, and of sessions, in each phase.
ROWS = 500


def is_settled(nodes, index):
    """True if a node reports no problem, no quarantined replica and no move."""
    told = nodes.ask(index, "status", {"local": True})[TABLE]
    return told["unwell"] == [] and told["aside"] is None and told["moving"] == {}


def gossipkv(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "gossipkv", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_ranges_are_divided_as_they_grow(tmp_path):
    """Ranges split amid a kill and a freeze: no read fails, and writes and scans fail only during these faults."""
    with Cluster(tmp_path, nodes=3, settings={**SETTINGS, "split_rows": str(ROWS)}) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 4))
        records = lay(cluster, kind="range", replication=3)
        addresses = [node.address for node in cluster.status()]
        with traffic_at(nodes, seed=1) as traffic, scanning.Scans(addresses, records, seed=1) as scans:
            traffic.goes_on(0.5, LEAST)
            until(lambda: len(starts(nodes, 1)), lambda count: count >= 8)
            for key in (b"old/1", b"old/20"):
                nodes.ask(2, "split", TABLE, key + b"/by people")
            traffic.goes_on(0.5, LEAST)
            goes_on(scans)
            assert (scans.failed, traffic.failures()) == ([], ([], []))
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(nodes.ask, 1, "split", TABLE, b"shared/2")
                killed_s = time.monotonic()
                cluster.kill(3)
                asked.result()
            cluster.start(3)
            nodes.all_alive(range(1, 4))
            deaths = [Death(killed_s, time.monotonic())]
            traffic.goes_on(0.5, LEAST)
            slept_s = time.monotonic()
            cluster.send(2, signal.SIGSTOP)
            for key in (b"shared/21", b"shared/3", b"shared/31"):
                nodes.ask(1, "split", TABLE, key)
            cluster.send(2, signal.SIGCONT)
            nodes.all_alive(range(1, 4))
            deaths.append(Death(slept_s, time.monotonic()))
            traffic.goes_on(0.5, LEAST)
            goes_on(scans)
        reads, writes = traffic.failures()
        assert (reads, scans.faults) == ([], [])
        assert [one for one in writes + scans.failed if not any(one.is_amid(death) for death in deaths)] == []
        assert min(traffic.counts()) >= 6 * LEAST
        for index in (1, 2, 3):
            until(lambda index=index: is_settled(nodes, index), bool)
        assert {b"shared/2", b"shared/21", b"shared/3", b"shared/31"} <= {*starts(nodes, 2)}
        of_all, begin = of_one_map(nodes, 3, held)
        assert len(of_all) == 3 * len(begin)
        check(nodes, traffic, 1)
        assert still_there(cluster, 1, records) == []
        verified = gossipkv("verify", "--table", TABLE, "--node", addresses[0])
        assert (verified.returncode, "all replicas are equal" in verified.stdout) == (0, True), verified


def goes_on(scans):
    done = scans.done
    until(lambda: scans.done, lambda now: now >= done + 3)


def test_people_divide_a_range(tmp_path):
    """The command reports the split; each impossible split has its own error."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 4))
        lay(cluster, kind="range", replication=3)
        nodes.ask(1, "create_table", "hashed", {"kind": "hash", "partitions": 4, "replication": 3})
        at = ["--node", cluster.node(2).address]
        told = gossipkv("table", "split", TABLE, "old/2", "--json", *at)
        assert told.returncode == 0, told
        assert [one["start"] for one in json.loads(told.stdout)["partitions"]] == ["", "old/2"]
        assert starts(nodes, 2) == [b"", b"old/2"]
        for arguments, status, words in (
            (["nothing", "k"], 1, "no table"),
            (["hashed", "k"], 2, "shards"),
            ([TABLE, ""], 2, "bytes, not 0"),
            ([TABLE, "k" * 256], 2, "255"),
        ):
            refused = gossipkv("table", "split", *arguments, *at)
            assert (refused.returncode, refused.stdout) == (status, ""), refused
            assert words in refused.stderr, refused
            assert refused.stderr.count("\n") == 1, refused
        again = gossipkv("table", "split", TABLE, "old/2", *at)
        assert (again.returncode, again.stdout) == (3, ""), again
        assert "already" in again.stderr, again


def test_a_range_of_one_key(tmp_path):
    """The node reports that the range cannot be split, and serves on."""
    settings = {**SETTINGS, "split_bytes": "64KiB"}
    with Cluster(tmp_path, nodes=1, settings=settings) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive([1])
        nodes.ask(1, "create_table", TABLE, {"kind": "range", "replication": 1})
        until(lambda: nodes.ask(1, "put", TABLE, b"one", b"0"), bool)
        nodes.ask(1, "put", TABLE, b"one", bytes(100_000))
        until(lambda: cluster.log(1).count("range_not_divided"), bool)
        assert len(nodes.ask(1, "get", TABLE, b"one")[0]) == 100_000
        assert starts(nodes, 1) == [b""]
