"""Smuggled requests against a real node, which reads plain requests, and its gateway, which reads all others."""

from __future__ import annotations

import re
import socket

import pytest

from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ci.cluster.test_http import gateways
from tests.unit.serving.http_smuggling import ATTACKS, FOLLOWED, SMUGGLED

PLAIN = b"GET /db/k HTTP/1.1\r\nHost: h\r\n\r\n"
OPTIONS = ("--http-listen", "127.0.0.1:0", "--http-hosts", "*")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Return the HTTP address of a node that has `db`."""
    place = tmp_path_factory.mktemp("node")
    version = place / "source" / "db" / "1"
    version.mkdir(parents=True)
    (version / "part-00000.tsv").write_bytes(b"k\tv\nten\t" + SMUGGLED + b"\n")
    with NodeProcess(place, *OPTIONS, source=place / "source") as node:
        node.ready()
        wait_for(node.address, "db", "1")
        host, _, port = gateways(node)[-1][0].rpartition(":")
        yield host, int(port)


@pytest.mark.parametrize("before", [b"", PLAIN])
@pytest.mark.parametrize("name", [*ATTACKS, *FOLLOWED])
def test_nothing_is_served_out_of_a_body(address, name, before):
    """The node's own answer, if any, precedes the gateway's; after an attack the connection ends."""
    stream, statuses = (ATTACKS | FOLLOWED)[name]
    with socket.create_connection(address, PATIENCE_S) as client:
        client.sendall(before + stream)
        if name in FOLLOWED:
            client.shutdown(socket.SHUT_WR)
        received = b""
        while data := client.recv(1 << 16):
            received += data
    told = tuple(int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", received))
    assert told == ((200,) if before else ()) + statuses
    assert received.count(SMUGGLED) == (name in FOLLOWED and len(statuses) - 1)
