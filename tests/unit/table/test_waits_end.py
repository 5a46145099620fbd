"""A waiting request on an idle node is answered at its timeout, for each wait reason."""

from __future__ import annotations

from itertools import product

import pytest
import trio

from gossipkv.access.rights import METHODS, Right
from tests.world.nodes.phases import begin, settle
from tests.world.nodes.whole_cluster import simulated

LATE_S = 0.05
PARAMS = {
    "get": [b"k"],
    "get_many": [[b"k", b"l"]],
    "scan": [],
    "put": [b"k", b"v"],
    "delete": [b"k"],
    "put_many": [[[b"k", b"v"], [b"l", b"v"]]],
    "delete_many": [[b"k", b"l"]],
    "delete_range": [{"prefix": b"k"}],
}
OF_RECORDS = {name.decode() for name, right in METHODS.items() if right in (Right.READ, Right.WRITE)}
WRITES = {name.decode() for name, right in METHODS.items() if right == Right.WRITE}
TIMES_MS = (1, 30, 700)
REASONS = ("a newer map", "records that the session has seen", "a host that is silent", "its level")


def options(reason, wait_ms, known):
    """Return options that make a request wait for the reason."""
    by_reason = {
        "a newer map": {"config": known["config"] + 1, "wait_ms": wait_ms},
        "records that the session has seen": {"token": known["token"], "wait_ms": wait_ms},
        "a host that is silent": {},
        "its level": {"level": "all"},
    }
    return {"timeout_ms": wait_ms, **by_reason[reason]}


async def took_s(connection, method, params):
    began = trio.current_time()
    await connection.send(method, *params)
    await connection.read()
    return trio.current_time() - began


def test_all_methods_of_records_wait_here():
    """Only a change feed waits as long as its client asks for."""
    assert {*PARAMS} == OF_RECORDS - {"changes"}


@pytest.mark.parametrize("reason", REASONS)
@simulated(4)
async def test_who_waits_is_answered_in_time(cluster, reason):
    """Each method, at a host and at a forwarding node, is answered within 50 ms of virtual time."""
    await begin(cluster)
    one, *_ = cluster.machines
    await settle(cluster, 30)
    made = {"kind": "hash", "partitions": 1, "replication": 3}
    await cluster.ask(one, "create_table", "t", made)
    told = await cluster.ask(one, "partition_map", "t")
    names = {host["node"] for host in told["partitions"][0]["assignments"]}
    silent, host, _ = (machine for machine in cluster.machines if machine.name in names)
    entry = next(machine for machine in cluster.machines if machine.name not in names)
    await cluster.ask(one, "put", "t", b"k", b"old", {"level": "all", "timeout_ms": 5000})
    others = [machine.host for machine in cluster.machines if machine is not silent]
    if reason != "a newer map":
        cluster.network.partition([silent.host], others)
    known = {"config": told["config"], "token": b""}
    if reason == "records that the session has seen":
        with_token = await cluster.ask(silent, "put", "t", b"k", b"new", {"level": "one"})
        known["token"] = with_token
    if reason == "a host that is silent":
        cluster.network.partition([entry.host], others)
    late = []
    for machine in (host, entry):
        async with cluster.connected(machine) as connection:
            idle_s = await took_s(connection, "ping", [])
            for method, wait_ms in product(PARAMS, TIMES_MS):
                if reason == "its level" and method not in WRITES:
                    continue
                params = ["t", *PARAMS[method], options(reason, wait_ms, known)]
                with trio.move_on_after(5) as scope:
                    took = await took_s(connection, method, params)
                if scope.cancelled_caught or took > wait_ms / 1000 + LATE_S + idle_s:
                    late.append((machine.name, method, wait_ms, "never" if scope.cancelled_caught else took))
                    break
    assert late == []
