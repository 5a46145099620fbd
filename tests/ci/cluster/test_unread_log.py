"""A node whose log is not read: strangers that cause log lines delay neither clients nor the end."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import urllib.request

import msgpack

from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess
from tests.ci.cluster.test_users import FIRST, connect, users
from tests.ports import HOST, quiet_ports

LITTLE = "from gossipkv.processes import streams\nstreams.MAX_QUEUED_BYTES = 10_000"
STRANGERS = 600  # These are more than the log has lines for at once.


def refused(address: str, stranger: int) -> None:
    """Send a forbidden request, which causes a line of the log."""
    host, port = address.split(":")
    with socket.create_connection(
        (host, int(port)), PATIENCE_S, (f"127.0.{stranger >> 8}.{2 + stranger % 250}", 0)
    ) as s:
        s.sendall(msgpack.packb([0, 1, "status", []]))
        assert b"UNAUTHORIZED" in s.recv(1 << 16)


def test_strangers_fill_a_log_that_nobody_reads(tmp_path):
    """Clients, new connections and the gateway are answered; a late reader of the log learns that lines were lost."""
    fifo, place = tmp_path / "log", tmp_path / "node"
    place.mkdir()
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    gateway = f"{HOST}:{quiet_ports(1)[0]}"
    users(tmp_path / "users", first=FIRST)
    options = ["--users", str(tmp_path / "users"), "--http-listen", gateway, "--log-format", "json"]
    within = ["sh", "-c", 'to="$1"; shift; exec "$@" 2>"$to"', "sh", str(fifo)]
    with NodeProcess(place, *options, changed=LITTLE, within=within) as node:
        node.ready()
        with connect(node.address, FIRST) as client:
            for stranger in range(STRANGERS):
                refused(node.address, stranger)
            client.ping()
        with connect(node.address, FIRST) as client:
            client.ping()
        with urllib.request.urlopen(f"http://{gateway}/livez", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        said = b""
        os.set_blocking(reader, True)
        while b'"log_lost"' not in said:
            said += os.read(reader, 1 << 16)
        lines = [json.loads(line) for line in said.splitlines() if line.endswith(b"}")]
        (lost,) = (line["lines"] for line in lines if line["event"] == "log_lost")
        assert lost + sum(line["event"] == "refused" for line in lines) >= 500
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        for stranger in range(100):
            refused(node.address, stranger)
        assert node.stop() == 0
    os.close(reader)
