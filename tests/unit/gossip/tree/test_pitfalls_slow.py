"""Slow tests of pitfalls; the fast ones are in `test_pitfalls.py`."""

from __future__ import annotations

from tests.unit.gossip.tree.linked import Link, Node


def fill(node: Node, keys: int) -> None:
    for number in range(keys):
        node.tree.publish(f"partitions/geo/2026/{number:05}@{node.me.address}", b"x" * 16)


def test_bursts_on_each_of_16_nodes() -> None:
    """No branch fits a few packets; all nodes see all keys, and then half of them withdrawn."""
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
