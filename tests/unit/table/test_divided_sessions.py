"""Sessions and split ranges: children share the parent's assignments."""

from types import SimpleNamespace

import pytest

from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.table.session.token import decode, decode_body
from tests.unit.table.record_nodes import TOKEN_KEYS, Records
from tests.unit.table.test_divided import MIDDLE, adopt

ONE = {"level": "one"}


@pytest.fixture
def seen():
    """Return three nodes with a range that was split after a session's write, the token and the parent."""
    records = Records(3)
    table = records.make("t", RANGE, firsts=[b""], holders=lambda _: records.nodes)
    host = records.nodes[0]
    (parent,) = host.replicas.by_partition.values()
    token = host.call("put", "t", b"z", b"1", ONE)
    records.divide("t", MIDDLE)
    adopt(records, *records.nodes)
    assert clock.entries(decode(token, TOKEN_KEYS)[table].clock) == [(parent.assignment, 1)]
    return records, token, parent.assignment


def child(node, key):
    """Return the node's replica for a key."""
    (table,) = {copy.identity.table for copy in node.replicas.by_partition.values()}
    return node.replicas.spaces.at(table, key)


def confirm(node, copy):
    """Let all other hosts confirm the replica's records."""
    for host in copy.hosts:
        if host.assignment != copy.assignment:
            theirs = SimpleNamespace(assignment=host.assignment, config=copy.config)
            node.hears(copy, theirs, copy.synced)


def origins(token):
    return {origin for seen in decode(token, TOKEN_KEYS).values() for origin, _ in clock.entries(seen.clock)}


def test_what_one_child_has_settled_its_sibling_may_not(seen):
    """The parent's entry stays in the token as long as the map names its assignment anywhere."""
    records, token, former = seen
    host = records.nodes[0]
    confirm(host, child(host, b"a"))
    _, after = host.call("get", "t", b"a", {"token": token})
    assert former in origins(after)
    confirm(host, child(host, b"z"))
    _, after = host.call("get", "t", b"z", {"token": after})
    assert former in origins(after)


def test_what_others_are_told_is_settled_names_nothing_former(seen):
    """Otherwise other nodes would omit the parent's entry from tokens for every child."""
    records, _, former = seen
    host = records.nodes[0]
    copy = child(host, b"a")
    confirm(host, copy)
    body = host.call("table_settled", copy.identity.table, copy.identity.partition.to_bytes(8, "big"), b"", 0)
    assert former not in dict(clock.entries(decode_body(body)[copy.identity.table].clock))


def test_a_child_is_not_ready_for_what_the_session_has_seen_of_the_parent(seen):
    """No feed runs here, so another host lacks the record for either child."""
    records, token, _ = seen
    for key in (b"a", b"z"):
        error = records.nodes[1].outcome("get", "t", key, {"token": token, "local": True})
        assert error.details["waits_for"] == "records"


def test_a_write_depends_on_what_is_former(seen):
    """A reader must find the session's earlier records in the sibling."""
    records, token, former = seen
    host = records.nodes[0]
    host.call("put", "t", b"a", b"2", {**ONE, "token": token})
    copy = child(host, b"a")
    body = record.dependencies(host.get(copy.space, RECORD + b"a"))
    assert (former, 1) in clock.entries(decode_body(body)[copy.identity.table].clock)
