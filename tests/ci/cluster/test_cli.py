"""The command line against a real node: serve, read, upgrade, restart, inspect and verify its data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from gossipkv.client import blocking
from tests.ci.cluster.node_process import NodeProcess, wait_for


def gossipkv(*arguments, node="", stdin=b"", more=None):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    arguments += ("--timeout", "60s") if node else ()
    return subprocess.run(
        [sys.executable, "-m", "gossipkv", *map(str, arguments)],
        input=stdin, capture_output=True, timeout=120, check=False,
        env=environ | ({"GOSSIPKV_NODE": node} if node else {}) | (more or {}),
    )  # fmt: skip


def write_version(root, name, files):
    """Publish a version of the database `geo` at the source atomically."""
    staged = root / "geo" / f"_{name}"
    staged.mkdir(parents=True)
    for number, records in enumerate(files):
        lines = [b"%b\t%b\n" % record for record in records.items()]
        (staged / f"part-{number}").write_bytes(b"".join(lines))
    staged.rename(root / "geo" / name)


FIRST = [{f"k{number}-{line}".encode(): b"old %d" % line for line in range(300)} for number in range(3)]
SECOND = [{f"k{number}-{line}".encode(): b"new %d" % line for line in range(300)} for number in range(4)]


@pytest.fixture
def source(tmp_path):
    write_version(tmp_path / "source", "v1", FIRST)
    return tmp_path / "source"


def test_from_source_to_answers(source, tmp_path):
    """The commands serve, wait, read in every form, upgrade, restart without the source, and verify the kept data."""
    with NodeProcess(tmp_path, source=source) as node:
        assert node.ready() == f"ready {node.address}\n"
        assert gossipkv("status", "geo", "--wait", node=node.address).returncode == 0
        assert gossipkv("get", "geo", "k1-7", node=node.address).stdout == b"old 7"
        assert gossipkv("get", "geo", "k3-7", node=node.address).returncode == 1
        done = gossipkv("mget", "geo", "-", stdin=b"k0-1\nk2-299\n", node=node.address)
        assert (done.returncode, done.stdout) == (0, b"k0-1\told 1\nk2-299\told 299\n")
        everything = {key: value for part in FIRST for key, value in part.items()}
        lines = [b"%b\t%b" % record for record in sorted(everything.items())]
        assert gossipkv("scan", "geo", node=node.address).stdout.splitlines() == lines
        backwards = gossipkv("scan", "geo", "--reverse", "--limit", "5", node=node.address).stdout.splitlines()
        assert backwards == lines[::-1][:5]

        write_version(source, "v2", SECOND)
        assert json.loads(gossipkv("refresh", "--json", node=node.address).stdout) == {"geo": ["v1", "v2"]}
        assert gossipkv("status", "geo", "--wait", node=node.address).returncode == 0
        assert gossipkv("get", "geo", "k3-7", node=node.address).stdout == b"new 7"
        assert gossipkv("get", "geo", "k1-7", "--version", "v1", node=node.address).stdout == b"old 7"
        assert gossipkv("get", "geo", "k1-7", "--version", "v0", node=node.address).returncode == 1
        assert gossipkv("get", "nope", "k", node=node.address).returncode == 1
        text = gossipkv("status", node=node.address).stdout.decode()
        assert "1,200" in text
        assert "ACTIVE" in text
        assert "RETIRING" in text
        done = gossipkv("verify", tmp_path / "data")
        assert (done.returncode, done.stderr) == (0, b"")
        assert node.stop() == 0
        assert node.process.stdout.read() == b""

    with NodeProcess(tmp_path) as node:
        node.ready()
        assert gossipkv("get", "geo", "k3-7", node=node.address).stdout == b"new 7"
        assert node.stop(signal.SIGINT) == 0
    told = json.loads(gossipkv("inspect", tmp_path / "data", "--json").stdout)
    assert {version["version"]: version["active"] for version in told["versions"]}["v2"] is True


def test_a_scan_of_many_pages_is_from_one_version(source, tmp_path):
    with NodeProcess(tmp_path, "--scan-limit", "10", source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "v1")
        everything = sorted((key, value) for part in FIRST for key, value in part.items())
        with blocking.connect(node.address, timeout_ms=60_000) as client:
            dataset = client.dataset("geo")
            assert list(dataset.scan()) == everything
            assert list(dataset.scan(reverse=True)) == everything[::-1]
            assert list(dataset.scan(prefix="k1-", limit=25)) == [r for r in everything if r[0].startswith(b"k1-")][:25]
            keys = [key for key, _ in everything] * 3
            assert [value for _, value, _ in dataset.iter_get(keys)] == [value for _, value in everything] * 3
            assert dataset.get_many(keys[:900]) == [value for _, value in everything]


def test_a_second_node_in_the_same_directory_is_refused(source, tmp_path):
    """The command ends with one line and status 3, and the first node goes on."""
    with NodeProcess(tmp_path, source=source) as node:
        node.ready()
        done = gossipkv("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0")
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"in use by process" in done.stderr.splitlines()[-1]
        assert b"Traceback" not in done.stderr
        assert gossipkv("ping", node=node.address).returncode == 0


def test_a_port_in_use_is_said(source, tmp_path):
    with NodeProcess(tmp_path, source=source) as node:
        node.ready()
        done = gossipkv("serve", "--data", tmp_path / "other", "--listen", node.address)
        assert (done.returncode, done.stdout) == (3, b"")
        assert node.address.encode() in done.stderr.splitlines()[-1]
        assert b"Traceback" not in done.stderr


def test_more_partitions_than_descriptors_are_usual(tmp_path):
    """A node raises its limit of descriptors to the hard limit, whatever the soft limit of the shell is."""
    write_version(tmp_path / "source", "v1", [{b"k%d" % number: b"v"} for number in range(100)])
    with NodeProcess(tmp_path, source=tmp_path / "source", soft_descriptors=64) as node:
        node.ready()
        wait_for(node.address, "geo", "v1")


def test_logs_as_json_and_levels(source, tmp_path):
    """--log-format json gives one JSON object a line on standard error; --log-level hides lower levels."""
    with NodeProcess(tmp_path, "--log-format", "json", source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "v1")
        assert node.stop() == 0
        lines = [json.loads(line) for line in node.said().splitlines()]
    assert {"event", "level", "timestamp"} <= set(lines[0])
    assert any(line.get("database") == "geo" for line in lines)
    node.log.unlink()
    with NodeProcess(tmp_path, "--log-level", "error", source=source) as node:
        node.ready()
        assert node.stop() == 0
        assert node.said() == ""


def test_a_reader_survives_a_restart_of_its_node(source, tmp_path):
    """One of two nodes is killed amid a pipeline, and every key is answered."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with NodeProcess(tmp_path / "a", source=source) as first, NodeProcess(tmp_path / "b", source=source) as second:
        for node in (first, second):
            node.ready()
            wait_for(node.address, "geo", "v1")
        everything = {key: value for part in FIRST for key, value in part.items()}
        keys = list(everything) * 20
        with blocking.connect(first.address, second.address, timeout_ms=60_000) as client:
            for number, (key, value, _) in enumerate(client.dataset("geo").iter_get(keys)):
                assert value == everything[key]
                if number == 5000:
                    first.process.kill()
            assert number == len(keys) - 1
            assert str(client.address) == second.address


def test_ping_asks_the_node_of_its_own_environment(tmp_path):
    """The health check of a container reaches a node with another port and TLS, whatever name its certificate has."""
    assert gossipkv("certificates", "new", tmp_path).returncode == 0
    assert gossipkv("certificates", "new", tmp_path, "n1", "--host", "elsewhere.example").returncode == 0
    pair = [str(tmp_path / "n1.pem"), str(tmp_path / "n1.key")]
    (tmp_path / "n1").mkdir()
    with NodeProcess(tmp_path / "n1", "--tls-certificate", pair[0], "--tls-key", pair[1]) as node:
        node.ready()
        settings = {"GOSSIPKV_LISTEN": node.address, "GOSSIPKV_TLS_CERTIFICATE": pair[0], "GOSSIPKV_TLS_KEY": pair[1]}
        assert b"pong" in gossipkv("ping", "--own", more=settings).stdout
        assert node.stop() == 0
