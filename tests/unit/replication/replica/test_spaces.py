"""Replicas are found by key exactly while they exist, under random changes beside them."""

from __future__ import annotations

import random
from itertools import count

import pytest

from gossipkv.replication.replica.keys import WHOLE, KeyBounds, ReplicaIdentity, suffix_of
from gossipkv.replication.replica.replica import NO_LINEAGE, AssignedReplica, Replica
from gossipkv.replication.replica.spaces import Spaces, first_batch

TABLES = (b"one", b"two", b"three")
HALVES = (KeyBounds(b"", b"m"), KeyBounds(b"m", None))
KEYS = (b"", b"a", b"m", b"z")
STEPS = 60


class Node:
    """The spaces of a node, and the replicas that should be found there."""

    def __init__(self):
        self.spaces, self.copies, self.numbers = Spaces(), [], count(1)
        self.of_ranges = set()

    def made(self, table, bounds, space=None):
        number = next(self.numbers)
        identity = ReplicaIdentity(table, number, number, bounds)
        _, state, _ = first_batch(number, identity, 1, [AssignedReplica(number, b"n", 0, counts=True, available=True)])
        return Replica(space or number, identity, state, suffix=suffix_of(number) if space else b"")

    def comes(self, table):
        if not any(copy.partition[0] == table for copy in self.copies):
            self.copies.append(self.made(table, WHOLE))
            self.spaces.add(self.copies[-1])

    def divides(self, copy):
        if copy.bounds == WHOLE:
            children = [self.made(copy.partition[0], bounds, copy.space) for bounds in HALVES]
            self.spaces.divide(copy, 1, children, ())
            self.copies += children
            self.copies.remove(copy)

    def goes(self, copy):
        self.spaces.remove(copy, copy.space, copy.suffix)
        self.copies.remove(copy)

    def is_set_aside(self, copy):
        self.spaces.quarantine(copy, "why")
        self.copies.remove(copy)

    def departs(self, copy):
        copy.departs()
        self.spaces.hides(copy)
        self.copies.remove(copy)

    def loads(self, copy):
        """Move the replica to a space of its own, as a load does."""
        space, suffix, copy.space, copy.lineage = copy.space, copy.suffix, next(self.numbers), NO_LINEAGE
        self.spaces.remove(copy, space, suffix)
        self.spaces.add(copy)

    def expected(self, table, key):
        found = [copy for copy in self.copies if copy.partition[0] == table and copy.bounds.has(key)]
        return next(iter(found if table in self.of_ranges else ()), None)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_found_while_it_is_there(seed):
    """A table with ranges may be indexed late, and no removed or departed replica is found."""
    chance, node = random.Random(seed), Node()
    for _ in range(STEPS):
        table = chance.choice(TABLES)
        if chance.random() < 0.2:
            node.of_ranges.add(table)
            node.spaces.index_ranges(table)
        elif node.copies and chance.random() < 0.6:
            does = chance.choice((node.divides, node.goes, node.is_set_aside, node.departs, node.loads))
            does(chance.choice(node.copies))
        else:
            node.comes(table)
        for table in TABLES:
            for key in KEYS:
                assert node.spaces.at(table, key) is node.expected(table, key), (table, key)
