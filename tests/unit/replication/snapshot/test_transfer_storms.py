"""Replicas with frequent log trims, crashes, cuts and slow disks finally have all records."""

from __future__ import annotations

import random

import pytest

from gossipkv.errors import Overloaded
from gossipkv.replication.replica import record
from gossipkv.replication.replica.record import RecordWrite
from tests.unit.replication.memory import Cluster

STEPS = 120
KEYS = [f"k{number}".encode() for number in range(6)]


@pytest.fixture(autouse=True)
def _pages_are_small(monkeypatch):
    monkeypatch.setattr("gossipkv.replication.snapshot.transfer.PAGE_BYTES", 1)


def strike(cluster, chance):
    node = chance.choice(cluster.nodes)
    drawn = chance.random()
    if drawn < 0.3:
        cluster.cut(node)
    elif drawn < 0.4:
        cluster.crash(node)
    elif drawn < 0.6:
        node.trim()
    elif drawn < 0.75:
        node.syncs = not node.syncs
        node.sync() if node.syncs else None
    elif drawn < 0.8:
        node.refuses = Overloaded("no room")
    else:
        node.refuses = None
        cluster.connect(node)


def writes(cluster, chance):
    """Write or delete keys at two random nodes."""
    for node in chance.sample(cluster.nodes, 2):
        if node.replicas.by_partition and node.refuses is None and node.replicas.may_originate(node.copy):
            value = None if chance.random() < 0.3 else chance.randbytes(4)
            node.replicas.originate({node.copy: [RecordWrite(chance.choice(KEYS), value)]})


def check_equal(cluster):
    """Replicas with equal clocks have equal live records, and no record beyond the clock."""
    shown = {}
    for node in cluster.nodes:
        assert not node.ahead
        live = shown.setdefault(node.copy.synced, node.live)
        assert live == node.live, f"{cluster.now}: at equal clocks"


@pytest.mark.parametrize("seed", range(12))
def test_storms(seed):
    """Every durable write, or a later one, is on all nodes; torn loads leave nothing behind."""
    chance = random.Random(seed)
    cluster = Cluster(chance.choice((2, 3, 3)))
    for node in cluster.nodes:
        node.skew_s = chance.choice((0, 0, 20, -20))
    for _ in range(STEPS):
        writes(cluster, chance)
        if chance.random() < 0.3:
            strike(cluster, chance)
        cluster.pass_s(chance.choice((0.01, 0.05, 0.3)))
        chance.choice(cluster.nodes).collector.look()
        check_equal(cluster)
    for node in cluster.nodes:
        node.syncs, node.refuses = True, None
        node.sync()
    cluster.connect()
    cluster.until(lambda: cluster.is_caught_up and not any(node.replicas.loader.loads for node in cluster.nodes))
    check_equal(cluster)
    cluster.pass_s(1.0)
    expected = {key: record.value(data) for key, data in cluster.durable.items()}
    assert cluster.nodes[0].live == {key: value for key, value in expected.items() if value is not None}
    for _ in range(99):  # A page has few rows here.
        for node in cluster.nodes:
            node.collector.look()
        cluster.run()
    for node in cluster.nodes:
        assert [*node.spaces] == [node.copy.space]
        assert not node.tombstones
    asked = len(cluster.asked)
    cluster.pass_s(3.0)
    assert len(cluster.asked) == asked, "it is not quiet"
