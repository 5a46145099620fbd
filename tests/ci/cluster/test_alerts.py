"""The alerts fire on the metrics of real nodes, when a table loses two of its three hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import parser

from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.test_datasets import PATIENCE_S, SETTINGS, connect

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "docs" / "operators" / "alerts.yml"
RUNNING = ROOT / "docs" / "operators" / "running.md"
BEFORE_MIN, AFTER_MIN = 60, 60  # The metrics stay as scraped before and after the kill for so long.
# The rules for these two nodes, and for the table.
NAMED = {
    "NodeDown", "MembersDead", "Trouble", "TableWithoutMajority", "TableReplicasMissing", "TableWritesFail",
    "AcceptorsMissing",
}  # fmt: skip


def scraped(address):
    """Return the samples of a node, by series; `up` is 0 if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            families = [*parser.text_string_to_metric_families(answer.read().decode())]
    except OSError:
        return {f'up{{job="gossipkv",instance="{address}"}}': 0}
    found = {f'up{{job="gossipkv",instance="{address}"}}': 1}
    for sample in [sample for family in families for sample in family.samples]:
        labels = {"job": "gossipkv", "instance": address, **sample.labels}
        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
        found[f"{sample.name}{{{text}}}"] = sample.value
    return found


def fired(tmp_path, before, after, minute):
    """Return the names of the alerts that promtool finds firing at a minute of the two scrapes, one after the other."""
    lines = [f"rule_files: [{ALERTS}]", "evaluation_interval: 1m", "tests:", "  - interval: 1m", "    input_series:"]
    for series in before | after:
        first = f"{before[series]}+0x{BEFORE_MIN - 1}" if series in before else f"_x{BEFORE_MIN}"
        second = f"{after[series]}+0x{AFTER_MIN}" if series in after else f"_x{AFTER_MIN}"
        lines += [f"      - series: '{series}'", f"        values: '{first} {second}'"]
    lines += ["    promql_expr_test:", '      - expr: count by (alertname) (ALERTS{alertstate="firing"})']
    lines += [f"        eval_time: {minute}m", "        exp_samples: []"]
    path = tmp_path / "alerts_test.yml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in said, said
    return {name.removeprefix("GossipKV") for name in re.findall(r'alertname="(\w+)"', said)}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_two_of_three_hosts_are_killed(tmp_path):
    """No rule fires before, and afterwards those of the table's symptoms do, with those of the two nodes."""
    with Cluster(tmp_path / "cluster", nodes=5, settings=SETTINGS, http=True) as cluster:
        addresses = [node.http for node in cluster.status()]
        with connect(cluster.node(1).address) as client:
            how = {"kind": "hash", "partitions": 1, "replication": 3}
            client.call("create_table", "carts", how, timeout_ms=60_000)
            client.table("carts").put(b"k", b"v", timeout_ms=60_000)
            client.call("backup", str(tmp_path / "cluster" / "backups"), {}, timeout_ms=60_000)
            (partition,) = client.call("partition_map", "carts")["partitions"]
        hosts = {host["node"] for host in partition["assignments"]}
        first, *killed = [node.index for node in cluster.status() if node.name in hosts]

        def looks():
            found = {}
            for address in addresses:
                found |= scraped(address)
            return found

        def values(found, name):
            return [value for series, value in found.items() if series.startswith(f"gossipkv_{name}{{")]

        before = until(looks, lambda found: values(found, "verdict") == [0] * 5 and 0 not in values(found, "joined"))
        for index in killed:
            cluster.kill(index)
        until(looks, lambda found: values(found, "table_partitions_without_majority") == [1] * 3)
        with connect(cluster.node(first).address) as client, pytest.raises(GossipKVError):
            client.table("carts").put(b"k", b"w")
        after = looks()
        assert values(after, "verdict") == [2] * 3
        assert time.time() - max(values(after, "backup_timestamp_seconds")) < 3600
    own = {"DiskShort"}  # It depends on the disk of this machine.
    assert fired(tmp_path, before, after, BEFORE_MIN - 1) <= own
    grown = fired(tmp_path, before, after, BEFORE_MIN + 3) | fired(tmp_path, before, after, BEFORE_MIN + 40)
    assert grown - own == NAMED - own
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[3] for line in symptoms()))
    assert named
    assert {*named, "MembersDead", "Trouble"} >= NAMED


def symptoms():
    """Return the rows of the table of symptoms."""
    table = RUNNING.read_text(encoding="utf-8").split("| look at | alert when | rule |\n|---|---|---|\n")[1]
    return table.split("\n\n")[0].splitlines()


def test_each_symptom_names_its_rules():
    """Each row of the page has rules, and all of them exist."""
    known = re.findall(r"alert: GossipKV(\w+)", ALERTS.read_text(encoding="utf-8"))
    for row in symptoms():
        rules = re.findall(r"`(\w+)`", row.split("|")[3])
        assert rules, row
        assert {*rules} <= {*known}, row
