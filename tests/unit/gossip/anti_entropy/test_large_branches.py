"""Branches of the size that the limits allow, over a link that carries requests of any size."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.links import Link, Node

if TYPE_CHECKING:
    from gossipkv.gossip.effects import Ask


class Counting(Link):
    """Counts what is asked over TCP."""

    asked = 0

    def _ask(self, asker: Node, ask: Ask) -> None:
        self.asked += 1
        super()._ask(asker, ask)


@pytest.mark.parametrize("entries", [1000, 7000])
def test_a_branch_of_any_size_arrives(entries: int) -> None:
    """One that takes several replies is taken up where the last one ended, and seen when it is whole."""
    link = Counting()
    draw = random.Random(entries)
    first = link.start(link.node("a"))
    for number in range(entries):
        first.core.tree.publish(f"entries/{number}", draw.randbytes(4000))
    size = entries * 4000
    assert size < TreeLimits().max_branch_bytes
    link.run(2000)
    second = link.start(link.node("b"), first)
    seen = []
    arrived = link.run(20_000, lambda: seen.append(len(second.core.tree.children("entries"))) or seen[-1] == entries)
    assert arrived
    assert set(seen) <= {0, entries}
    assert link.asked <= 8 + 4 * size // MAX_UNPACKED_BYTES
    before = link.asked
    link.run(10_000)
    assert link.asked <= before + 1, "nothing is left to ask for"


@pytest.mark.parametrize("replies", [1, 3])
def test_withdrawn_keys_of_a_large_branch_go_everywhere(replies: int) -> None:
    """Also where their tombstones are gone before the branch is told, so that all of it has to come anew."""
    link = Counting()
    draw = random.Random(replies)
    first = link.start(link.node("a"))
    kept, withdrawn = replies * 250, TreeLimits().max_tombstones + 500
    for number in range(kept):
        first.core.tree.publish(f"kept/{number}", draw.randbytes(4000))
    for number in range(withdrawn):
        first.core.tree.publish(f"withdrawn/{number}")
    link.settle(first)
    second = link.start(link.node("b"), first)
    assert link.run(20_000, lambda: len(second.core.tree.children("withdrawn")) == withdrawn)
    for number in range(withdrawn):
        first.core.tree.withdraw(f"withdrawn/{number}")
    link.settle(first)
    third = link.start(link.node("c"), first)
    assert link.run(
        20_000,
        lambda: all(
            (len(node.core.tree.children("kept")), node.core.tree.children("withdrawn")) == (kept, [])
            for node in (second, third)
        ),
    )
    before = link.asked
    assert before <= 16 + 8 * replies
    link.run(10_000)
    assert link.asked <= before + 2, "nothing is left to ask for"
