"""Two clusters that meet settle on one id for every combination of states."""

from __future__ import annotations

import itertools
import random

import pytest

from gossipkv.gossip.membership.joining import Meeting, Side, meet
from gossipkv.gossip.packets.prefix import NO_CLUSTER

SMALL, LARGE = b"a" * 8, b"b" * 8
SIDES = [
    Side(cluster_id, lone, pinned, told)
    for cluster_id in (NO_CLUSTER, SMALL, LARGE)
    for lone in (True, False)
    for pinned in (True, False)
    for told in (True, False)
    if not (cluster_id == NO_CLUSTER and pinned)
]


def test_rules():
    """A node without an id takes one, a pinned one never changes, and a node that was told to join merges."""
    for asker, asked in itertools.product(SIDES, SIDES):
        check_rules(asker, asked)


def check_rules(asker, asked):
    outcome = meet(asker, asked)
    if asker.cluster_id == asked.cluster_id:
        assert outcome is (Meeting.DRAW if asker.cluster_id == NO_CLUSTER else Meeting.SAME)
        return
    if outcome is Meeting.ASKER_TAKES:
        assert not asker.pinned
        assert asked.cluster_id != NO_CLUSTER
    if outcome is Meeting.ASKED_TAKES:
        assert not asked.pinned
        assert asker.cluster_id != NO_CLUSTER
    if NO_CLUSTER in {asker.cluster_id, asked.cluster_id}:
        assert outcome is not Meeting.REFUSED
    elif not asker.was_told or (asker.pinned and asked.pinned):
        assert outcome is Meeting.REFUSED
    else:
        assert outcome is not Meeting.REFUSED
        if not (asker.pinned or asked.pinned) and asker.lone == asked.lone:
            taken = asked if outcome is Meeting.ASKER_TAKES else asker
            assert taken.cluster_id == min(asker.cluster_id, asked.cluster_id)


def test_two_lone_nodes_agree():
    """The smaller id is taken, whichever node asks, and also if both ask at once."""
    assert (
        meet(Side(SMALL, lone=True, pinned=False, was_told=True), Side(LARGE, lone=True, pinned=False))
        is Meeting.ASKED_TAKES
    )
    assert (
        meet(Side(LARGE, lone=True, pinned=False, was_told=True), Side(SMALL, lone=True, pinned=False))
        is Meeting.ASKER_TAKES
    )


@pytest.mark.parametrize("seed", range(60))
def test_clusters_that_meet_become_one(seed):
    """Groups without a pin end with one id, whatever the order of questions."""
    chance = random.Random(seed)
    # Every node knows all; every node knows the first, which knows none; a ring.
    told = [lambda one, other: True, lambda one, other: other == 0, lambda one, other: other == (one + 1) % 6][seed % 3]
    ids = [bytes([chance.randrange(1, 256) for _ in range(8)]) for _ in range(3)]
    nodes = [chance.choice([*ids, NO_CLUSTER]) for _ in range(6)]
    steps = 0
    while len(set(nodes)) > 1 or nodes[0] == NO_CLUSTER:
        asker, asked = chance.sample(range(len(nodes)), 2)
        if not told(asker, asked):
            continue
        lone = [nodes.count(nodes[one]) == 1 for one in (asker, asked)]
        outcome = meet(
            Side(nodes[asker], lone[0], pinned=False, was_told=True),
            Side(nodes[asked], lone[1], pinned=False),
        )
        if outcome is Meeting.DRAW:
            nodes[asked] = bytes([chance.randrange(1, 256) for _ in range(8)])
        elif outcome is Meeting.ASKER_TAKES:
            nodes[asker] = nodes[asked]
        elif outcome is Meeting.ASKED_TAKES:
            nodes[asked] = nodes[asker]
        steps += 1
        assert steps < 2000
