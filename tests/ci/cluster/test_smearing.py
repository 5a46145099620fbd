"""Real nodes that smear puts of a time series: a node with buffered puts is killed, and no put is lost."""

from __future__ import annotations

import signal
import time

import pytest

from gossipkv.launcher import Cluster
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(300)

TABLE = "readings"
PUTS = 300
NOW = 1_800_000_000  # Seconds, without meaning to the nodes.


def key(number):
    return (NOW + number % 30).to_bytes(8, "big") + b"/%d" % number


def waiting(nodes, index):
    told = nodes.ask(index, "status", {"local": True})[TABLE]["smeared"]
    return 0 if told is None else told["puts"]


def test_puts_that_wait_outlive_their_node(tmp_path):
    """Puts accepted by a node survive repeated kills; on SIGTERM the node forwards all, each exactly once."""
    with Cluster(tmp_path, nodes=3, settings=LOGGED) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 4))
        bounds = [NOW.to_bytes(8, "big"), (NOW + 30).to_bytes(8, "big")]
        wanted = {"kind": "range", "replication": 1, "time_key": [0, 8, "s"], "bounds": bounds}
        nodes.ask(1, "create_table", TABLE, wanted)
        shown = nodes.ask(1, "partition_map", TABLE)["partitions"][1]
        (host,) = [int(one["node"].removeprefix("n")) for one in shown["assignments"]]
        smearer, other = [index for index in (1, 2, 3) if index != host]
        began_s = time.monotonic()
        for number in range(PUTS):
            assert nodes.ask(smearer, "put", TABLE, key(number), b"%d" % number) == {"accepted": True}
            if number % 100 == 99:
                cluster.kill(smearer)
                cluster.start(smearer)
                nodes.all_alive(range(1, 4))
        if time.monotonic() - began_s < 60:
            assert waiting(nodes, smearer) > 0
            until(  # Puts that were due before the restart are reported until the next put is taken.
                lambda: [one["text"] for one in nodes.ask(other, "verdict")["reasons"]],
                lambda reasons: any(f"puts wait at n{smearer}, for" in text for text in reasons),
                within_s=30,
            )
        late = nodes.ask(other, "put", TABLE, key(0), b"late", {"level": "majority"})
        assert isinstance(late, bytes)
        cluster.send(smearer, signal.SIGTERM)
        until(lambda: nodes.ask(host, "scan", TABLE, {"limit": 2 * PUTS})[0], lambda rows: len(rows) == PUTS)
        rows = dict(nodes.ask(host, "scan", TABLE, {"limit": 2 * PUTS})[0])
        assert rows.pop(key(0)) == b"late"
        assert rows == {key(number): b"%d" % number for number in range(1, PUTS)}
