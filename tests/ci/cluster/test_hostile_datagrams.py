"""Real nodes under a flood of datagrams and gossip requests over loopback: they stay members, with bounded memory."""

from __future__ import annotations

import contextlib
import random
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.address import parse_address
from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.ci.cluster.views import LOGGED, Views, alive, names
from tests.nightly.fuzz.datagrams import NOISE, SHARES, Stranger, member_id
from tests.oracle import packets as oracle

if TYPE_CHECKING:
    from gossipkv.client import blocking

pytestmark = pytest.mark.xdist_group("processes")

TWO = range(1, 3)
DATAGRAMS = 20_000
REQUESTS = 300
AT_ONCE = 50  # The test pauses after each batch: datagrams that the socket's buffer drops test nothing.


def stranger(directory: Path) -> Stranger:
    """Return a stranger that has read the cluster's id and heard some pings."""
    (node,) = [path for path in sorted(directory.rglob("NODE")) if "n1" in path.read_text()][:1]
    cluster_id = bytes.fromhex(re.search(r'"cluster_id":"([0-9a-f]{16})"', node.read_text())[1])
    cluster = re.search(r'"cluster":"([^"]+)"', node.read_text())[1]
    one = Stranger(random.Random(1), names(TWO), cluster=cluster, cluster_id=cluster_id)
    for number in range(50):
        fields = {
            "sender's id": member_id("n1"),
            "sequence": number,
            "target's id": member_id("n2"),
            "state hash": bytes(8),
        }
        one.heard.append(oracle.wrap_plain(oracle.encode(("PING", fields, [])), cluster, cluster_id))
    return one


def memory_bytes(process: int) -> int:
    """Return the peak resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def dropped(client: blocking.Client) -> dict[str, int]:
    """Return a node's counts of dropped gossip, by reason."""
    return {name: count for name, count in client.info()["counters"].items() if name.startswith("gossip_dropped_")}


def test_nodes_live_through_a_flood(tmp_path: Path) -> None:
    """Both nodes stay alive to each other and answer during 40,000 datagrams and 600 requests of noise."""
    settings = {**LOGGED, "profile": "wan"}  # Delays of a busy machine are within the patience of this profile.
    with Cluster(tmp_path / "cluster", nodes=2, settings=settings) as cluster, contextlib.ExitStack() as stack:
        views = stack.enter_context(contextlib.closing(Views(cluster)))
        views.until(alive(names(TWO)), TWO)
        noise, draw = stranger(tmp_path), random.Random(2)
        clients = {index: stack.enter_context(cluster.connect(index, timeout_ms=60_000)) for index in TWO}
        before = {index: memory_bytes(cluster.node(index).process) for index in TWO}
        mark = views.mark()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for index in TWO:
                to = parse_address(str(cluster.node(index).address))
                for number in range(DATAGRAMS):
                    sender.sendto(noise.packet(draw.choices(NOISE, SHARES)[0]), tuple(to))
                    if number % AT_ONCE == 0:
                        clients[index].info()  # Trio answers this request, as it reads datagrams.
                drops, refused = sum(dropped(clients[index]).values()), 0
                for _ in range(REQUESTS):
                    try:
                        clients[index].call("gossip", noise.packet(draw.choices(NOISE, SHARES)[0]))
                    except GossipKVError as error:
                        assert error.code == "UNAVAILABLE", error
                        refused += 1
                assert REQUESTS // 2 < refused <= sum(dropped(clients[index]).values()) - drops
        for index in TWO:
            drops = dropped(clients[index])
            assert sum(drops.values()) > DATAGRAMS // 2, drops
            for reason in ("short", "foreign", "protocol_version", "cluster_name", "form", "cluster_id", "checksum"):
                assert drops[f"gossip_dropped_{reason}"] > 100, drops
            assert drops["gossip_dropped_oversized"] > 10
            assert memory_bytes(cluster.node(index).process) - before[index] < 32 << 20
            assert "Traceback" not in cluster.log(index)
        assert views.changes(mark) == []
        views.until(alive(names(TWO)), TWO)
