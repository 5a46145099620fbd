"""Changes as rumours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.member import State, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Delta, Head, Part
from gossipkv.gossip.tree.hot import MOST_BYTES, MOST_CHANGES
from gossipkv.gossip.tree.limits import TreeLimits
from tests.unit.gossip.tree.linked import member
from tests.unit.gossip.tree.test_tree import ANN, ME, publish, tree

if TYPE_CHECKING:
    from gossipkv.gossip.tree.tree import Tree


def told(made: Tree) -> list[Part]:
    """What rides on the next packet."""
    parts = made.rumours.take(1300, 8)
    return [part for sent in parts for part in messages.read_parts(sent, 0)]


def test_a_change_is_a_delta_on_the_way() -> None:
    """Small enough to ride: a key of sixty bytes makes a part of less than a hundred."""
    made = tree()
    made.publish("partitions/geo/2026/00012@10.0.0.1:7070", b"x" * 20)
    (part,) = made.rumours.take(1300, 8)
    assert len(part) < 100
    (delta,) = messages.read_parts(part, 0)
    assert isinstance(delta, Delta)
    assert (delta.owner, delta.since, delta.reach, delta.target) == (ME, 0, 1, 1)


def test_changes_shortly_after_ride_together() -> None:
    """So who missed one packet has no gap at the next."""
    made = tree()
    made.publish("k/1")
    told(made)
    made.publish("k/2")
    made.withdraw("k/1")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert (delta.since, delta.target) == (0, 3)
    assert [(change.path, change.value) for change in delta.changes] == [("k/2", b""), ("k/1", None)]


def test_what_was_told_often_enough_is_done() -> None:
    """And what comes then begins anew, without the old."""
    made = tree()
    made.publish("k/1")
    for _ in range(8):
        assert told(made)
    assert not told(made)
    made.publish("k/2")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert delta.since == 1


def test_the_longest_values_in_a_burst() -> None:
    """Sixteen of them are more than a part can have; that is found out before the part is made."""
    made = tree(TreeLimits(max_entry_bytes=32_768, max_branch_bytes=1 << 20, protocol_branch_bytes=1 << 20))
    for number in range(MOST_CHANGES):
        made.publish(f"k/{number}", bytes(32_768 - 8))
    (head,) = told(made)
    assert isinstance(head, Head)
    assert head.version == MOST_CHANGES


def test_a_burst_is_a_head() -> None:
    """More changes than a packet should carry are asked for; one key too large for its share likewise."""
    made = tree()
    for number in range(MOST_CHANGES):
        made.publish(f"k/{number}")
    assert isinstance(told(made)[0], Delta)
    made.publish("one/more")
    assert told(made) == [Head(ME, 1, MOST_CHANGES + 1)]
    for number in range(500):
        made.publish(f"k/{number}")
    assert told(made) == [Head(ME, 1, made.head(ME).version)]
    large = tree()
    large.publish("k", bytes(MOST_BYTES))
    assert told(large) == [Head(ME, 1, 1)]


def test_a_delta_below_the_floor_is_a_head() -> None:
    """Collected tombstones are not to be told as if they had not been."""
    made = tree()
    made.publish("k/1")
    made.withdraw("k/1")
    for id_ in (ANN, member_id("ben")):
        made.acknowledged(id_)
    assert not made.has_tombstones
    made.publish("k/2")
    assert told(made) == [Head(ME, 1, 3)]


def test_what_was_heard_as_a_rumour_is_told_on_as_one() -> None:
    """From the version that was here to the one that is now."""
    made = tree()
    publish(made, "ann", "k/1")
    publish(made, "ann", "k/1", "k/2")
    (delta,) = told(made)
    assert isinstance(delta, Delta)
    assert (delta.owner, delta.since, delta.target) == (ANN, 0, 2)


def test_what_an_exchange_brought_is_told_on_as_a_head() -> None:
    """Most have it already; those who do not, ask."""
    made = tree()
    publish(made, "ann", "k/1")
    while told(made):
        pass
    change = messages.Change(2, "k/2", b"")
    made.apply(Delta(ANN, 1, 0, 1, 2, 2, reset=False, changes=(change,)), fresh=False)
    assert told(made) == [Head(ANN, 1, 2)]


def test_the_dead_are_not_talked_about() -> None:
    """What is to be told of a branch goes with its owner."""
    made = tree()
    publish(made, "ann", "k/1")
    made.on_member(member("ann", state=State.DEAD))
    assert not told(made)
    made.tell_head(ANN)
    assert not told(made)
