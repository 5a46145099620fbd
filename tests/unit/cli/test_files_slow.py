"""`verify --table` over a socket; the fast tests are in `test_files.py`."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.asked_node import AskedNode


@pytest.mark.parametrize(("verdict", "status"), [("equal", 0), ("different", 3), ("not compared", 3)])
def test_copies_of_a_table_are_compared(run, verdict, status):
    """The comparison continues from each answer's position; partitions that differ have a line and give status 3."""
    first = {"partition": "00a1", "verdict": "equal", "why": None, "copies": [], "next": b"m"}
    last = {"partition": "00a2", "verdict": verdict, "why": "n1 and n3", "copies": [], "next": None}
    with AskedNode(verify_table=lambda _, asked: last if "start" in asked else first) as node:
        done = run("verify", "--table", "carts", "--node", node.address, "--timeout", "5s")
        told = json.loads(run("verify", "--table", "carts", "--node", node.address, "--json").out)
    assert [params for _, params in node.asked[:2]] == [
        ["carts", {"timeout_ms": 4500}], ["carts", {"timeout_ms": 4500, "start": b"m"}],
    ]  # fmt: skip
    lines = [f"carts 00a2: {verdict}: n1 and n3", "carts: 2 partitions: 1 not equal"]
    assert (done.status, done.out.splitlines()) == (
        status,
        lines if status else ["carts: 2 partitions: all replicas are equal"],
    )
    assert (told["table"], told["partitions"], len(told["not_equal"])) == ("carts", 2, bool(status))
