"""A node accepts reports of replicas only from known peers, and only so many."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import NotReady, ProtocolError
from gossipkv.replication import replica_set
from gossipkv.replication.replica.record import RecordWrite
from tests.unit.table.record_nodes import Records

LINK = 5


@pytest.fixture
def node():
    """Return a node that shares a partition with the second node, not with the third."""
    made = Records(3)
    made.make("t", firsts=1, holders=lambda _: made.nodes[:2])
    return made.nodes[0]


def rows(count):
    return [[number, b"t" * 16, number, number, 1, [number], [0], True, False] for number in range(count)]


def test_a_made_up_node_leaves_nothing(node):
    """A node without a shared partition or a connection from here is refused, however often it asks."""
    known = {*node.replicas.peers}
    for number in range(100):
        made_up = b"made up, %08d" % number
        with pytest.raises(NotReady):
            node.replicas.take_report(made_up, LINK, rows(3), whole=True)
        with pytest.raises(NotReady):
            node.replicas.take_entries(made_up, LINK, [], lambda _: None)
    assert {*node.replicas.peers} == known


def test_who_shares_a_partition_or_was_connected_is_heard(node):
    sharer, other = (one.uuid for one in node.records.nodes[1:])
    assert msgpack.unpackb(node.replicas.take_report(sharer, LINK, rows(3), whole=True))[1:] == []
    node.replicas.connected(other)
    assert msgpack.unpackb(node.replicas.take_report(other, LINK, rows(3), whole=True))[1:] == []


def test_a_link_numbers_so_many_rows(node, monkeypatch):
    """The rows of unknown replicas are limited per link; a new link starts from zero."""
    monkeypatch.setattr("gossipkv.replication.stream.peer.MAX_ROWS", 10)
    sharer = node.records.nodes[1].uuid
    node.replicas.take_report(sharer, LINK, rows(10), whole=True)
    with pytest.raises(ProtocolError, match="at most 10 rows"):
        node.replicas.take_report(sharer, LINK, rows(11)[10:], whole=False)
    assert msgpack.unpackb(node.replicas.take_report(sharer, LINK + 1, rows(10), whole=True))[1:] == []


def test_of_many_copies_is_told_by_and_by(monkeypatch):
    """Reports come in limited groups, oldest first, so a node with thousands of replicas delays no other."""
    monkeypatch.setattr(replica_set, "MAX_REPORTED", 2)
    made = Records(2)
    made.make("t", firsts=5, holders=lambda _: made.nodes)
    node, other = made.nodes
    asked = []
    node.ask = lambda _, method, params, on_reply: asked.append((method, msgpack.unpackb(params[-1]), on_reply))
    node.look = lambda peer, look: node.replicas.peers[peer].sender.read(look, [], node.replicas.tail.first)
    copies = [*node.replicas.by_partition.values()]
    node.replicas.connected(other.uuid)
    _, first, on_reply = asked.pop()
    numbers = {row[2]: row[0] for row in first}
    on_reply(msgpack.packb([[row[0], row[6], row[3] + 1, 1, True] for row in first]))
    for copy in reversed(copies):
        node.replicas.originate({copy: [RecordWrite(b"k", b"v")]})
        made.run()
    node.now = lambda: made.now + 0.11
    for _ in range(10):
        node.replicas.pump()
    tells = [rows for method, rows, _ in asked if method == "replica_tell"]
    assert [len(rows) for rows in tells] == [2, 2, 1]
    told = [row[0] for rows in tells for row in rows]
    assert told == [numbers[copy.identity.partition] for copy in reversed(copies)]
