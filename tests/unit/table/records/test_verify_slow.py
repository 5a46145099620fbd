"""Tests that cost seconds; `test_verifying.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.table.records.verify import EQUAL, NOT_COMPARED
from tests.unit.table.records.test_verify import Asked, told


@pytest.fixture
def asked():
    """With records, and a tombstone."""
    return Asked()


def test_a_partition_that_is_written_to(asked):
    """It is no difference, and looked at again: once it rests, the copies are compared."""
    first = asked.nodes[0]
    asked.cluster.cut(asked.nodes[2])
    first.write(k1=b"w")
    asked.cluster.pass_s(0.5)
    answer = told(asked)
    assert (answer["verdict"], answer["why"]) == (
        NOT_COMPARED, "n1 and n3 have not the same writes; n2 and n3 have not the same writes",
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
    """What is no digest is told as such, and the asking node lives on."""
    asked.answers[2] = answer if answer is not None else [None, None, None]
    assert told(asked, timeout_ms=300)["verdict"] == NOT_COMPARED
