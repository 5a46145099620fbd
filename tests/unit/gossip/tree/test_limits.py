"""What a tree takes in when it is full, what it refuses, and when it asks for that again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.gossip.member import State, member_id
from gossipkv.gossip.membership.members import Members
from gossipkv.gossip.packets.messages import Change, Delta
from gossipkv.gossip.tree.branch import DeltaOutcome
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES, TreeLimits
from gossipkv.gossip.tree.tree import LARGE_BYTES, Tree
from tests.unit.gossip.tree.linked import member, pair

if TYPE_CHECKING:
    from collections.abc import Iterator

ME, ANN, BEN = member_id("me"), member_id("ann"), member_id("ben")
COST = ITEM_OVERHEAD_BYTES + 3  # Of a key `k/1` without a value.


def tree(keys: int, **limits: int) -> Tree:
    """Of `me`, who knows `ann` and `ben`, with room for so many keys."""
    made = Tree(Members(member("me"), 100), TreeLimits(max_tree_bytes=keys * COST, **limits))
    for name in ("me", "ann", "ben"):
        made.on_member(member(name))
    return made


def delta(owner: bytes, since: int, target: int, *texts: str, reach: int | None = None, reset: bool = False) -> Delta:
    """Changes with the versions after `since`: `k/1` a key, `-k/1` a tombstone."""
    changes = tuple(
        Change(version, text.lstrip("-"), None if text.startswith("-") else b"")
        for version, text in enumerate(texts, since + 1)
    )
    return Delta(owner, 1, 0, since, target if reach is None else reach, target, reset=reset, changes=changes)


def full() -> Tree:
    """Two keys of each, and no room for more."""
    made = tree(4)
    assert made.apply(delta(ANN, 0, 2, "k/1", "k/2")) is DeltaOutcome.ADVANCED
    assert made.apply(delta(BEN, 0, 2, "k/3", "k/4")) is DeltaOutcome.ADVANCED
    assert made.size_bytes == made.limits.max_tree_bytes
    return made


def test_a_full_tree_takes_what_does_not_make_it_grow() -> None:
    """Keys taken back, set again, and a branch that takes the place of another as large."""
    made = full()
    assert made.apply(delta(ANN, 2, 3, "-k/1")) is DeltaOutcome.ADVANCED
    assert made.apply(delta(ANN, 3, 4, "k/1")) is DeltaOutcome.ADVANCED
    assert made.apply(delta(ANN, 4, 6, "k/2", "-k/1")) is DeltaOutcome.ADVANCED
    assert made.children("k") == ["2", "3", "4"]
    assert made.apply(delta(ANN, 0, 7, "k/7", "k/8", reset=True)) is DeltaOutcome.ADVANCED
    assert made.children("k") == ["3", "4", "7", "8"]
    assert made.apply(delta(ANN, 7, 8, "k/9")) is DeltaOutcome.REFUSED
    assert made.size_bytes == made.limits.max_tree_bytes
    assert not made.counters["branch_evicted"]


def test_what_is_known_already_costs_nobody_its_room() -> None:
    """A doubled rumour, an older one, or one behind a gap does not make a full tree give up the dead."""
    made = full()
    made.on_member(member("ben", state=State.DEAD))
    assert made.apply(delta(ANN, 0, 2, "k/1", "k/2")) is DeltaOutcome.NOTHING
    assert made.apply(delta(ANN, 0, 1, "k/1")) is DeltaOutcome.NOTHING
    assert made.apply(delta(ANN, 5, 6, "k/6")) is DeltaOutcome.GAP
    assert not made.counters["branch_evicted"]
    assert made.apply(delta(BEN, 2, 3, "k/5")) is DeltaOutcome.REFUSED  # It does not make room for itself.
    assert made.head(BEN).version == 2


def test_who_leaves_keeps_what_it_published() -> None:
    """A full tree gives up the branches of the dead, not that of this node when it has left."""
    made = tree(4)
    made.publish("k/1")
    made.publish("k/2")
    made.on_member(member("me", state=State.LEFT))
    assert made.apply(delta(ANN, 0, 2, "k/3", "k/4")) is DeltaOutcome.ADVANCED
    assert made.apply(delta(BEN, 0, 1, "k/5")) is DeltaOutcome.REFUSED
    assert (set(made.published()), made.size_bytes) == ({"k/1", "k/2"}, 4 * COST)


@pytest.mark.parametrize("how", ["ann", "ann anew", "me", "me shorter", "me collected"])
def test_what_lacked_room_is_asked_for_when_there_is_enough(how: str) -> None:
    """Whoever shrinks, and not before: what was refused would come for nothing."""
    made = tree(6)
    made.publish("m/1", bytes(COST))
    made.publish("m/2")
    assert made.apply(delta(ANN, 0, 2, "k/1", "k/2")) is DeltaOutcome.ADVANCED
    assert made.apply(delta(BEN, 0, 2, "k/3", "k/4")) is DeltaOutcome.REFUSED
    assert made.told_head(BEN).version == 2
    made.take_moved()
    assert made.apply(delta(ANN, 2, 3, "-k/1")) is DeltaOutcome.ADVANCED
    assert (made.told_head(BEN).version, made.take_moved()) == (2, {ANN})
    if how == "ann":
        made.apply(delta(ANN, 0, 5, reset=True))
    elif how == "ann anew":
        made.on_member(member("ann", epoch=2))
    elif how == "me":
        made.withdraw("m/1")
    elif how == "me shorter":
        made.publish("m/1")
    else:
        made.withdraw("m/2")
        assert made.told_head(BEN).version == 2
        made.acknowledged(ANN)
        made.acknowledged(BEN)
    assert BEN in made.take_moved()
    assert made.told_head(BEN).version == 0
    assert made.apply(delta(BEN, 0, 2, "k/3", "k/4")) is DeltaOutcome.ADVANCED


def test_what_is_over_another_limit_is_not_asked_for_when_there_is_room() -> None:
    """Room does not help it."""
    made = tree(40, max_branch_keys=2)
    made.publish("m/1", b"x")
    assert made.apply(delta(BEN, 0, 3, "k/1", "k/2", "k/3")) is DeltaOutcome.REFUSED
    made.withdraw("m/1")
    assert made.told_head(BEN).version == 3


def test_a_refused_transfer_lets_go_of_what_it_brought() -> None:
    """It takes nobody's room, and is asked for again only when there is room for more of it than there was."""
    made = tree(40)
    keys = [f"k/{number}" for number in range(10)]
    others = [f"l/{number}" for number in range(10)]
    assert made.apply(delta(ANN, 0, 20, *keys, *others)) is DeltaOutcome.ADVANCED
    assert made.apply(delta(BEN, 0, 90, *keys, reach=10)) is DeltaOutcome.STAGED
    large = Change(11, "k/x", bytes(LARGE_BYTES - 3))
    assert made.apply(Delta(BEN, 1, 0, 10, 11, 90, reset=False, changes=(large,))) is DeltaOutcome.REFUSED
    assert (made.size_bytes, made.told_head(BEN).version) == (20 * COST, 90)
    made.apply(delta(ANN, 0, 25, *keys, *others[:5], reset=True))
    assert (made.size_bytes, made.told_head(BEN).version) == (15 * COST, 90)
    made.apply(delta(ANN, 0, 30, *keys, reset=True))
    assert (made.size_bytes, made.told_head(BEN).version) == (10 * COST, 0)


