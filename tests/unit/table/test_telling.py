"""What a node tells of its tables: who holds them, who lacks what, and which partitions take no writes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from gossipkv.gossip.member import State
from gossipkv.replication import clock
from gossipkv.replication.copy import Write
from gossipkv.replication.feed import Told
from gossipkv.table import telling
from gossipkv.table.routing import Routing
from gossipkv.table.telling import Telling
from tests.unit.table.record_nodes import Records

PARTITIONS = 4


@pytest.fixture
def records():
    """Three nodes that hold a table, of which the others have told the first that they have nothing."""
    made = Records(3)
    for node in made.nodes:
        node.collecting = SimpleNamespace(held_back={})
        node.comparing = SimpleNamespace(differ={})
        node.refusal = None
    made.make("t", firsts=PARTITIONS, holders=lambda _: made.nodes)
    asked = made.nodes[0].replicas
    for node in made.nodes[1:]:
        asked.connected(node.uuid)
        peer = asked.peers[node.uuid]
        peer.greeted = True
        peer.feed._place = asked.tail.first  # Where it is once the log was looked at.
        for copy in asked.copies.values():
            peer.feed.told[copy] = Told(2, clock.named(b"", copy.named), 1, can_take=True, available=True)
    return made


def status(records, name="t"):
    """What the first node tells."""
    return trio.run(of(records).status, name)


def of(records):
    """What tells of the first node."""
    deciding = SimpleNamespace(
        replicating=lambda: records.nodes[0], members=lambda: records.nodes, catalogue=records,
        name_of=lambda uuid: records.node(uuid).name, taking_part=lambda: (records, records),
    )  # fmt: skip
    return Telling(deciding, Routing(deciding, None))


def write(records, count):
    """Have the first node write so many records to its first copy."""
    replicas = records.nodes[0].replicas
    copy = next(iter(replicas.copies.values()))
    replicas.originate(copy, [Write(b"k%d" % number, b"v") for number in range(count)])
    records.run()
    return copy


def test_who_holds_it(records):
    """Partitions by node; nothing is lacked, and all is well."""
    told = status(records)
    assert (told["kind"], told["partition_count"], told["unwell"]) == ("hash", PARTITIONS, [])
    assert [(one["node"], one["state"], one["partitions"], one["lag_records"]) for one in told["nodes"]] == [
        ("n1", "alive", PARTITIONS, 0), ("n2", "alive", PARTITIONS, 0), ("n3", "alive", PARTITIONS, 0),
    ]  # fmt: skip


def test_who_lacks_what(records):
    """In records, and in seconds since the oldest of it; `info` tells the same of all copies."""
    copy = write(records, 2)
    records.nodes[0].replicas.peers[records.nodes[2].uuid].feed.told[copy] = Told(
        2, copy.synced, 1, can_take=True, available=True
    )
    records.pass_s(5)
    write(records, 1)
    lags = {one["node"]: (one["lag_records"], round(one["lag_s"])) for one in status(records)["nodes"]}
    assert lags == {"n1": (0, 0), "n2": (3, 5), "n3": (1, 0)}
    info = of(records).to_map()
    assert (info["copies"], info["copies_aside"], info["waiting"]) == (PARTITIONS, 0, 0)
    assert info["lag_records"] == {"t": {"n2": 3, "n3": 1}}
    assert info["lag_s"]["t"]["n2"] == pytest.approx(5)


def test_a_store_that_takes_no_writes(records):
    """The table's error says why; the nodes that hold it are told beside."""
    records.nodes[0].refusal = "the disk is full"
    told = status(records)
    assert told["error"] == "this node takes no writes: the disk is full"
    assert len(told["nodes"]) == len(records.nodes)
    assert of(records).to_map()["refusal"] == "the disk is full"


def test_for_whom_tombstones_are_kept(records):
    """By name; and how many copies load."""
    n1, _, n3 = records.nodes
    n1.collecting.held_back = dict.fromkeys(n1.replicas.copies.values(), (n3.uuid,))
    told = status(records)
    assert (told["tombstones_held_by"], told["loading"]) == (["n3"], 0)


def test_why_writes_are_refused(records, monkeypatch):
    """Copies that are set aside, partitions without a majority, without anybody; so many are named."""
    n1, n2, n3 = records.nodes
    copy = write(records, 1)
    copy.aside = "an older copy of the store"
    assert [one["why"] for one in status(records)["unwell"]] == [
        "its copy at n1 takes no writes: an older copy of the store"
    ]
    copy.aside = None
    n1.comparing.differ[copy] = {n3.uuid}
    assert "other records than n3" in status(records)["unwell"][0]["why"]
    n1.comparing.differ.clear()
    n1.replicas.loading.log_too_small.add(copy)
    assert "`table_log` is too small" in status(records)["unwell"][0]["why"]
    n1.replicas.loading.log_too_small.clear()
    n3.state = State.DEAD
    assert status(records)["unwell"] == []
    n1.replicas.disconnected(n2.uuid)
    n1.replicas.disconnected(n3.uuid)
    told = status(records)
    assert {one["why"] for one in told["unwell"]} == {"a majority is 2 of 3, and 1 can confirm a write: it is refused"}
    monkeypatch.setattr(telling, "MOST_NAMED", 1)
    n1.state = n2.state = State.DEAD
    told = status(records)
    assert [one["why"] for one in told["unwell"]] == ["none of its nodes is alive: it cannot be read or written"]
    assert told["unwell_not_named"] == PARTITIONS - 1
