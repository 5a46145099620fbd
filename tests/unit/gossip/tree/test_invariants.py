"""What must hold after each step of a branch and of the tree is asserted: the step after a planted break catches it."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import State
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.fields import Malformed
from gossipkv.gossip.packets.messages import Change, Delta
from gossipkv.gossip.tree.branch import Branch, Item
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.tree.linked import Link, member, pair, recount
from tests.unit.gossip.tree.transfers import LIMITS, OWNER, any_delta, deltas

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.gossip.tree.linked import Node


def part(since: int, reach: int, target: int) -> Delta:
    """Changes of one key each."""
    changes = tuple(Change(version, f"k/{version}", b"v") for version in range(since + 1, reach + 1))
    return Delta(OWNER, 1, 0, since, reach, target, reset=False, changes=changes)


def branch_of_two() -> Branch:
    """Two keys, and a transfer under way."""
    branch = Branch(1)
    branch.apply(part(0, 2, 2), LIMITS)
    branch.apply(part(2, 3, 9), LIMITS)
    return branch


BREAKS: dict[str, Callable[[Branch], object]] = {
    "a floor above the version": lambda branch: setattr(branch, "floor", 9),
    "a version that fell": lambda branch: setattr(branch, "version", 0),
    "a key of a version to come": lambda branch: branch.live.update({"k/9": Item(9, b"")}),
    "a tombstone of a version to come": lambda branch: branch.gone.update({"k/9": 9}),
    "fewer bytes than keys": lambda branch: setattr(branch, "size_bytes", 9),
    "a transfer to where it is": lambda branch: setattr(branch, "version", 9),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_of_a_branch_is_caught(name: str) -> None:
    """By the next step."""
    branch = branch_of_two()
    branch._assert_sound()
    BREAKS[name](branch)
    with pytest.raises(AssertionError):
        branch.withdraw("k/1")


def test_half_a_transfer_is_never_laid_over() -> None:
    """Whoever would show it is stopped."""
    branch = branch_of_two()
    staged = branch._staged
    assert staged is not None
    with pytest.raises(AssertionError):
        branch._commit(staged)


def test_a_branch_costs_what_room_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the bound of the tree would be none."""
    true_sizes = Branch._sizes_after
    monkeypatch.setattr(Branch, "_sizes_after", lambda self, staged: (0, true_sizes(self, staged)[1] - 1))
    with pytest.raises(AssertionError):
        Branch(1).apply(part(0, 2, 2), LIMITS)


@pytest.mark.parametrize(("others_bytes", "dead_bytes"), [(-1000, 0), (0, 1000), (1000, 1000)])
def test_sums_of_the_tree_that_cannot_be_are_caught(others_bytes: int, dead_bytes: int) -> None:
    """Below nothing, more dead than there is, and dead bytes of nobody dead."""
    _, one, two = pair()
    one.tree._others_bytes, one.tree._dead_bytes = others_bytes, dead_bytes
    with pytest.raises(AssertionError):
        one.tree.apply(Delta(two.id, 1, 0, 0, 1, 1, reset=False, changes=(Change(1, "k", b""),)))


def test_a_tree_beyond_its_bound_is_caught() -> None:
    """By what is published next."""
    _, one, two = pair()
    one.tree.on_member(member("two"))
    one.tree._room_for = lambda *_, **__: True
    one.tree._others_bytes = one.tree.limits.max_tree_bytes
    with pytest.raises(AssertionError):
        one.tree.publish("k")
    assert two.tree.published() == {}


def step(random: Random, node: Node) -> None:
    """A peer says something, or this node does."""
    name = random.choice("abc")
    draw = random.random()
    if draw < 0.5:
        try:
            (delta,) = deltas([messages.delta(any_delta(random, member(name).id, random.choice((1, 2))))])
        except Malformed:
            return
        node.tree.apply(delta, fresh=random.random() < 0.5)
    elif draw < 0.75:
        state = random.choice(list(State))
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


@pytest.mark.parametrize("seed", range(100))
def test_no_bytes_break_the_sums_of_a_tree(seed: int) -> None:
    """Whatever peers say, true or not, and whoever dies, is evicted and forgotten: all sums are those counted anew."""
    random = Random(seed)
    limits = TreeLimits(max_tree_bytes=random.choice((2500, 5000, 1 << 20)), max_tombstones=2)
    node = Link(seed).node("me", limits=limits)
    for _ in range(60):
        step(random, node)
        recount(node)
