"""What sessions have seen of a range that was divided: children have the parent's assignments in common."""

from types import SimpleNamespace

import pytest

from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.table.session.token import decode, decode_body
from tests.unit.table.record_nodes import CLUSTER, Records
from tests.unit.table.test_divided import MIDDLE, adopt

ONE = {"level": "one"}


@pytest.fixture
def seen():
    """Three nodes with a range that is divided since a session has written to it: the nodes, the token, the parent."""
    records = Records(3)
    table = records.make("t", RANGE, firsts=[b""], holders=lambda _: records.nodes)
    host = records.nodes[0]
    (parent,) = host.replicas.by_partition.values()
    token = host.call("put", "t", b"z", b"1", ONE)
    records.divide("t", MIDDLE)
    adopt(records, *records.nodes)
    assert clock.entries(decode(token, CLUSTER)[table].clock) == [(parent.assignment, 1)]
    return records, token, parent.assignment


def child(node, key):
    """The copy of a node that has a key."""
    (table,) = {copy.identity.table for copy in node.replicas.by_partition.values()}
    return node.replicas.spaces.at(table, key)


def confirm(node, copy):
    """Have all others of a copy's partition have what it has, and say so."""
    for host in copy.hosts:
        if host.assignment != copy.assignment:
            theirs = SimpleNamespace(assignment=host.assignment, config=copy.config)
            node.hears(copy, theirs, copy.synced)


def origins(token):
    return {origin for seen in decode(token, CLUSTER).values() for origin, _ in clock.entries(seen.clock)}


def test_what_one_child_has_settled_its_sibling_may_not(seen):
    """The entry of the parent's assignment stays in the token while the map names that anywhere."""
    records, token, former = seen
    host = records.nodes[0]
    confirm(host, child(host, b"a"))
    _, after = host.call("get", "t", b"a", {"token": token})
    assert former in origins(after)
    confirm(host, child(host, b"z"))
    _, after = host.call("get", "t", b"z", {"token": after})
    assert former in origins(after)


def test_what_others_are_told_is_settled_names_nothing_former(seen):
    """They would leave it out of tokens, for whichever child."""
    records, _, former = seen
    host = records.nodes[0]
    copy = child(host, b"a")
    confirm(host, copy)
    body = host.call("table_settled", copy.identity.table, copy.identity.partition.to_bytes(8, "big"), b"", 0)
    assert former not in dict(clock.entries(decode_body(body)[copy.identity.table].clock))


def test_a_child_is_not_ready_for_what_the_session_has_seen_of_the_parent(seen):
    """Nobody feeds here: another host lacks it, whichever child is asked for."""
    records, token, _ = seen
    for key in (b"a", b"z"):
        error = records.nodes[1].outcome("get", "t", key, {"token": token, "local": True})
        assert error.details["waits_for"] == "records"


def test_a_write_depends_on_what_is_former(seen):
    """Whoever reads it is to find in its sibling what the session had seen."""
    records, token, former = seen
    host = records.nodes[0]
    host.call("put", "t", b"a", b"2", {**ONE, "token": token})
    copy = child(host, b"a")
    body = record.dependencies(host.get(copy.space, RECORD + b"a"))
    assert (former, 1) in clock.entries(decode_body(body)[copy.identity.table].clock)
