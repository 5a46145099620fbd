"""Branches and the tree assert their invariants: the step after a planted break catches it."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import BranchChange, Delta
from gossipkv.gossip.tree.branch import Branch, BranchItem
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.tree.linked import Link, member, pair, recount
from tests.unit.gossip.tree.transfers import MOST, OWNER, any_delta, deltas

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.gossip.tree.linked import Node


def part(since: int, target: int) -> Delta:
    changes = tuple(BranchChange(version, f"k/{version}", b"v") for version in range(since + 1, target + 1))
    return Delta(OWNER, 1, 0, since, target, target, reset=False, changes=changes)


def branch_of_two() -> Branch:
    branch = Branch(1)
    branch.apply(part(0, 2), MOST)
    return branch


BREAKS: dict[str, Callable[[Branch], object]] = {
    "a floor above the version": lambda branch: setattr(branch, "floor", 9),
    "a version that fell": lambda branch: setattr(branch, "version", 0),
    "a key of a version to come": lambda branch: branch.live.update({"k/9": BranchItem(9, b"")}),
    "a tombstone of a version to come": lambda branch: branch.gone.update({"k/9": 9}),
    "fewer bytes than keys": lambda branch: setattr(branch, "live_bytes", 9),
    "fewer bytes than tombstones": lambda branch: branch.gone.update({"k/8": 1}),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_of_a_branch_is_caught(name: str) -> None:
    """The next step raises."""
    branch = branch_of_two()
    branch._assert_sound()
    BREAKS[name](branch)
    with pytest.raises(AssertionError):
        branch.withdraw("k/1")


def test_a_branch_costs_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that grows beyond its judged size would have no bound."""
    put = Branch._put
    monkeypatch.setattr(Branch, "_put", lambda self, path, item: put(self, path, item._replace(value=bytes(9))))
    with pytest.raises(AssertionError):
        Branch(1).apply(part(0, 2), MOST)


def test_a_branch_beyond_its_bound_is_caught() -> None:
    """The next delta raises."""
    _, one, two = pair(limits=TreeLimits(max_branch_bytes=300, protocol_branch_bytes=300))
    two.tree._branches[one.id].put("k/1", bytes(100))
    with pytest.raises(AssertionError):
        two.tree.apply(part(0, 3)._replace(owner=one.id))


def step(random: Random, node: Node) -> None:
    """Let a peer or this node act."""
    name = random.choice("abc")
    draw = random.random()
    if draw < 0.5:
        try:
            (delta,) = deltas([messages.delta(any_delta(random, member(name).id, random.choice((1, 2))))])
        except Malformed:
            return
        node.tree.apply(delta, fresh=random.random() < 0.5)
    elif draw < 0.75:
        state = random.choice(list(MemberState))
        node.hear_record(member(name, random.choice((1, 2)), random.randrange(50), state), now_ms=0)
    elif draw < 0.8:
        if member(name).id in node.members.peers:
            node.members.forget(member(name).id)
            node.tree.forget(member(name).id)
            node.exchange.touch(member(name).id, now_ms=0)
    elif draw < 0.9:
        with contextlib.suppress(TooLarge):
            node.tree.publish(f"own/{random.randrange(4)}", bytes(random.randrange(300)))
    else:
        node.tree.withdraw(f"own/{random.randrange(4)}")


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_break_the_sums_of_a_tree(seed: int) -> None:
    """After any statements, deaths and removals, all sums match a recount."""
    random = Random(seed)
    limits = TreeLimits(max_branch_bytes=700, protocol_branch_bytes=random.choice((700, 1500, 1 << 20)))
    node = Link(seed).node("me", limits=limits)
    for _ in range(60):
        step(random, node)
        recount(node)
