"""Slow tests of ages; the fast ones are in `test_ages.py`."""

from __future__ import annotations

from tests.unit.gossip.links import Link

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS


def test_a_new_life_is_as_young_as_the_first_word_of_it():
    """Keys that a member publishes after half an hour of death are not half an hour old."""
    link = Link(3)
    nodes = link.cluster(12)
    before = nodes.pop(5)
    link.kill(before)
    link.run(30 * MINUTE_MS)
    again = link.node("n05", port=before.address.port, epoch=2)
    again.core.tree.publish("k/y")
    link.start(again, nodes[0])
    shown = 0
    for _ in range(100):
        link.run(100)
        for node in nodes:
            for entry in node.core.tree.entries("k", now_ms=link.now_ms):
                assert entry.age_ms < 20 * SECOND_MS
                shown += 1
    assert shown > 500
