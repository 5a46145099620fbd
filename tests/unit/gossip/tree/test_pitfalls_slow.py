"""Tests that cost seconds; `test_pitfalls.py` has the others."""

from __future__ import annotations

from tests.unit.gossip.tree.linked import Link, Node


def fill(node: Node, keys: int) -> None:
    for number in range(keys):
        node.tree.publish(f"partitions/geo/2026/{number:05}@{node.me.address}", b"x" * 16)


def test_bursts_on_each_of_16_nodes() -> None:
    """None of the branches fits a few packets: all see all of it, then half of it withdrawn."""
    link = Link(3)
    nodes = [link.node(f"n{number}") for number in range(16)]
    for node in nodes:
        node.knows(*(other for other in nodes if other is not node))
        fill(node, 120)
    link.settle()
    assert {len(node.tree.children("partitions/geo/2026")) for node in nodes} == {16 * 120}
    for node in nodes:
        for number in range(0, 120, 2):
            node.tree.withdraw(f"partitions/geo/2026/{number:05}@{node.me.address}")
    link.settle(rounds=60)
    assert {len(node.tree.children("partitions/geo/2026")) for node in nodes} == {16 * 60}
