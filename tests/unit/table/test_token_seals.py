"""Tokens prove where they come from: nodes of one cluster share a secret, and no other token is taken."""

from __future__ import annotations

import struct

import pytest

from gossipkv.errors import BadRequest
from tests.oracle.token import encoded
from tests.world.nodes.phases import begin, settle
from tests.world.nodes.whole_cluster import simulated

HASH = {"kind": "hash", "partitions": 4, "replication": 1}


@simulated(3)
async def test_a_token_is_taken_by_every_node_and_a_made_up_one_by_none(cluster):
    """A forged token is not stored with a record, so readers of the record keep their sessions."""
    await begin(cluster)
    one, *others = cluster.machines
    await settle(cluster, 30)
    await cluster.ask(one, "create_table", "t", HASH)
    token = await cluster.ask(one, "put", "t", b"k", b"v")
    _, feed = await cluster.ask(one, "changes", "t", {"start": "snapshot"})
    for machine in cluster.machines:
        value, _ = await cluster.ask(machine, "get", "t", b"k", {"token": token, "wait_ms": 1000})
        assert value == b"v"
        await cluster.ask(machine, "changes", "t", {"token": feed, "wait_ms": 0})
    told = await cluster.ask(one, "partition_map", "t")
    table, origin = bytes.fromhex(told["table"]), int(told["partitions"][0]["assignments"][0]["id"], 16)
    forged = encoded({table: (told["config"], {origin: 1 << 62})}, bytes(16))
    changed = token[:20] + struct.pack(">B", token[20] ^ 1) + token[21:]
    for machine in others:
        for wrong in (forged, changed, token + forged, feed):
            for method, *params in (("put", b"other", b"v"), ("get", b"k"), ("delete", b"k")):
                with pytest.raises(BadRequest, match="token"):
                    await cluster.ask(machine, method, "t", *params, {"token": wrong})
        for wrong in (feed[:-1] + bytes([feed[-1] ^ 1]), token):
            with pytest.raises(BadRequest, match="token"):
                await cluster.ask(machine, "changes", "t", {"token": wrong, "wait_ms": 0})
    assert (await cluster.ask(one, "get", "t", b"other"))[0] is None
