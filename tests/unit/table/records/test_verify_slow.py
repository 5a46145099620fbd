"""Tests that cost seconds; `test_verify.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.table.records.verify import EQUAL, NOT_COMPARED
from tests.unit.table.records.test_verify import Asked, told


@pytest.fixture
def asked():
    return Asked()


def test_a_partition_that_is_written_to(asked):
    """A write in between is no difference; once the partition rests, the replicas are compared."""
    first = asked.nodes[0]
    asked.cluster.cut(asked.nodes[2])
    first.write(k1=b"w")
    asked.cluster.pass_s(0.5)
    answer = told(asked)
    assert (answer["verdict"], answer["why"]) == (
        NOT_COMPARED, "n1 and n3 do not have the same writes yet; n2 and n3 do not have the same writes yet",
    )  # fmt: skip
    rounds = []

    def heal():
        rounds.append(None)
        if len(rounds) == 9:
            asked.cluster.connect()
            asked.cluster.pass_s(1.0)

    asked.before_answer = heal
    assert told(asked)["verdict"] == EQUAL


@pytest.mark.parametrize("answer", [None, [], [b"", 1], [b"", -1, 1], [b"\0", 1, 1], [b"", 1 << 64, 1], "x"])
def test_a_node_that_lies(asked, answer):
    """An invalid digest is reported, and the asking node is unharmed."""
    asked.answers[2] = answer if answer is not None else [None, None, None]
    assert told(asked, timeout_ms=300)["verdict"] == NOT_COMPARED
