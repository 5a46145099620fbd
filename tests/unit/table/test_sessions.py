"""Guarantees of sessions across nodes, and the checker of these guarantees."""

from __future__ import annotations

import pytest

from gossipkv.table.session.token import decode
from tests.unit.table.record_nodes import TOKEN_KEYS, Records
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

X, Y = ("t", b"x"), ("u", b"y")
RIGHT = [
    Did(1, WRITES, X, b"1"), Did(1, WRITES, X, b"2"), Did(2, READS, X, None), Did(2, READS, X, b"1"),
    Did(2, READS, X, b"2"), Did(2, WRITES, Y, b"3"), Did(3, READS, Y, b"3"), Did(3, READS, X, b"2"),
    Did(4, WRITES, X, b"4"), Did(3, READS, X, b"4"), Did(3, READS, X, b"2"), Did(5, WRITES, X, None),
    Did(1, READS, X, None), Did(1, WRITES, X, b"5"), Did(1, WRITES, X, None, is_known=False), Did(1, READS, X, b"5"),
    Did(1, WRITES, X, None), Did(1, READS, X, None),
]  # fmt: skip


def test_what_is_right_is_accepted():
    """Other sessions may see older values, and of concurrent writes either one may be shown."""
    assert Guarantees().judge([one] for one in RIGHT) == []


@pytest.mark.parametrize(
    "planted",
    [
        [Did(1, WRITES, X, b"1"), Did(1, READS, X, None)],  # Own write
        [Did(1, WRITES, X, b"1"), Did(1, WRITES, X, b"2"), Did(1, READS, X, b"1")],
        [Did(1, WRITES, X, b"1"), Did(1, WRITES, X, None), Did(1, READS, X, b"1")],
        [*RIGHT[:2], Did(1, WRITES, X, None, is_known=False), Did(1, WRITES, X, None), Did(1, READS, X, b"2")],
        [*RIGHT[:5], Did(2, READS, X, b"1")],  # Reads go back
        [*RIGHT[:5], Did(2, READS, X, None)],
        [*RIGHT[:7], Did(3, READS, X, b"1")],  # A write is seen without the writes that its session had read
        [*RIGHT[:7], Did(3, READS, X, None)],
        [Did(1, WRITES, X, b"1"), Did(1, WRITES, Y, b"2"), Did(2, READS, Y, b"2"), Did(2, READS, X, None)],  # Writes
        [Did(1, READS, X, b"9")],
    ],
)
def test_a_planted_fault_is_rejected(planted):
    """The checker rejects violations of each guarantee, across tables and with deletes, and invented values."""
    assert len(Guarantees().judge([one] for one in planted)) == 1


def test_what_has_ended_is_carried_no_further():
    """Ended tables are dropped from answers and records, even if the session has seen nothing else."""
    records = Records(3)
    old, new = (records.make(name, firsts=1, holders=lambda _: records.nodes) for name in ("old", "new"))
    one, other, _ = records.nodes
    token = one.call("put", "old", b"k", b"v", {"token": b"", "level": "one"})
    assert [*decode(token, TOKEN_KEYS)] == [old]
    records.ended.add(old)
    for node in records.nodes:
        node.maps.pop(old, None)
    answer = other.call("put", "new", b"k", b"v", {"token": token, "level": "one"})
    assert [*decode(answer, TOKEN_KEYS)] == [new]