def test_the_rest_of_what_was_refused_is_no_reason_to_ask_again() -> None:
    """Parts that come after the one that did not fit; what is newer than that is."""
    made = tree(40, max_branch_keys=2, max_tombstones=0)
    assert made.apply(delta(ANN, 0, 9, "k/1", "k/2", reach=2)) is DeltaOutcome.STAGED
    assert made.apply(delta(ANN, 2, 9, "k/3", reach=3)) is DeltaOutcome.REFUSED
    assert made.apply(delta(ANN, 3, 9, "k/4", reach=4)) is DeltaOutcome.GAP
    assert made.told_head(ANN).version == 9
    assert made.apply(delta(ANN, 9, 10, "-k/1")) is DeltaOutcome.GAP
    assert made.told_head(ANN).version == 0


def test_the_dead_who_refute_are_asked_for_again() -> None:
    """What was refused of a dead one is no reason to have nothing of it when it lives."""
    made = full()
    made.on_member(member("ben", state=State.DEAD))
    assert made.apply(delta(BEN, 2, 3, "k/5")) is DeltaOutcome.REFUSED
    made.publish("m/1")
    assert made.counters["branch_evicted"] == 1
    made.on_member(member("ben", incarnation=1))
    assert made.told_head(BEN).version == 0


def test_a_part_of_a_datagram_comes_again_in_a_larger_one() -> None:
    """Small parts have to be kept until the last has come; one large part takes no room if the branch does not grow."""
    made = full()
    part = delta(ANN, 2, 4, "-k/1", reach=3)
    assert made.apply(part) is DeltaOutcome.REFUSED
    assert made.told_head(ANN).version == 2
    assert made.apply(delta(ANN, 2, 4, "-k/1", "-k/2")) is DeltaOutcome.ADVANCED
    for _ in range(100):  # But not for ever.
        made.apply(delta(ANN, 4, 6, "k/1", reach=5))
    assert made.told_head(ANN).version == 6


