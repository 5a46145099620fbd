"""Real acceptors that are frozen, killed, damaged or older programs, and a full map: the others decide."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import time
from collections import deque
from random import Random

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from gossipkv.node.identity import read_node
from gossipkv.register.metadata.operations import UNSUPPORTED, Operation, OperationOutcome
from gossipkv.register.space import MAP
from gossipkv.table.participant.register_poll import POLL_S
from tests.ci.cluster.node_process import NodeProcess, connect
from tests.ci.cluster.table_nodes import Nodes, until
from tests.ci.cluster.test_tables import SETTINGS
from tests.ci.cluster.views import NAME, names
from tests.world.blocking_store import Store

pytestmark = pytest.mark.timeout(600)

ALL = (1, 2, 3)
TRANSACTIONS = 60
RANGES = {"kind": "range", "replication": 3, "timeout_ms": 30_000}
SHOWN_S = POLL_S / 2  # Before the next quorum read, which is only a safety net.
DONE = OperationOutcome.DONE


@pytest.fixture
def nodes(tmp_path):
    """Start three nodes that decide on the catalogue and the table `t`."""
    with Cluster(tmp_path, nodes=3, settings=SETTINGS) as cluster, Nodes(cluster) as nodes:
        nodes.all_alive(ALL)
        nodes.ask(1, "create_table", "first", RANGES)
        nodes.grown(ALL, names(ALL))
        nodes.ask(1, "create_table", "t", RANGES)
        nodes.same(ALL)
        yield nodes


def unassign(client, name="unassign"):
    """Return the table's register, and an operation that finds itself done: the assignment does not exist."""
    told = client("partition_map", "t")
    first = told["partitions"][0]
    operation = Operation(os.urandom(20), told["config"], name, 1, (first["start"], first["id"], 0))
    return bytes.fromhex(told["table"]), operation


def transact(client, register, operation):
    """Return the outcome of an operation at one node, and its code."""
    ((told, outcome, code, _),) = client("metadata_transact", register, [operation.encode()], 30_000)
    assert told == operation.id
    return outcome, code


def starts(nodes, index):
    """Return the first keys of the ranges, as a node shows them."""
    return [one["start"] for one in nodes.ask(index, "partition_map", "t")["partitions"]]


def freeze(cluster):
    cluster.send(3, signal.SIGSTOP)
    return lambda: cluster.send(3, signal.SIGCONT)


def kill(cluster):
    cluster.kill(3)
    return lambda: cluster.start(3)


@pytest.mark.parametrize("fault", [freeze, kill])
def test_an_acceptor_that_is_away_during_transactions(nodes, fault):
    """The others decide without a pause; the acceptor shows the same maps within seconds after it is back."""
    come_back, took_s = fault(nodes.cluster), []
    with pytest.raises(GossipKVError), nodes.cluster.connect(3, timeout_ms=500) as client:
        client.call("databases")
    for _ in range(TRANSACTIONS):
        sent = unassign(lambda *asked: nodes.ask(1, *asked))
        began_s = time.monotonic()
        assert transact(lambda *asked: nodes.ask(2, *asked), *sent) == (DONE, "")
        took_s.append(time.monotonic() - began_s)
    for key in (b"f", b"m", b"s"):
        nodes.ask(1, "split", "t", key)
    nodes.ask(2, "drop_table", "first")
    come_back()
    made = nodes.same((1, 2))
    assert [*made] == ["t"]
    until(lambda: nodes.tables(3), lambda known: known == nodes.tables(1), within_s=SHOWN_S)
    assert [starts(nodes, index) for index in ALL] == [[b"", b"f", b"m", b"s"]] * 3
    assert statistics.median(took_s) < 0.5  # Each waits for the fastest majority, and for no silent acceptor.
    nodes.all_answer(ALL)


def test_an_acceptor_whose_map_is_damaged_on_the_disk(nodes):
    """The node finds the damage by the digest, reads the map from others, and only then decides on it again."""
    register = bytes.fromhex(nodes.tables(1)["t"][0])
    nodes.ask(1, "split", "t", b"m")
    nodes.same(ALL)
    stopped = nodes.cluster.stop(3)
    with Store.open(f"{stopped.data}/tables", create=False) as store:
        found, _ = store.scan(store.first_space, MAP + register, MAP + register + b"\xff")
        key, record = max(found)
        store.put(store.first_space, key, record[:-1] + bytes([record[-1] ^ 1]))
    nodes.cluster.start(3)
    until(lambda: nodes.tables(3), lambda known: known == nodes.tables(1), within_s=SHOWN_S)
    damaged = [json.loads(line) for line in nodes.cluster.log(3).splitlines() if "map_damaged" in line]
    assert [line["register"] for line in damaged] == [register.hex()]
    nodes.cluster.kill(2)  # Now the third node's acceptance is needed.
    with contextlib.suppress(GossipKVError):  # The split may be done and its answer late.
        nodes.ask(1, "split", "t", b"s")
    until(lambda: [starts(nodes, index) for index in (1, 3)], lambda found: found == [[b"", b"m", b"s"]] * 2)


