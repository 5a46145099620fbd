"""Real nodes that decide on tables: growth under load, a long stream, separate clusters, and a replacement."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from random import Random

import pytest

from gossipkv.errors import Conflict
from gossipkv.launcher import Cluster
from gossipkv.register.metadata.operations import Operation, OperationOutcome
from gossipkv.table.participant.register_poll import POLL_S
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import OPTIONS, Loop, Nodes, judge, until
from tests.ci.cluster.test_cli import gossipkv
from tests.ci.cluster.views import LOGGED, NAME, names

pytestmark = pytest.mark.timeout(600)

N = 5
ALL = range(1, N + 1)
TRANSACTIONS = 300
SETTINGS = {**LOGGED, "refresh_period": "off"}


def test_a_catalogue_that_grows_while_tables_are_made(tmp_path):
    """The catalogue is founded at the first request and grows to five acceptors, and every request succeeds."""
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
    """All transactions of one node are done, and all nodes show the last."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive((1, 2, 3))
        made = nodes.ask(1, "create_table", "t", OPTIONS)
        nodes.same((1, 2, 3))
        first = nodes.ask(1, "partition_map", "t")["partitions"][0]
        chance, config = Random(1), made["config"]
        for _ in range(TRANSACTIONS):
            operation = Operation(chance.randbytes(20), config, "unassign", 1, (first["start"], first["id"], 0))
            sent = [operation.encode()]
            told = nodes.ask(1, "metadata_transact", bytes.fromhex(made["table"]), sent, 30_000)
            assert told == [[operation.id, OperationOutcome.DONE, "", ""]]
            config += 1
        known = until(lambda: nodes.same((1, 2, 3)), lambda known: known["t"][1] >= config, within_s=POLL_S / 2)
        assert known == {"t": (made["table"], config)}


def test_two_clusters_with_tables(tmp_path):
    """Two clusters that were founded separately refuse to join, say so, and go on with their own tables."""
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


def test_a_node_is_replaced_on_all_registers(tmp_path):
    """Tables made on one node grow to three; a killed replacement of an acceptor completes when repeated."""
    with contextlib.ExitStack() as stack:
        nodes = [begun(stack, tmp_path, "n1")]
        with connect(nodes[0].address) as client:
            for number in range(8):
                client.call("create_table", f"t{number}", {"kind": "hash", "partitions": 4, "replication": 1})
            nodes += [begun(stack, tmp_path, name, "--join", nodes[0].address) for name in ("n2", "n3")]
            until(lambda: deciders(client), lambda found: found == [["n1", "n2", "n3"]] * 9)
            nodes[2].process.kill()
            nodes += [begun(stack, tmp_path, "n4", "--join", nodes[0].address)]
            until(lambda: states(client), lambda found: (found.get("n3"), found.get("n4")) == ("dead", "alive"))
            replace = ("metadata", "replace", "n3", "n4")
            for seconds in (0.4, 0.5, 0.6):
                first = subprocess.Popen([sys.executable, "-m", "gossipkv", *replace, "--node", nodes[1].address])
                with contextlib.suppress(subprocess.TimeoutExpired):
                    first.wait(seconds)
                first.kill()
                first.wait()
            done = gossipkv(*replace, "--json", node=nodes[0].address)
            assert (done.returncode, len(json.loads(done.stdout))) == (0, 9), done
            until(lambda: deciders(client), lambda found: found == [["n1", "n2", "n4"]] * 9)
            again = gossipkv(*replace, node=nodes[1].address)
            assert (again.returncode, again.stdout) == (0, b""), again
            assert b"nothing to do: there are 9 registers" in again.stderr
            done = gossipkv("metadata", "replace", "n2", "n4", node=nodes[0].address)
            assert (done.returncode, b"t7: the new node is already an acceptor" in done.stderr) == (3, True)
            client.call("create_table", "after", {"kind": "hash", "partitions": 4, "replication": 3})


def begun(stack, tmp_path, name, *flags):
    (tmp_path / name).mkdir()
    told = ("--node", name, "--cluster", NAME, "--profile", "local", *flags)
    node = stack.enter_context(NodeProcess(tmp_path / name, *told))
    node.ready()
    return node


def deciders(client):
    """Return the acceptors of each register, as one node reports them."""
    registers = client.call("metadata_status", None)
    return [sorted({one["node"] for one in register["old"] + register["new"]}) for register in registers]


def states(client):
    return {member["node"]: member["state"] for member in client.members()}


def test_an_operation_s_id_that_many_use(tmp_path):
    """Many creations under one id make a single table; all other creations are refused."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(range(1, 4))
        nodes.ask(1, "create_table", "first", {"kind": "hash", "partitions": 4, "replication": 1})
        nodes.grown(range(1, 4), names(range(1, 4)))
        operation, told = os.urandom(20), {}

        def create(number: int) -> None:
            options = {"kind": "hash", "partitions": 4, "replication": 1, "operation": operation}
            with connect(cluster.node(1 + number % 3).address) as client:
                try:
                    told[f"t{number}"] = client.call("create_table", f"t{number}", options)["table"]
                except Conflict as error:
                    told[f"t{number}"] = error

        threads = [threading.Thread(target=create, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = {name: table for name, table in told.items() if isinstance(table, str)}
        there = {name: table for name, (table, _) in nodes.same(range(1, 4)).items() if name != "first"}
        assert (len(made), there, len(told)) == (1, made, 24)
        assert all(operation.hex() in str(error) for error in told.values() if isinstance(error, Conflict))
