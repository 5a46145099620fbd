"""The rate at which this node serves loads of other nodes is limited in total."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.errors import NotServed
from gossipkv.table.records.endpoints import GIVES_WITHIN_S
from tests.unit.table.record_nodes import Records

RATE = 1000


@pytest.fixture
def one():
    """Return a node with 20 records of 100 bytes and a limited rate."""
    records = Records(2)
    records.make("t", firsts=1, holders=lambda _: records.nodes)
    one, _ = records.nodes
    one.call("put_many", "t", [[b"%d" % number, bytes(100)] for number in range(20)], {"level": "one"})
    one.gives.rate = RATE
    return one


def load(one, by=b"2" * 16):
    """Ask for the first page; return the list that collects the answer."""
    (copy,) = one.replicas.by_partition.values()
    return one.begin("replica_load", by, *copy.partition, 0, 0, b"\1")


def test_what_is_given_is_paid_for_by_whoever_comes_next(one):
    """The first page comes at once, and the next request waits as long as that page takes at the rate."""
    (answer,) = load(one)
    size_bytes = len(answer[3])
    assert len(msgpack.unpackb(answer[3])) == 2 * 20
    second, third = load(one), load(one, b"3" * 16)
    assert (second, third) == ([], [])
    one.records.pass_s(size_bytes / RATE - 0.01)
    assert (second, third) == ([], [])
    one.records.pass_s(0.02)
    assert second[0][3] == answer[3]


def test_nobody_waits_for_so_long_that_he_begins_anew(one):
    """Even at a very low rate the wait is bounded."""
    one.gives.rate = 1
    load(one)
    second = load(one)
    one.records.pass_s(GIVES_WITHIN_S)
    assert [type(answer) for answer in second] == [list]


def test_a_copy_that_is_dropped_meanwhile(one):
    """The request is refused."""
    load(one)
    second = load(one)
    one.replicas.acks.clear()
    one.records.pass_s(GIVES_WITHIN_S)
    assert [type(answer) for answer in second] == [NotServed]
