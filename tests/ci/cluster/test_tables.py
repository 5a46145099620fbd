"""Real nodes that decide on tables: founded and grown under load, a majority lost, one replaced, alone in the dark."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.launcher import Cluster
from gossipkv.register.metadata.ledger import MOST_PINS
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import Outcome
from gossipkv.table.deciding import POLL_S
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import OPTIONS, Loop, Nodes, judge, until
from tests.ci.cluster.views import LOGGED, NAME, names

pytestmark = pytest.mark.timeout(600)

N = 5
ALL = range(1, N + 1)
SETTINGS = {**LOGGED, "refresh_period": "off"}


def test_a_catalogue_that_grows_while_tables_are_made(tmp_path):
    """Founded at the first that is asked of any node; grown to five; nothing is lost, refused or open meanwhile."""
    with Cluster(tmp_path, nodes=N, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        with Loop(cluster.addresses, clients=4, seed=1) as loop:
            nodes.grown(ALL, names(ALL))
            until(loop.done, lambda done: done[0] >= 10 and done[1] >= 4)
            history = loop.end()
        judge(history, nodes.same(ALL))
        failed = [line for line in history if {*line.get("tries", ())} - {"OK", "CONFLICT", "UNKNOWN_DATABASE"}]
        assert failed == []
        nodes.all_answer(ALL)


def test_a_stream_of_transactions(tmp_path):
    """More than roots may be pinned, one after another at one server: each is done, and all nodes show the last."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        made = nodes.ask(1, "create_table", "t", OPTIONS)
        nodes.same((1, 2, 3))
        first = nodes.ask(1, "partition_map", "t")["partitions"][0]
        chance, config = Random(1), made["config"]
        for _ in range(MOST_PINS + 44):
            operation = Operation(chance.randbytes(20), config, "unassign", 1, (first["start"], first["id"], 0))
            sent = [operation.encode()]
            told = nodes.ask(1, "metadata_transact", bytes.fromhex(made["table"]), sent, 30_000)
            assert told == [[operation.id, Outcome.DONE, "", ""]]
            config += 1
        known = until(lambda: nodes.same((1, 2, 3)), lambda known: known["t"][1] >= config, within_s=POLL_S / 2)
        assert known == {"t": (made["table"], config)}


def test_two_clusters_with_tables(tmp_path):
    """Each was founded by itself: told to join one another they refuse, loudly, and live on, each with its own."""
    flags = {name: ("--node", name, "--cluster", NAME, "--profile", "local") for name in "ab"}
    for name in "ab":
        (tmp_path / name).mkdir()
    with NodeProcess(tmp_path / "a", *flags["a"]) as one:
        one.ready()
        table = {"kind": "hash", "partitions": 4, "replication": 1}
        with NodeProcess(tmp_path / "b", *flags["b"]) as other:
            other.ready()
            for node, made in ((one, "of-a"), (other, "of-b")):
                with connect(node.address) as client:
                    client.call("create_table", made, table)
            assert other.stop() == 0
        with NodeProcess(tmp_path / "b", *flags["b"], "--join", one.address) as other:
            other.ready()
            for node in (one, other):
                until(node.said, lambda said: "since both have tables" in said)
            for node, own in ((one, "a"), (other, "b")):
                with connect(node.address) as client:
                    assert [member["node"] for member in client.members()] == [own]
                    client.call("create_table", f"more-of-{own}", table)
                    assert sorted(one["name"] for one in client.databases()) == [f"more-of-{own}", f"of-{own}"]
            assert other.stop() == 0
        assert one.stop() == 0
