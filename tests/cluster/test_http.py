"""HTTP with real processes: a node's gateway lives and dies with it and never ends it; a gateway alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from gossipkv.launcher import Cluster
from tests.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ports import quiet_ports

BIG = b"y" * (12 << 20)
IDLE = 1000
# A process with Trio, h11 and the client has some 45 MB; 1,000 connections had 20 KiB each.
MOST_PEAK_BYTES = 200 << 20


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """One database, called as anybody would, and one that is called as a path of the gateway's own."""
    root = tmp_path_factory.mktemp("source")
    for name in ("geo", "metrics"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "part-00000.tsv").write_bytes(b"paris\tFrance\na/../b\tdots\nbig\t" + BIG + b"\n")
    return root


@contextmanager
def node_with_http(place, source, *options):
    """A node that serves `geo`, and the address of its gateway."""
    with NodeProcess(place, "--http-listen", "127.0.0.1:0", *options, source=source) as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        yield node, gateways(node)[-1][0]


def until(true, what):
    """Wait until it is."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < give_up_s, what()
        time.sleep(0.02)
    return found


def gateways(node, count=1):
    """Address and process of each gateway that the node has had, when there have been so many."""
    pattern = re.compile(r"address=(\S+) process=(\d+)")
    found = until(
        lambda: len(told := [line for line in node.said().splitlines() if "] http " in line]) >= count and told,
        node.said,
    )
    return [(match[1], int(match[2])) for match in map(pattern.search, found)]


def lives(process):
    """Whether it runs; one that only waits to be reaped does not."""
    try:
        with open(f"/proc/{process}/stat", "rb") as told:
            return told.read().rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False


def get(address, path, headers=None):
    """Status, headers and body."""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def dial(address):
    """A plain connection."""
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def read_all(connection):
    """All that comes until the other end closes."""
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def test_curl_and_wget(tmp_path, source):
    """Get the right status, headers and bytes, of keys that look like paths as well."""
    with node_with_http(tmp_path, source) as (_, address):
        out = tmp_path / "out"
        told = subprocess.run(
            ["curl", "-sS", "--path-as-is", "-D", "-", "-o", str(out), f"http://{address}/geo/a/../b"],
            capture_output=True, check=True, timeout=PATIENCE_S,
        ).stdout  # fmt: skip
        assert told.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"X-Sequins-Version: 1\r\n" in told
        assert out.read_bytes() == b"dots"
        ranged = subprocess.run(
            ["curl", "-sS", "-r", "5-14", f"http://{address}/geo/big"],
            capture_output=True, check=True, timeout=PATIENCE_S,
        ).stdout  # fmt: skip
        assert ranged == b"y" * 10
        if shutil.which("wget") is not None:
            subprocess.run(["wget", "-q", "-O", str(out), f"http://{address}/geo/big"], check=True, timeout=PATIENCE_S)
            assert out.read_bytes() == BIG
        status, headers, _ = get(address, "/geo/none")
        assert (status, headers["X-Sequins-Version"]) == (404, "1")
        status, headers, _ = get(address, "/none/none")
        assert (status, headers.get("X-Sequins-Version"), headers["X-GossipKV-Error"]) == (
            404,
            None,
            "UNKNOWN_DATABASE",
        )


def test_the_gateway_dies_with_its_node_however_that_ends(tmp_path, source):
    """By the kernel, also when it is stopped itself."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        place = tmp_path / number.name
        place.mkdir()
        with node_with_http(place, source) as (node, address):
            ((_, gateway),) = gateways(node)
            assert get(address, "/geo/paris")[2] == b"France"
            if number == signal.SIGKILL:
                os.kill(gateway, signal.SIGSTOP)
            node.stop(number)
            until(lambda gateway=gateway: not lives(gateway), lambda: "it lives")
            with pytest.raises(ConnectionRefusedError):
                dial(address)


def test_the_node_outlives_its_gateway(tmp_path, source):
    """A line in the log and another gateway; nobody who connects meanwhile is refused."""
    with node_with_http(tmp_path, source) as (node, address):
        for count in (2, 3):
            os.kill(gateways(node, count - 1)[-1][1], signal.SIGKILL)
            assert get(address, "/geo/paris")[2] == b"France"
            told = gateways(node, count)
            assert {where for where, _ in told} == {address}
        assert len({process for _, process in told}) == 3
        ended = [line for line in node.said().splitlines() if "http_ended" in line]
        assert [re.search(r"again_ms=(\d+)", line)[1] for line in ended] == ["100", "200"]
        assert all("was killed by signal 9" in line for line in ended)
        assert node.stop() == 0