def test_a_branch_refused_in_the_middle_is_transferred_once() -> None:
    """Over TCP in many parts; after that nothing is exchanged over what does not fit."""
    link, one, two = pair(limits=TreeLimits(max_branch_keys=4000))
    two.tree.limits = TreeLimits(max_branch_keys=3000, max_tombstones=0)
    for number in range(3900):
        one.tree.publish(f"x/{number:05}", bytes(40))
    link.settle(rounds=5)
    bytes_asked = sum(map(sum, link.asked))
    for _ in range(5):
        link.settle(rounds=5)
    assert (two.tree.told_head(one.id).version, two.tree.head(one.id).version) == (3900, 0)
    assert sum(map(sum, link.asked)) == bytes_asked
    assert two.tree.counters["branch_refused"] == 1


class Watched(dict[bytes, None]):
    """Counts how often all of it is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[bytes]:
        self.looks += 1
        return super().__iter__()


def test_a_change_of_a_full_tree_costs_no_look_at_all_the_dead() -> None:
    """There may be thousands of them, and of such changes in one request; they count when another holds something."""
    made = tree(6)
    for owner, keys in ((ANN, ("k/1", "k/2", "k/3")), (BEN, ("k/4", "k/5")), (member("zoe").id, ("k/6",))):
        made.on_member(member("zoe"))
        assert made.apply(delta(owner, 0, len(keys), *keys)) is DeltaOutcome.ADVANCED
    for number in range(9):
        made.on_member(member(f"dead {number}", state=State.DEAD))
    made._dead = dead = Watched(made._dead)
    for version in range(2, 20, 2):
        assert made.apply(delta(BEN, version, version + 1, "k/7")) is DeltaOutcome.REFUSED
        assert made.apply(delta(BEN, version, version + 2, "-k/4", "k/4")) is DeltaOutcome.ADVANCED
    made.on_member(member("ben", state=State.DEAD))
    assert made.apply(delta(BEN, 20, 21, "k/7")) is DeltaOutcome.REFUSED
    assert not dead.looks
    assert made.apply(delta(member("zoe").id, 1, 2, "k/7")) is DeltaOutcome.ADVANCED
    assert (dead.looks, made.counters["branch_evicted"]) == (1, 1)
