"""Many keys on many nodes."""

from __future__ import annotations

from gossipkv.gossip.tree.limits import MAX_BRANCH_BYTES
from tests.unit.gossip.tree.linked import Link, equal
from tests.unit.gossip.tree.test_pitfalls import fill
from tests.unit.gossip.tree.transfers import whole


def test_500_keys_on_each_of_64_nodes() -> None:
    """quickwit#4561: of 32,000 keys in branches larger than a packet, a newcomer gets all in one compressed reply."""
    link = Link(2)
    one, two = link.node("one"), link.node("two")
    for number in range(62):
        owner = link.node(f"n{number}")
        fill(owner, 500)
        one.knows(owner)
        for delta in whole(owner.tree.deltas(owner.id, 1, 0, part_bytes=60_000)):
            one.tree.apply(delta)
    for node in (one, two):
        fill(node, 500)
    two.exchange._request(one.me.address, two.exchange.request(now_ms=link.now_ms))
    link.run()
    assert equal([one, two])
    for node in (one, two):
        assert len(node.tree.children("partitions/geo/2026")) == 32_000
        assert node.tree.size_bytes < 64 * MAX_BRANCH_BYTES
    assert link.asked[0][1] < 500_000
