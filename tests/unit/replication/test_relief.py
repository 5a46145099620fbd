"""Batches declare that they relieve the store, which keeps a reserve for them."""

from __future__ import annotations

import pytest

from tests.unit.replication.memory import Cluster


@pytest.fixture
def cluster():
    """Return three nodes that note each batch's declaration."""
    cluster = Cluster()
    for node in cluster.nodes:

        def append(batch, on_synced, node=node, append=node.append):
            node.said.append((batch.relieves, batch.may_fill))
            return append(batch, on_synced)

        node.said, node.append = [], append
    return cluster


def said(cluster):
    """Return the declarations at the first node and at the others."""
    found = [{*node.said} for node in cluster.nodes]
    for node in cluster.nodes:
        node.said.clear()
    assert found[1] == found[2]
    return found[0], found[1]


ORDINARY, FILLS, RELIEVES = (False, False), (False, True), (True, True)


@pytest.mark.parametrize(
    ("value", "written", "taken"), [(b"1", ORDINARY, FILLS), (b"2", ORDINARY, FILLS), (None, RELIEVES, RELIEVES)]
)
def test_writes(cluster, value, written, taken):
    """A delete relieves a node that has the key; merged entries only fill the segment."""
    cluster.nodes[0].write(a=b"1")
    cluster.pass_s(0.5)
    said(cluster)
    cluster.nodes[0].write(a=value)
    cluster.pass_s(0.5)
    assert said(cluster) == ({written}, {taken})


def test_a_delete_of_nothing(cluster):
    """Deletes of absent keys could fill the reserve."""
    cluster.nodes[0].write(a=None)
    cluster.pass_s(0.5)
    assert said(cluster) == ({FILLS}, {FILLS})
    cluster.nodes[0].write(a=None)
    cluster.pass_s(0.5)
    assert said(cluster) == ({RELIEVES}, {RELIEVES})


def test_what_the_map_has_decided(cluster):
    """A config change is adopted on a full store, because it lets former replicas settle and leave."""
    cluster.adopt(2, *cluster.nodes)
    cluster.pass_s(0.5)
    assert all(relieves for node in said(cluster) for relieves, _ in node)
