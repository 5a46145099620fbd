"""A cluster of real processes is lost as a whole, and restored from its backups as docs/operators/backups.md says."""

from __future__ import annotations

import json
import random
import shutil
from functools import partial
from hashlib import sha256

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.test_launcher import run

RECORDS = 3000
TABLES = {"carts": {"kind": "hash", "partitions": 8}, "log": {"kind": "range", "bounds": [b"key 01000", b"key 02000"]}}


def done(*arguments, node):
    """Run a command that succeeds; return its output."""
    told = gossipkv(*arguments, node=node)
    assert told.returncode == 0, told
    return told.stdout.decode()


def fill(client, seed):
    """Put many records into each table, delete some, and put some of these again."""
    chance = random.Random(seed)
    for name in TABLES:
        rows = [
            [b"key %05d" % number, chance.randbytes(chance.randrange(200))]
            for number in chance.sample(range(RECORDS), RECORDS * 3 // 4)
        ]
        table = client.table(name)
        table.put_many(rows)
        table.delete_many([key for key, _ in rows[::7]])
        table.put_many(rows[::21])


def digests(client, names=TABLES):
    """Return the count and the digest of each table's records."""
    found = {}
    for name in names:
        rows = [*client.table(name).scan()]
        found[name] = len(rows), sha256(repr(rows).encode()).hexdigest()
    return found


@pytest.fixture(scope="module")
def backups(tmp_path_factory):
    """Return a directory with a backup and one since it, and the digests of each; their cluster is lost."""
    place, lost = tmp_path_factory.mktemp("backups"), tmp_path_factory.mktemp("lost")
    contents = {}
    with Cluster(lost, nodes=3, settings={"backup_roots": str(place)}) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        node = cluster.node(2).address
        with cluster.connect(timeout_ms=60_000) as client:
            for name, options in TABLES.items():
                wanted = {**options, "replication": 3, "timeout_ms": 60_000}
                # A node that was suspected a moment ago is not asked to take part.
                until(partial(client.call, "create_table", name, wanted), bool)
            since = ()
            for seed in range(2):
                fill(client, seed)
                told = json.loads(done("backup", "create", place, *since, "--json", node=node))
                contents[told["backup"]] = digests(client)
                since = ("--since", told["backup"])
        listed = json.loads(done("backup", "list", place, "--json", node=node))
        assert [(one["backup"], one["tables"], one["since"]) for one in listed] == [
            (name, ["carts", "log"], base) for name, base in zip(contents, [None, *contents], strict=False)
        ]
        assert ": all whole" in done("backup", "verify", place, node=node)
        for number in (1, 2, 3):
            cluster.kill(number)
    shutil.rmtree(lost)
    return place, contents


def test_a_lost_cluster_comes_back_on_two_new_nodes(backups, tmp_path):
    """Each backup has every record; the replicas of the restored tables are equal."""
    place, contents = backups
    new = tmp_path / "new"
    run("up", "--nodes", "2", "--data", new, "--set", f"backup_roots={tmp_path},{place}", "--detach")
    try:
        cluster = Cluster(new)
        node = cluster.node(1).address
        first, second = contents
        damaged = shutil.copytree(place, tmp_path / "damaged") / first / "3.gkv"
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        told = gossipkv("restore", damaged.parent.parent, node=node)
        assert (told.returncode, f"{damaged}: damaged at byte ".encode() in told.stderr) == (3, True), told
        assert b"Traceback" not in b"".join(log.read_bytes() for log in new.rglob("*.log"))
        assert "in carts, log" in done("restore", place, node=node)
        with cluster.connect(timeout_ms=60_000) as client:
            assert digests(client) == contents[second]
            for name in TABLES:
                assert name in done("table", "list", node=node)
                done("verify", "--table", name, node=node)
            told = gossipkv("restore", place, node=node)
            assert (told.returncode, b"the table carts exists; drop it, or restore" in told.stderr) == (3, True), told
            for name in TABLES:
                client.call("drop_table", name, {"timeout_ms": 60_000})
            done("restore", place / first, "--table", "log", "--as", "log-before", node=node)
            done("restore", place / first, "--table", "carts", node=node)
            done("restore", place / first, "--table", "log", node=node)
            assert digests(client) == contents[first]
            assert sorted(one["name"] for one in client.databases()) == ["carts", "log", "log-before"]
        assert "1 removed" in done("backup", "expire", place, first, "--take-over", node=node)
        assert ": all whole" in done("backup", "verify", place, node=node)
        done("restore", place, "--table", "carts", "--as", "carts-again", node=node)
    finally:
        run("down", "--data", new)
