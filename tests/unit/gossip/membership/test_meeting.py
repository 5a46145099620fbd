"""Cluster ids meet: every combination, and that nobody goes to and fro."""

from __future__ import annotations

import itertools
import random

import pytest

from gossipkv.gossip.envelope import NO_CLUSTER
from gossipkv.gossip.membership.meeting import Outcome, Side, meet

SMALL, LARGE = b"a" * 8, b"b" * 8
SIDES = [
    Side(cluster_id, lone, pinned)
    for cluster_id in (NO_CLUSTER, SMALL, LARGE)
    for lone in (True, False)
    for pinned in (True, False)
    if not (cluster_id == NO_CLUSTER and pinned)
]


@pytest.mark.parametrize(("asker", "asked"), list(itertools.product(SIDES, SIDES)))
def test_rules(asker, asked):
    """Who has none takes one; pinned never changes; the asked one takes only while it is lone."""
    outcome = meet(asker, asked)
    if asker.cluster_id == asked.cluster_id:
        assert outcome is (Outcome.DRAW if asker.cluster_id == NO_CLUSTER else Outcome.SAME)
        return
    if outcome is Outcome.ASKER_TAKES:
        assert not asker.pinned
        assert asked.cluster_id != NO_CLUSTER
    if outcome is Outcome.ASKED_TAKES:
        assert not asked.pinned
        assert asked.lone or asked.cluster_id == NO_CLUSTER
        assert asker.cluster_id != NO_CLUSTER
    if NO_CLUSTER in {asker.cluster_id, asked.cluster_id}:
        assert outcome is not Outcome.REFUSED
    elif asker.pinned and asked.pinned:
        assert outcome is Outcome.REFUSED
    elif asker.lone and not asker.pinned:
        assert outcome is not Outcome.REFUSED  # A lone node that is told to join always gets in.


def test_two_lone_nodes_agree():
    """Whoever of two lone nodes asks, or both at once: the smaller id is taken."""
    assert meet(Side(SMALL, lone=True, pinned=False), Side(LARGE, lone=True, pinned=False)) is Outcome.ASKED_TAKES
    assert meet(Side(LARGE, lone=True, pinned=False), Side(SMALL, lone=True, pinned=False)) is Outcome.ASKER_TAKES


@pytest.mark.parametrize("seed", range(50))
def test_clusters_that_meet_become_one(seed):
    """Groups with ids of their own, none pinned, all told of all: whoever asks whom, in the end there is one id."""
    chance = random.Random(seed)
    ids = [bytes([chance.randrange(1, 256) for _ in range(8)]) for _ in range(3)]
    nodes = [chance.choice([*ids, NO_CLUSTER]) for _ in range(6)]
    steps = 0
    while len(set(nodes)) > 1 or nodes[0] == NO_CLUSTER:
        asker, asked = chance.sample(range(len(nodes)), 2)
        sides = [Side(nodes[one], nodes.count(nodes[one]) == 1, pinned=False) for one in (asker, asked)]
        outcome = meet(*sides)
        if outcome is Outcome.DRAW:
            nodes[asked] = bytes([chance.randrange(1, 256) for _ in range(8)])
        elif outcome is Outcome.ASKER_TAKES:
            nodes[asker] = nodes[asked]
        elif outcome is Outcome.ASKED_TAKES:
            nodes[asked] = nodes[asker]
        steps += 1
        assert steps < 2000
