"""Slow tests of pitfalls; the fast ones are in `test_pitfalls.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.gossip.links import Link

if TYPE_CHECKING:
    from gossipkv.address import Address

SECOND_MS = 1000


def test_memberlist_243_the_work_of_a_node_does_not_grow():
    """At rest a node sends and wakes as often among sixty-four nodes as among eight."""

    def work(size: int) -> tuple[float, float]:
        link = Link()
        nodes = link.cluster(size)
        link.run(10 * SECOND_MS)
        sent, woken = [0], [0]

        def counted(source: Address, to: Address) -> bool:
            sent[0] += 1
            return False

        def counting(wake):
            def woke(*, now_ms):
                woken[0] += 1
                wake(now_ms=now_ms)

            return woke

        link.udp_cut = counted
        for node in nodes:
            node.core.wake = counting(node.core.wake)
        link.run(60 * SECOND_MS)
        return sent[0] / size, woken[0] / size

    few, many = work(8), work(64)
    assert few[0] > 60
    assert few[1] > 60
    assert many[0] < 1.1 * few[0]
    assert many[1] < 1.1 * few[1]