# Python for a node of an older program, which lacks two operations.
OLDER = """
from gossipkv.register.metadata import partitions, tables
del partitions.OPERATIONS["unassign", 1], tables.OPERATIONS["add_table", 1]
"""


def begun(stack, place, name, *flags, changed=""):
    """Start a node of its own in a directory of its own."""
    (place / name).mkdir(exist_ok=True)
    told = ("--node", name, "--cluster", NAME, "--profile", "local", "--refresh-period", "off", *flags)
    node = stack.enter_context(NodeProcess(place / name, *told, changed=changed))
    node.ready()
    return node


def test_an_operation_of_a_newer_program(tmp_path):
    """An older acceptor says that it does not know the operation, records nothing, and takes the others' edits."""
    with contextlib.ExitStack() as stack:
        newer = begun(stack, tmp_path, "n1")
        old = begun(stack, tmp_path, "n2", "--join", newer.address, changed=OLDER)
        begun(stack, tmp_path, "n3", "--join", newer.address)
        at_new, at_old = (stack.enter_context(connect(node.address)).call for node in (newer, old))
        until(lambda: [one["state"] for one in at_new("members")], lambda states: states == ["alive"] * 3)
        at_new("create_table", "t", RANGES)
        until(lambda: [len(row["new"]) for row in at_old("metadata_status", None)], lambda counts: counts == [3, 3])
        register, operation = unassign(at_new)
        config = at_new("partition_map", "t")["config"]
        assert transact(at_old, register, operation) == (OperationOutcome.UNKNOWN, UNSUPPORTED)
        assert at_old("partition_map", "t")["config"] == config
        assert transact(at_new, register, operation) == (DONE, "")
        assert transact(at_old, register, operation) == (DONE, "")  # Its outcome is found by its id.
        assert transact(at_new, register, unassign(at_new, name="novel")[1]) == (OperationOutcome.UNKNOWN, UNSUPPORTED)
        at_old("create_table", "elsewhere", {**RANGES, "replication": 1})


def divided(first, path, partition, chance, count=64):
    """Return the operation's argument that divides a range, and the children: their first keys, paths and ids."""
    paths = [path + bytes([33 + at]) for at in range(count)]
    children = [(key.ljust(255) if at else first, key, chance.getrandbits(63)) for at, key in enumerate(paths)]
    return (first, partition, tuple((key, id_, (chance.getrandbits(63),)) for key, _, id_ in children)), children


def test_a_map_that_is_full(tmp_path):
    """At 32 MiB an operation that needs more room is refused by name; smaller ones go on, and a new node reads it."""
    chance = Random(1)
    with contextlib.ExitStack() as stack:
        node = begun(stack, tmp_path, "n1")
        call = stack.enter_context(connect(node.address)).call
        call("create_table", "t", {"kind": "range", "replication": 1})
        (told,) = call("partition_map", "t")["partitions"]
        register, me = bytes.fromhex(call("partition_map", "t")["table"]), read_node(RealFiles(), tmp_path / "n1/data")

        def change(register, name, *argument):
            ((_, _, base, *_),) = call("map_changes", [[register, 0, -1, None]], 0)
            return transact(call, register, Operation(os.urandom(20), base, name, 1, argument))

        # The range lies on a node that is gone, and has many ends: nobody makes replicas, and the children are large.
        without = (bytes.fromhex(me.uuid), not me.uuid, 0)
        assert change(2 * bytes.fromhex(me.cluster_id), "remove_node", *without) == (DONE, "")
        ends = tuple((chance.getrandbits(63), 1 << 62) for _ in range(63))
        ends += ((int(told["assignments"][0]["id"], 16), 1 << 62),)
        assert change(register, "refound", b"", told["id"], 1, 2, bytes(16), ends, 0) == (DONE, "")
        ranges = deque([(b"", b"", 1)])
        while True:
            argument, children = divided(*ranges[0], chance)
            if (outcome := change(register, "divide", *argument)) != (DONE, ""):
                break
            ranges.popleft()
            ranges.extend(children)
        assert outcome == (OperationOutcome.REFUSED, "TOO_LARGE")
        assert change(register, "divide", *divided(*ranges[0], chance, 2)[0]) == (DONE, "")
        newcomer = begun(stack, tmp_path, "n2", "--join", node.address)
        asked = [call, stack.enter_context(connect(newcomer.address)).call]
        until(lambda: [at("partition_map", "t")["config"] for at in asked], lambda found: found[0] == found[1] > 300)
