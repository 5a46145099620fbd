"""Branches of the largest allowed size arrive over a link that carries requests of any size."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.unit.gossip.links import Link, Node

if TYPE_CHECKING:
    from gossipkv.gossip.effects import AskOverTcp


class Counting(Link):
    """A link that counts the requests over TCP."""

    asked = 0

    def _ask(self, asker: Node, ask: AskOverTcp) -> None:
        self.asked += 1
        super()._ask(asker, ask)


@pytest.mark.parametrize("entries", [1, 10, 45])
def test_a_branch_of_any_size_arrives(entries: int) -> None:
    """The branch comes in one reply and becomes visible at once."""
    link = Counting()
    draw = random.Random(entries)
    first = link.start(link.node("a"))
    for number in range(entries):
        first.core.tree.publish(f"entries/{number}", draw.randbytes(4000))
    link.run(2000)
    second = link.start(link.node("b"), first)
    seen = []
    arrived = link.run(20_000, lambda: seen.append(len(second.core.tree.children("entries"))) or seen[-1] == entries)
    assert arrived
    assert set(seen) <= {0, entries}
    assert link.asked <= 8
    before = link.asked
    link.run(10_000)
    assert link.asked <= before + 1, "nothing is left to ask for"


def test_withdrawn_keys_of_a_large_branch_go_everywhere() -> None:
    """Withdrawals arrive even after their tombstones were dropped for lack of room."""
    link = Counting()
    draw = random.Random(1)
    first = link.start(link.node("a"))
    tree = first.core.tree
    for number in range(30):
        tree.publish(f"kept/{number}", draw.randbytes(4000))
    for number in range(200):
        tree.publish(f"withdrawn/{number}")
    link.settle(first)
    second = link.start(link.node("b"), first)
    assert link.run(20_000, lambda: len(second.core.tree.children("withdrawn")) == 200)
    for place in ("withdrawn", "hasty", "hastier"):
        for number in range(200):
            tree.publish(f"{place}/{number}")
            tree.withdraw(f"{place}/{number}")
        for number in range(200):
            tree.withdraw(f"{place}/{number}")
    assert tree._branches[tree.own].floor > 230
    link.settle(first)
    third = link.start(link.node("c"), first)
    assert link.run(
        20_000,
        lambda: all(
            (len(node.core.tree.children("kept")), node.core.tree.children("withdrawn")) == (30, [])
            for node in (second, third)
        ),
    )
    before = link.asked
    assert before <= 16
    link.run(10_000)
    assert link.asked <= before + 2, "nothing is left to ask for"