def test_a_port_in_use_ends_the_start(tmp_path, source):
    """With one line that says which address, and the setting to change; nothing was begun."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with NodeProcess(tmp_path, "--http-listen", where, source=source) as node:
            assert node.process.wait(PATIENCE_S) == 3
        said = node.said().splitlines()
    assert said == [
        f"gossipkv: cannot listen on {where}: Address already in use; choose another with --http-listen"
    ]  # fmt: skip
    assert not (tmp_path / "data").exists()


def test_what_is_in_flight_when_the_node_ends_is_answered(tmp_path, source):
    """By HTTP too: who takes a large answer slowly gets all of it; idle ones and newcomers are not kept."""
    with node_with_http(tmp_path, source) as (node, address):
        with dial(address) as slow, dial(address) as idle:
            idle.sendall(b"GET /geo/paris HTTP/1.1\r\nHost: h\r\n\r\n")
            assert idle.recv(1 << 16).endswith(b"France")
            slow.sendall(b"GET /geo/big HTTP/1.1\r\nHost: h\r\n\r\n")
            begun = slow.recv(1 << 10)
            node.process.send_signal(signal.SIGTERM)
            assert idle.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                dial(address)
            assert (begun + read_all(slow)).endswith(b"\r\n\r\n" + BIG)
        assert node.process.wait(PATIENCE_S) == 0
        assert "http_cut" not in node.said()
        assert "http_ended" not in node.said()


def test_types_of_values_are_read_again(tmp_path, source):
    """At SIGHUP, for the gateway that runs; a database whose name is a path of its own is warned of, once."""
    settings = tmp_path / "gossipkv.toml"
    settings.write_text('content_type = "text/plain"\n')
    with node_with_http(tmp_path, source, "--config", str(settings)) as (node, address):
        wait_for(node.address, "metrics", "1")
        assert get(address, "/geo/paris")[1]["Content-Type"] == "text/plain"
        settings.write_text('content_type = "text/plain"\n[databases.geo]\ncontent_type = "text/x-country"\n')
        node.process.send_signal(signal.SIGHUP)
        until(lambda: get(address, "/geo/paris")[1]["Content-Type"] == "text/x-country", node.said)
        assert get(address, "/metrics/paris")[::2] == (200, b"France")
        hidden = [line for line in node.said().splitlines() if "http_hidden" in line]
        assert len(hidden) == 1
        assert "database=metrics path=/metrics" in hidden[0]


def test_a_thousand_idle_connections(tmp_path, source):
    """Cost little memory, and others are answered beside them, a thousand pipelined requests of one among them."""
    with node_with_http(tmp_path, source) as (node, address), contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            connection = stack.enter_context(dial(address))
            connection.sendall(b"GET /geo/paris HT")
        with dial(address) as pipelined:
            pipelined.sendall(b"GET /geo/paris HTTP/1.1\r\nHost: h\r\n\r\n" * 1000)
            pipelined.shutdown(socket.SHUT_WR)
            assert read_all(pipelined).count(b"France") == 1000
        ((_, gateway),) = gateways(node)
        with open(f"/proc/{gateway}/status", encoding="ascii") as told:
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", told.read())[1]) << 10
        assert peak < MOST_PEAK_BYTES


class Alone:
    """`gossipkv http`, ready."""

    def __init__(self, *options):
        command = [sys.executable, "-m", "gossipkv", "http", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable
        word, self.address = self.process.stdout.readline().decode().split()
        assert word == "ready"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_a_gateway_alone_outlives_its_nodes(tmp_path, source):
    """It is ready before there is one; 502 while there is none, and answers again when there is another."""
    (port,) = quiet_ports(1)
    with Alone("--node", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--content-type", "geo=text/plain") as alone:
        status, headers, body = get(alone.address, "/geo/paris")
        assert (status, headers["X-GossipKV-Error"]) == (502, "UNAVAILABLE")
        assert b"no node could be reached" in body
        for _ in range(2):
            # The last --listen counts.
            with NodeProcess(tmp_path, "--listen", f"127.0.0.1:{port}", source=source) as node:
                node.ready()
                wait_for(node.address, "geo", "1")
                until(lambda: get(alone.address, "/geo/paris")[::2] == (200, b"France"), node.said)
                assert get(alone.address, "/geo/paris")[1]["Content-Type"] == "text/plain"
                status, headers, _ = get(alone.address, "/geo/paris?proxy=true")
                assert (status, headers["X-GossipKV-Error"]) == (400, "BAD_REQUEST")
                node.stop(signal.SIGKILL)
            assert get(alone.address, "/geo/paris")[0] == 502
        alone.process.send_signal(signal.SIGTERM)
        assert alone.process.wait(PATIENCE_S) == 0


def test_gateways_share_a_port_if_they_all_say_so(tmp_path):
    """One that does not is refused, with status 3 and one line."""
    (port,) = quiet_ports(1)
    where = ["--listen", f"127.0.0.1:{port}"]
    with Alone(*where, "--share-port"), Alone(*where, "--share-port"):
        done = subprocess.run(
            [sys.executable, "-m", "gossipkv", "http", *where],
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 3
    assert done.stderr == (
        f"gossipkv: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --listen\n"
    )


def test_a_cluster_with_http(tmp_path, source):
    """Each node has a port for it, told in the table, that is its own again after a kill and another `up`."""
    ports = []
    for _ in range(2):
        with Cluster(tmp_path / "cluster", nodes=2, source=source, http=True) as cluster:
            ports.append([node.http for node in cluster.status()])
            for node in cluster.status():
                until(lambda node=node: get(node.http, "/geo/paris")[::2] == (200, b"France"), cluster.status)
            cluster.kill(2)
            again = cluster.start(2)
            assert again.http == ports[0][1]
            until(lambda again=again: get(again.http, "/geo/paris")[::2] == (200, b"France"), cluster.status)
    assert ports[0] == ports[1]
    assert len(set(ports[0])) == 2
    told = subprocess.run(
        [sys.executable, "-m", "gossipkv", "cluster", "status", "--json", "--data", str(tmp_path / "cluster")],
        capture_output=True, check=True, timeout=PATIENCE_S,
    ).stdout  # fmt: skip
    assert [node["http"] for node in json.loads(told)["nodes"]] == ports[0]
    with Cluster(tmp_path / "cluster", http=False) as cluster:
        assert [node.http for node in cluster.status()] == [None, None]
