"""Nodes have equal hashes if and only if they have equal knowledge."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.gossip.anti_entropy.state_hash import DEAD_COUNTS_MS, StateHash
from gossipkv.gossip.member import MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
from gossipkv.gossip.tree.tree import GossipTree
from tests.unit.gossip.tree.linked import member
from tests.unit.gossip.tree.test_tree import publish


class Knower:
    """A member table, a tree, and the hash over both."""

    def __init__(self, name: str = "me") -> None:
        self.members = MemberTable(member(name), 100)
        self.tree = GossipTree(self.members)
        self.hash = StateHash(self.members, self.tree)
        self.tree.on_member(member(name))
        self.hash.touch(member_id(name))

    def know(
        self, name: str, epoch: int = 1, incarnation: int = 0, state: MemberState = MemberState.ALIVE, now_ms: int = 0
    ) -> None:
        known = member(name, epoch, incarnation, state)
        self.members.put(known, now_ms)
        self.tree.on_member(known)
        self.hash.touch(known.id)


def pair() -> tuple[Knower, Knower]:
    """Return two nodes that know themselves and each other."""
    one, two = Knower("one"), Knower("two")
    one.know("two")
    two.know("one")
    assert one.hash.value == two.hash.value
    return one, two


def test_order_does_not_matter() -> None:
    random = Random(1)
    values = set()
    for _ in range(10):
        knower = Knower()
        names = ["ann", "ben", "zoe"]
        random.shuffle(names)
        for name in names:
            knower.know(name, incarnation=random.randrange(3))
            if random.random() < 0.5:
                values.discard(knower.hash.value)  # The result is the same whether the hash is folded here or later.
        for name in names:
            knower.know(name, incarnation=3)
        values.add(knower.hash.value)
    assert len(values) == 1


@pytest.mark.parametrize(
    ("epoch", "incarnation", "state", "counts"),
    [
        (2, 0, MemberState.ALIVE, True),
        (1, 1, MemberState.ALIVE, True),
        (1, 0, MemberState.SUSPECT, False),
        (1, 0, MemberState.DEAD, True),
        (1, 0, MemberState.LEFT, True),
    ],
)
def test_what_counts(epoch: int, incarnation: int, state: MemberState, counts: bool) -> None:
    """Epoch, incarnation, death and leaving count; a suspicion is private to each node."""
    one, two = pair()
    one.know("zoe")
    two.know("zoe", epoch, incarnation, state)
    assert (one.hash.value != two.hash.value) is counts


def test_dead_and_left_are_two_things() -> None:
    """Only the member itself says that it has left."""
    one, two = pair()
    one.know("zoe", state=MemberState.DEAD)
    two.know("zoe", state=MemberState.LEFT)
    assert one.hash.value != two.hash.value


def test_branches_count_once_they_are_visible() -> None:
    """The node's own branch and others' branches count; branches of dead members do not."""
    one, two = pair()
    one.tree.publish("k/1", b"x")
    assert one.hash.value != two.hash.value
    publish(two.tree, "one", "k/1", value=b"x")
    assert one.hash.value == two.hash.value
    for knower in (one, two):
        knower.know("zoe")
    publish(one.tree, "zoe", "k/2")
    assert one.hash.value != two.hash.value
    for knower in (one, two):
        knower.know("zoe", state=MemberState.DEAD)
    assert one.hash.value == two.hash.value


def test_a_branch_of_a_newer_epoch_counts_from_the_record_on() -> None:
    """A branch that arrives before its record is ignored."""
    one, two = pair()
    for knower in (one, two):
        knower.know("zoe")
    publish(one.tree, "zoe", "k/2", epoch=2)
    assert one.hash.value == two.hash.value
    for knower in (one, two):
        knower.know("zoe", epoch=2)
    assert one.hash.value == two.hash.value
    publish(one.tree, "zoe", "k/2", epoch=2)
    assert one.hash.value != two.hash.value


def test_the_dead_count_for_a_while() -> None:
    """Nodes forget the dead at different times; hashes must not differ for a day because of that."""
    one, two = pair()
    one.know("zoe", state=MemberState.DEAD, now_ms=1000)
    assert one.hash.value != two.hash.value
    fades_ms = 1000 + DEAD_COUNTS_MS
    one.hash.pass_time(fades_ms - 1)
    assert one.hash.value != two.hash.value
    one.hash.pass_time(fades_ms)
    assert one.hash.value == two.hash.value
    one.know("zoe", incarnation=1, now_ms=fades_ms)  # The member comes back.
    assert one.hash.value != two.hash.value


def test_an_old_death_that_is_learned_late_does_not_count() -> None:
    """The age of the death arrived with the record."""
    one, two = pair()
    one.hash.pass_time(10 * DEAD_COUNTS_MS)
    one.know("zoe", state=MemberState.DEAD, now_ms=10 * DEAD_COUNTS_MS)
    one.members.peers[member_id("zoe")].since_ms = 0
    one.hash.touch(member_id("zoe"))
    assert one.hash.value == two.hash.value


def test_who_is_forgotten_does_not_count() -> None:
    one, two = pair()
    one.know("zoe")
    publish(one.tree, "zoe", "k/1")
    one.members.forget(member_id("zoe"))
    one.tree.forget(member_id("zoe"))
    one.hash.touch(member_id("zoe"))
    assert one.hash.value == two.hash.value


def test_a_dead_member_of_which_much_is_said_costs_no_more() -> None:
    """One time to look again is kept per member, and it follows the last death."""
    one, two = pair()
    for incarnation in range(1000):
        one.know("zoe", incarnation=incarnation, state=MemberState.DEAD, now_ms=incarnation)
        one.hash.touch(member_id("zoe"))
        assert one.hash.value
    assert len(one.hash._fades) == 1
    one.hash.pass_time(DEAD_COUNTS_MS + 998)
    assert one.hash.value != two.hash.value
    one.hash.pass_time(DEAD_COUNTS_MS + 999)
    assert one.hash.value == two.hash.value
    assert not one.hash._fades
