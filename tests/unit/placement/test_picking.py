"""Who comes to a partition, and in whose place: as far apart as can be, then by load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.partition import Assignment, Partition, State
from gossipkv.placement.picking import Picking
from gossipkv.placement.spread import Node, fault_of_map


def node(number):
    """A node's id."""
    return bytes([number]) * 16


def picking(groups, *, held=(), weights=(), down=()):
    """Nodes 0, 1, ... of these isolation groups."""
    nodes = {
        node(at): Node(node(at), group, weights[at] if weights else 1) for at, group in enumerate(groups)
    }  # fmt: skip
    return Picking(nodes, {node(at): count for at, count in enumerate(held)}, {*nodes} - {*map(node, down)})


def held_by(*numbers):
    """A partition whose slots these nodes have; None: nobody has it."""
    held = [(slot, number) for slot, number in enumerate(numbers) if number is not None]
    return Partition.of(7, [Assignment(slot + 1, node(number), slot, State.AVAILABLE) for slot, number in held])


@pytest.mark.parametrize(("hosts", "groups", "more", "slot"), [
    ((0, 1), "....", {}, 2),  # Fewer stand than may: the empty slot.
    ((0, None, 2), "....", {}, 1),
    ((0, 1, 2), "abca", {}, 0),  # The one that shares the newcomer's isolation group.
    ((0, 1, 2), "aabc", {}, 0),  # Of two that share one, the first.
    ((0, 1, 2), "aabc", {"held": (1, 2, 9)}, 1),  # Or who has more; the fullest is farther apart from all.
    ((0, 1, 2), "....", {"held": (5, 9, 5)}, 1),
    ((0, 1, 2), "....", {"held": (5, 9, 5), "weights": (1, 3, 1, 1)}, 0),  # By weight.
    ((0, 1, 2), "....", {"held": (5, 9, 5), "down": (1,)}, 0),  # What is down is waited for.
    ((0, 1, 2), "aabc", {"down": (1,)}, 0),
    ((0, 9, 2), "....", {"held": (5, 5, 5)}, 1),  # Who is no node of tables any more goes first.
])  # fmt: skip
def test_the_slot_that_is_taken(hosts, groups, more, slot):
    """An empty one; else where that leaves the hosts farthest apart; else of who lives and has most; else the first."""
    known = picking([group.strip(".") for group in groups], **more)
    known.alive.add(node(9))
    assert known.slot_to_take(held_by(*hosts), node(3), 3) == slot


@pytest.mark.parametrize(("groups", "more", "found"), [
    ("....", {}, 3), ("...", {}, None), ("....", {"down": (3,)}, None), (".....", {"held": (0, 0, 0, 5, 4)}, 4),
    ("abcab", {}, 3), ("abcba", {}, 4), ("abccb", {"held": (0, 0, 0, 1, 9)}, 3),
    (".....", {"held": (0, 0, 0, 5, 4), "weights": (1, 1, 1, 2, 1)}, 3),
])  # fmt: skip
def test_who_takes_a_slot(groups, more, found):
    """One that lives and holds nothing of it, as far apart as can be, with the least for its weight; or nobody."""
    known = picking([group.strip(".") for group in groups], **more)
    assert known.successor(held_by(0, 1, 2), node(0)) == (None if found is None else node(found))


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=7))
def test_nothing_comes_nearer(groups):
    """Of a partition as far apart as can be whoever takes a slot leaves it so, where anybody can."""
    known = picking(groups)
    hosts = (0, 1, 2)

    def is_apart(slots):
        return "apart" not in fault_of_map([*known.nodes.values()], 3, [tuple(map(node, slots))])

    for leaver in hosts:
        successor = known.successor(held_by(*hosts), node(leaver))
        stay = [one for one in hosts if one != leaver]
        others = [at for at in range(len(groups)) if at not in hosts]
        assert is_apart([*stay, successor[0]]) or not any(is_apart([*stay, other]) for other in others)
    slot = known.slot_to_take(held_by(*hosts), node(3), 3)
    after = [[*hosts[:at], 3, *hosts[at + 1 :]] for at in range(3)]
    assert is_apart(after[slot]) or not any(map(is_apart, after))
